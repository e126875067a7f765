"""A results directory that version 0.1.0 left half trained is resumed, reported and verified.

`tests/earlier_record` was recorded at commit 881659a: `results` as an interrupted sweep left it (one run complete, 3
at checkpoints, of either engine), and in `expected.json` what that commit made of it with each engine. What was
recorded before the interruption must be equal. The rest must be the same training up to rounding, which differs between
CPUs of one name (by 1e-7 of a loss between two called AMD EPYC), with torch, and with later code of the stacked engine.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.record.parquet import FORMAT_1_NAMES
from lr_sweep.tests.support.tiny_study import ROOT, curves, rows, succeeds, swept

EARLIER = ROOT / "tests" / "earlier_record"
EXPECTED = json.loads((EARLIER / "expected.json").read_text())
pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module", params=["plain", "stacked"])
def resumed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The earlier results directory after `run` with an engine."""
    folder = tmp_path_factory.mktemp(request.param)
    results = shutil.copytree(EARLIER / "results", folder / "results")
    swept("run", EARLIER / request.param / "tiny.yaml", "--results", results, "--cpus", "1")
    return request.param, results


def test_the_record_is_what_the_earlier_version_made_of_it(resumed: tuple[str, Path]) -> None:
    engine, results = resumed
    expected: dict[str, Any] = EXPECTED["engines"][engine]
    found, points = rows(results), curves(results)
    assert found.keys() == points.keys() == expected.keys()  # run ids are unchanged
    for run_id, wanted in expected.items():
        row = {name: None if pd.isna(found[run_id][name]) else found[run_id][name] for name in wanted["row"]}
        curve = [
            {name: point[name.removesuffix("_accuracy")] for name in wanted["curve"][0]} for point in points[run_id]
        ]
        recorded = len(pq.read_table(EARLIER / "results" / "curves" / f"{run_id}.parquet"))
        assert curve[:recorded] == wanted["curve"][:recorded]
        assert curve == [approximately(point) for point in wanted["curve"]]
        assert row == approximately(wanted["row"])


def approximately(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return losses to be equal to 1e-5 of their size, accuracies but for one example of the smallest split."""
    return {
        name: pytest.approx(value, rel=1e-5)
        if name.endswith("loss")
        else pytest.approx(value, abs=1 / 100 + 1e-9)
        if name.endswith(("accuracy", "at_best"))
        else value
        for name, value in numbers.items()
    }


def test_its_files_have_the_same_columns_and_later_ones_after_them(resumed: tuple[str, Path]) -> None:
    _, results = resumed
    files = {"runs": results / "runs", "curves": results / "curves", "wanted": results / "studies" / "tiny"}
    for kind, folder in files.items():
        file = next(folder.glob("wanted.parquet" if kind == "wanted" else "*.parquet"))
        found = [[field.name, str(field.type)] for field in pq.read_schema(file)]
        earlier = [[FORMAT_1_NAMES.get(name, name), type_] for name, type_ in EXPECTED["columns"][kind]]
        assert found[: len(earlier)] == earlier
        later = {
            "runs": ["stopped_at_step", "last_printed", "resumed", "not_saved"],
            "curves": ["logged"],
            "wanted": ["options", "fresh"],
        }
        assert [name for name, _ in found[len(earlier) :]] == later[kind]


@pytest.mark.parametrize("command", ["verify", "status", "report", "run"])
def test_it_is_reported_and_verified(resumed: tuple[str, Path], command: str) -> None:
    engine, results = resumed
    study = [] if command == "verify" else [EARLIER / engine / "tiny.yaml"]
    output = succeeds(command, *study, "--results", results)
    assert "nothing to train" in output or command != "run"
