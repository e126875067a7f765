from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lr_sweep.tests.support.claims import write_fast_study
from lr_sweep.tests.support.tiny_study import ROOT, refused, said, sweep, swept

PAGE = ROOT / "docs" / "challenge.md"
BUNDLES = sorted((ROOT / "docs" / "results").glob("*/bundle"))


def commands() -> list[list[str]]:
    """The commands of the page that start with the program's name, without it."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("lr-sweep")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.slow
@pytest.mark.cluster
def test_the_commands_of_the_page_publish_and_check_a_claim(tmp_path: Path) -> None:
    write_fast_study(tmp_path, variants="[a, b]", learning_rates="[1e-2, 1e-1]", seeds="3")
    printed = []
    for words in commands():
        placed = [str(tmp_path / word) if re.match("mine|registered", word) else word for word in words]
        more = ["--trust"] if words[0] == "challenge" else ["--results", tmp_path / "results"]
        printed.append(swept(*placed, *more))
    assert len(printed) == 4
    assert "sha256" in printed[0]
    assert "sha256" in printed[2]
    assert re.search(r"5 of 12 runs trained again \(seed \d+\): equal to the bit", printed[3])
    bundled, registered = (tmp_path / folder / "SHA256SUMS" for folder in ("mine-bundle", "registered"))
    assert {*registered.read_text().splitlines()} < {*bundled.read_text().splitlines()}
    code, output = sweep("challenge", tmp_path / "mine-bundle")
    assert code == 2
    assert "nothing was run: read the files that are listed above" in output


def test_a_study_is_registered_before_it_trains(tmp_path: Path) -> None:
    study = write_fast_study(tmp_path)
    code, _ = said("plan", study, "--results", tmp_path / "results", "--register", tmp_path / "rule")
    assert code == 0
    names = sorted(line.split()[1] for line in (tmp_path / "rule" / "SHA256SUMS").read_text().splitlines())
    assert names == ["rule/mine/mine.yaml", "rule/mine/train.py"]
    again = refused("plan", study, "--results", tmp_path / "results", "--register", tmp_path / "rule")
    assert "name a folder that does not" in again


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.parent.name)
def test_a_shipped_bundle_holds(bundle: Path) -> None:
    code, printed = sweep("challenge", bundle, "--runs", "2", "--seed", "1", "--trust")
    assert code == 0, f"{printed}\nif reports have changed: python -m benchmarks.shipped_result --again"
    assert "2 of " in printed
