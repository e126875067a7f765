"""A results directory that version 0.1.0 left half trained is resumed, reported and verified, bit for bit.

`tests/earlier_record` was recorded at commit 881659a: `results` as an interrupted sweep left it (one run complete, 3
at checkpoints, of either engine), and in `expected.json` what that commit made of it with each engine. Another CPU or
another torch rounds otherwise: there, what was recorded before the interruption must be equal, and the rest close.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from lr_sweep.tests.support.tiny_study import ROOT, curves, in_process, rows, sweep

EARLIER = ROOT / "tests" / "earlier_record"
EXPECTED = json.loads((EARLIER / "expected.json").read_text())
NUM_STEPS = 60


pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module", params=["plain", "stacked"])
def resumed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The earlier results directory after `run` with an engine."""
    folder = tmp_path_factory.mktemp(request.param)
    results = shutil.copytree(EARLIER / "results", folder / "results")
    code, output = sweep("run", EARLIER / request.param / "tiny.yaml", "--results", results, "--cpus", "1")
    assert code == 0, output
    return request.param, results


def checksum(folder: Path) -> str:
    """The sha256 of a run's trained tensors, best tensors and Adam's moments."""
    (file,) = folder.glob("*.safetensors")
    found = hashlib.sha256()
    for name, tensor in sorted(load_file(file).items()):
        found.update(name.encode())
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def same_machine(results: Path) -> bool:
    """Return whether this machine rounds as the one that recorded the expected numbers."""
    new = next(row for row in rows(results).values() if row["started_at"] is not None)
    return bool(new["device"] == EXPECTED["device"] and json.loads(new["versions"])["torch"] == EXPECTED["torch"])


def test_the_record_is_what_the_earlier_version_made_of_it(resumed: tuple[str, Path]) -> None:
    engine, results = resumed
    expected: dict[str, Any] = EXPECTED["engines"][engine]
    found, points = rows(results), curves(results)
    assert found.keys() == points.keys() == expected.keys()  # run ids are unchanged
    exact = same_machine(results)
    for run_id, wanted in expected.items():
        row = {name: None if pd.isna(found[run_id][name]) else found[run_id][name] for name in wanted["row"]}
        curve = [{key: value for key, value in point.items() if key != "run_id"} for point in points[run_id]]
        if exact:
            assert (row, curve) == (wanted["row"], wanted["curve"]), run_id
            assert checksum(results / "checkpoints" / run_id) == wanted["tensors"], run_id
            continue
        assert row["content"] == wanted["row"]["content"]
        assert [point["step"] for point in curve] == list(range(10, NUM_STEPS + 1, 10))
        recorded = len(pq.read_table(EARLIER / "results" / "curves" / f"{run_id}.parquet"))
        assert curve[:recorded] == wanted["curve"][:recorded]
        assert [p["train_loss"] for p in curve] == pytest.approx([p["train_loss"] for p in wanted["curve"]], rel=1e-3)


def test_its_files_have_the_same_columns_and_later_ones_after_them(resumed: tuple[str, Path]) -> None:
    _, results = resumed
    files = {"runs": results / "runs", "curves": results / "curves", "wanted": results / "studies" / "tiny"}
    for kind, folder in files.items():
        file = next(folder.glob("wanted.parquet" if kind == "wanted" else "*.parquet"))
        found = [[field.name, str(field.type)] for field in pq.read_schema(file)]
        earlier = EXPECTED["columns"][kind]
        assert found[: len(earlier)] == earlier
        later = {"runs": ["stopped_at_step"], "curves": [], "wanted": ["options"]}
        assert [name for name, _ in found[len(earlier) :]] == later[kind]


@pytest.mark.parametrize("command", ["verify", "status", "report", "run"])
def test_it_is_reported_and_verified(resumed: tuple[str, Path], command: str) -> None:
    engine, results = resumed
    study = [] if command == "verify" else [EARLIER / engine / "tiny.yaml"]
    code, output = in_process(command, *study, "--results", results)
    assert code == 0, output
    assert "nothing to train" in output or command != "run"
