from __future__ import annotations

import contextlib
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from lr_sweep.analysis.record.columns import CURVES, RUNS, WANTED, Columns, table
from lr_sweep.analysis.record.parquet import parquet_bytes
from lr_sweep.analysis.record.read import read_rows, read_run_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields
from lr_sweep.sweep.claims.bundle import README, RECORD, RULE, VERSIONS, unpacked
from lr_sweep.sweep.claims.challenge import Request, challenge
from lr_sweep.sweep.claims.listing import LIST, write_files, write_list
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.claims import SecondTraining, make_bundle

NUM_RUNS = 15
FILES: dict[str, tuple[str, Columns]] = {
    "runs": ("runs-1.parquet", RUNS),
    "curves": ("curves-1.parquet", CURVES),
    "wanted": ("wanted.parquet", WANTED),
}


def short_report(results: Results, name: str) -> dict[str, bytes]:
    """A report of one number: a whole one takes most of a challenge's time."""
    values = [row["test_at_best"] for row in read_run_rows(results.root, None, ["test_at_best"])]
    text = f"mean over {len(values)} runs: {sum(values) / len(values)}\n"
    return {"report/runs.csv": text.encode(), VERSIONS: b"{}", "README.md": README.encode()}


@pytest.fixture(scope="module", autouse=True)
def short_reports() -> Iterator[None]:
    """Short reports in bundles and challenges; whole ones are in `test_commands.py`."""
    with contextlib.ExitStack() as stack:
        for module in ("bundle", "challenge"):
            stack.enter_context(mock.patch(f"lr_sweep.sweep.claims.{module}.report_files", short_report))
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


def challenged(bundle: Path, second: SecondTraining, **changes: object) -> tuple[bool, str]:
    said: list[str] = []
    given = {"num_runs": NUM_RUNS, "seed": 0, "data_dir": bundle, "allow": said.append, "resources": {}}
    request = Request(train=second, **{**given, **changes})  # type: ignore[arg-type]
    holds = challenge(bundle, request, said.append)
    return holds, "\n".join(said)


def forge(bundle: Path, stem: str, change: Callable[[list[Fields]], list[Fields]]) -> None:
    """Change the rows of a file of the record, and make report and list again."""
    file, columns = FILES[stem]
    path = bundle / RECORD / file
    path.write_bytes(parquet_bytes(table(change(read_rows(path, columns) or []), columns)))
    with_report(bundle)


def with_report(bundle: Path) -> None:
    results = unpacked(bundle / RECORD, "mine", bundle.parent / "forged")
    write_files(bundle, short_report(results, "mine"))
    with_list(bundle)


def with_list(bundle: Path) -> None:
    (bundle / LIST).unlink()
    write_list(bundle)


def test_an_honest_bundle_holds(bundle: Path, second: SecondTraining) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in bundle.rglob("*"))
    holds, said = challenged(bundle, second)
    assert holds
    assert "15 of 15 runs trained again (seed 0): equal to the bit; if 20% of the runs" in said
    assert "in 100% of draws" in said
    assert sorted((path, path.stat().st_mtime_ns) for path in bundle.rglob("*")) == before


def test_an_altered_curve_is_found_if_its_run_is_drawn(bundle: Path, second: SecondTraining) -> None:
    def raise_last(rows: list[Fields]) -> list[Fields]:
        rows[2] |= {"train": 0.5}
        return rows

    forge(bundle, "curves", raise_last)
    holds, said = challenged(bundle, second)
    assert not holds
    assert "parts at step 6\n" in said
    assert "1 differ, and equal bits were to be expected" in said
    (altered,) = {line.split()[1] for line in said.splitlines() if "parts at" in line}
    holds, _ = challenged(bundle, second, num_runs=5)
    assert holds == (altered not in second.asked)


@pytest.mark.parametrize("left", ["wanted", "runs"])
def test_a_run_that_was_left_out_is_found(bundle: Path, second: SecondTraining, left: str) -> None:
    forge(bundle, left, lambda rows: rows[1:])
    assert not challenged(bundle, second)[0]


def test_names_seeds_and_directions_that_the_study_does_not_give_are_found(
    bundle: Path, second: SecondTraining
) -> None:
    other = {"a": "b", "b": "a", "c": "c"}
    for stem in ("wanted", "runs"):
        forge(bundle, stem, lambda rows: [row | {"variant": other[row["variant"]]} for row in rows])
    holds, said = challenged(bundle, second)
    assert not holds
    assert "record/wanted.parquet: got" in said
    assert "Nothing was trained" in said


