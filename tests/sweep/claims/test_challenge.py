from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from lr_sweep.analysis.record.columns import CURVES, RUNS, Columns
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import read_run_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields
from lr_sweep.sweep.claims.bundle import RECORD, RULE
from lr_sweep.sweep.claims.listing import write_files
from lr_sweep.tests.support.claims import (
    SecondTraining,
    challenged,
    change_rows,
    list_again,
    make_bundle,
    report_again,
)


def short_report(root: Path, name: str) -> SimpleNamespace:
    """Write a report of one number: a whole one takes most of a challenge's time."""
    values = [row["test_at_best"] for row in read_run_rows(root, None, ["test_at_best"])]
    text = f"mean over {len(values)} runs: {sum(values) / len(values)}\n"
    folder = Paths(root).report(name)
    write_files(folder, {"runs.csv": text.encode()})
    return SimpleNamespace(folder=folder, files=[folder / "runs.csv"])


@pytest.fixture(scope="module", autouse=True)
def short_reports() -> Iterator[None]:
    """Short reports in bundles and challenges; whole ones are in `test_commands.py`."""
    with mock.patch("lr_sweep.sweep.claims.bundle.write_report", short_report):
        yield


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of three variants at two rates, two seeds each, with a fresh seed at the chosen rates."""
    changes = {"learning_rates": "[1e-2, 1e-1]", "seeds": "1", "fresh": "3"}
    return make_bundle(tmp_path_factory.mktemp("honest"), **changes)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> SecondTraining:
    return SecondTraining(tmp_path_factory.mktemp("second"))


@pytest.fixture
def bundle(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "bundle"))


def forge(bundle: Path, stem: str, columns: Columns, change: Callable[[list[Fields]], object]) -> None:
    """Change the rows of each run, and make report and list again."""
    change_rows(bundle, stem, columns, change)
    report_again(bundle)


def test_an_honest_bundle_holds(bundle: Path, second: SecondTraining) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in bundle.rglob("*"))
    holds, said = challenged(bundle, second)
    assert holds
    assert "15 of 15 runs trained again (seed 0): equal to the bit; if 20% of the runs" in said
    assert "in 100% of draws; all numbers of the report follow from the runs." in said
    assert sorted((path, path.stat().st_mtime_ns) for path in bundle.rglob("*")) == before


@pytest.mark.slow
def test_an_altered_curve_is_found_if_its_run_is_drawn(bundle: Path, second: SecondTraining) -> None:
    altered = min((bundle / RECORD / "curves").iterdir()).stem

    def raise_last(rows: list[Fields]) -> None:
        if rows[2]["run_id"] == altered:
            rows[2] |= {"train": 0.5}

    forge(bundle, "curves", CURVES, raise_last)
    holds, said = challenged(bundle, second)
    assert not holds
    assert f"run {altered} parts at step 6; other conditions than here: none\n" in said
    assert "1 are not equal to the bit, and equal bits were to be expected" in said
    holds, _ = challenged(bundle, second, num_runs=5)
    assert holds == (altered not in second.asked)


@pytest.mark.parametrize("left", ["runs", "curves"])
def test_a_run_that_was_left_out_is_found(bundle: Path, second: SecondTraining, left: str) -> None:
    min((bundle / RECORD / left).iterdir()).unlink()
    list_again(bundle)
    assert not challenged(bundle, second)[0]


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("rule/mine/train.py", "0.02", "0.021", "6 of the 6 runs that mine wants are missing"),
        ("rule/mine/mine.yaml", "  c: {}\n", "", "record/curves/"),
        ("rule/mine/mine.yaml", "0.1", "0.2", "3 of the 6 runs that mine wants are missing"),
        ("report/runs.csv", "mean over", "mean of", "report/runs.csv: got 'mean of 15"),
        ("README.md", "five", "six", "README.md"),
    ],
)
def test_a_changed_file_is_found_with_the_list_made_again_or_not(
    bundle: Path, second: SecondTraining, file: str, old: str, new: str, says: str
) -> None:
    path = bundle / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert f"{file!r} is not as the list has it" in challenged(bundle, second)[1]
    list_again(bundle)
    holds, said = challenged(bundle, second)
    assert not holds
    assert says in said


@pytest.mark.slow
def test_values_of_another_machine_are_tested_as_further_seeds(bundle: Path, second: SecondTraining) -> None:
    def elsewhere(rows: list[Fields]) -> None:
        rows[0] |= {"device": "cpu (another)", "best_step": None}

    def noisy(gain: float) -> Callable[[list[Fields]], None]:
        gains = dict.fromkeys(of_best, gain)

        def change(rows: list[Fields]) -> None:
            for row in rows:
                row |= {name: row[name] + gains.get(row["run_id"], 0) for name in ("validation", "test")}

        return change

    names = ("run_id", "variant")
    of_best = [row["run_id"] for row in read_run_rows(bundle / RECORD, None, names) if row["variant"] == "a"]
    forge(bundle, "runs", RUNS, elsewhere)
    forge(bundle, "curves", CURVES, noisy(1e-9))
    holds, said = challenged(bundle, second)
    assert holds
    assert "parts at step 2; other conditions than here: device\n" in said
    assert "plausible for further seeds (p 0.5)" in said
    forge(bundle, "curves", CURVES, noisy(0.3))
    holds, said = challenged(bundle, second)
    assert not holds
    assert "too good for further seeds" in said


def test_a_hostile_bundle_does_nothing_without_trust(
    bundle: Path, second: SecondTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "executed"
    code = f"open({str(marker)!r}, 'w').close()\n"
    rule = bundle / RULE / "mine"
    for name in ("train.py", "sitecustomize.py", "numpy.py", "conftest.py"):
        (rule / name).write_text(code + "def train(run, session): ...\n")
    for place in ("report/more.pkl", f"{RECORD}/runs/more.pkl", f"{RECORD}/format.json/more.pkl"):
        (bundle / place).parent.mkdir(exist_ok=True)
        (bundle / place).write_bytes(pickle.dumps(Exploit(marker)))
    list_again(bundle)
    monkeypatch.chdir(rule)

    def refuse() -> None:
        raise UserError("not trusted")

    with pytest.raises(UserError, match="not trusted"):
        challenged(bundle, second, allow=refuse)
    assert not challenged(bundle, second)[0]
    assert not marker.exists()


@pytest.mark.parametrize("name", ["report/more.csv", f"{RECORD}/studies/mine/proposals.parquet", f"{RECORD}/runs/x"])
def test_a_file_that_no_bundle_has_is_found(bundle: Path, second: SecondTraining, name: str) -> None:
    write_files(bundle, {name: b"1"})
    list_again(bundle)
    holds, said = challenged(bundle, second)
    assert not holds
    assert f"{name}: got '1', the runs give ''" in said


def test_ids_of_runs_lead_to_no_file_elsewhere(bundle: Path, second: SecondTraining, tmp_path: Path) -> None:
    change_rows(bundle, "runs", RUNS, lambda rows: rows[0].update(run_id=str(tmp_path / "elsewhere")))
    list_again(bundle)
    holds, said = challenged(bundle, second)
    assert not holds
    assert "want that of the file's name" in said
    assert not (tmp_path / "elsewhere.parquet").exists()


class Exploit:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.marker), "w")