def test_another_metric_is_found(bundle: Path, second: SecondTraining) -> None:
    path = bundle / RECORD / "study.json"
    facts = json.loads(path.read_text())
    facts["metric"] = {"name": "accuracy", "higher_is_better": False, "is_fraction": True}
    path.write_text(json.dumps({name: facts[name] for name in facts if name != "checksum"}))
    with_report(bundle)
    holds, said = challenged(bundle, second)
    assert not holds
    assert "record/study.json: the study gives other facts" in said


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("rule/train.py", "0.02", "0.021", "planned-runs.csv"),
        ("report/runs.csv", "mean over", "mean of", "report/runs.csv"),
        ("README.md", "five", "six", "README.md"),
        ("planned-runs.csv", "0.01", "0.02", "planned-runs.csv"),
    ],
)
def test_a_changed_file_is_found_with_the_list_made_again_or_not(
    bundle: Path, second: SecondTraining, file: str, old: str, new: str, says: str
) -> None:
    path = bundle / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert f"differs: {file!r} has other bytes" in challenged(bundle, second)[1]
    with_list(bundle)
    holds, said = challenged(bundle, second)
    assert not holds
    assert f"differs: {says}" in said


def test_values_of_another_machine_are_tested_as_further_seeds(bundle: Path, second: SecondTraining) -> None:
    def elsewhere(rows: list[Fields]) -> list[Fields]:
        return [row | {"device": "cpu (another)"} for row in rows]

    def noisy(gain: float) -> Callable[[list[Fields]], list[Fields]]:
        gains = {"a": gain, "b": 0.0, "c": 0.0}
        runs = read_rows(bundle / RECORD / "runs-1.parquet", RUNS) or []
        by_run = {row["run_id"]: gains[row["variant"]] for row in runs}
        names = ("validation", "test")
        return lambda rows: [row | {name: row[name] + by_run[row["run_id"]] for name in names} for row in rows]

    forge(bundle, "runs", lambda rows: [row | {"best_step": None} for row in elsewhere(rows)])
    forge(bundle, "curves", noisy(1e-9))
    holds, said = challenged(bundle, second)
    assert holds
    assert "parts at step 2 (device 'cpu (another)', here" in said
    assert "plausible as further seeds" in said
    forge(bundle, "curves", noisy(0.3))
    holds, said = challenged(bundle, second)
    assert not holds
    assert "too good for further seeds" in said


def test_a_list_that_was_registered_must_be_part_of_the_bundle(
    bundle: Path, second: SecondTraining, tmp_path: Path
) -> None:
    lines = (bundle / LIST).read_text().splitlines()
    registered = tmp_path / "registered"
    registered.write_text("".join(f"{line}\n" for line in lines if "rule/" in line))
    assert challenged(bundle, second, registered=registered)[0]
    registered.write_text(registered.read_text().replace("rule/mine.yaml", "rule/before.yaml"))
    holds, said = challenged(bundle, second, registered=registered)
    assert not holds
    assert "registered and not in the bundle" in said


def test_a_hostile_bundle_does_nothing_without_trust(
    bundle: Path, second: SecondTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "executed"
    code = f"open({str(marker)!r}, 'w').close()\n"
    for name in ("train.py", "sitecustomize.py", "numpy.py", "conftest.py"):
        (bundle / RULE / name).write_text(code + "def train(run, session): ...\n")
    (bundle / "report" / "more.pkl").write_bytes(pickle.dumps(Exploit(marker)))
    (bundle / RECORD / "runs-1.pkl").write_bytes(pickle.dumps(Exploit(marker)))
    with_list(bundle)
    monkeypatch.chdir(bundle / RULE)

    def refuse(parts: str) -> None:
        raise UserError(f"not trusted: {parts}")

    assert not challenged(bundle, second, allow=refuse)[0]
    (bundle / "report" / "more.pkl").unlink()
    with_list(bundle)
    with pytest.raises(UserError, match=r"not trusted: the bundle's own function 'train.py:train'"):
        challenged(bundle, second, allow=refuse)
    assert not marker.exists()


def test_ids_of_runs_lead_to_no_file_elsewhere(bundle: Path, second: SecondTraining, tmp_path: Path) -> None:
    path = bundle / RECORD / "runs-1.parquet"
    rows = read_rows(path, RUNS) or []
    rows[0]["run_id"] = str(tmp_path / "elsewhere")
    path.write_bytes(parquet_bytes(table(rows, RUNS)))
    with_list(bundle)
    holds, said = challenged(bundle, second)
    assert not holds
    assert "want 16 hex digits" in said
    assert not (tmp_path / "elsewhere.parquet").exists()


class Exploit:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.marker), "w")
