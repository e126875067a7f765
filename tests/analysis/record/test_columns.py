"""Which code trained a run: kept with checkpoints, recorded, compared."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.columns import files_text, in_range, other_versions
from lr_sweep.analysis.statistics.checks.code import code_findings
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.trainables.checkpoint import continued, newest_history, save_checkpoint

A, B = {"datasets/d.py": "1", "trainables/t.py": "1"}, {"datasets/d.py": "2", "trainables/t.py": "1"}
ENGINE_B = {"datasets/d.py": "1", "trainables/t.py": "2"}


def trained(*versions: tuple[int, dict[str, str] | None]) -> str:
    return json.dumps([{"from_step": step, "files": files} for step, files in versions])


def test_a_history_grows_where_the_code_changes() -> None:
    start = continued([], 0, A)
    assert start == [{"from_step": 0, "files": A}]
    assert continued(start, 10, A) == start
    assert continued(start, 10, B) == [*start, {"from_step": 10, "files": B}]
    assert continued(continued(start, 10, B), 10, A) == start  # nothing was trained by the version between
    assert continued(start, 0, B) == [{"from_step": 0, "files": B}]  # its checkpoints were lost
    assert continued([], 10, A) == [{"from_step": 0, "files": None}, {"from_step": 10, "files": A}]


def test_a_checkpoint_knows_the_code_that_trained_it(tmp_path: Path) -> None:
    assert newest_history(tmp_path) == []
    save_checkpoint(tmp_path, {"x": torch.zeros(1)}, {"step": 1})
    assert newest_history(tmp_path) == []
    path = save_checkpoint(tmp_path, {"x": torch.zeros(1)}, {"step": 2}, continued([], 0, A))
    assert newest_history(tmp_path) == [{"from_step": 0, "files": A}]
    path.write_bytes(path.read_bytes()[:20])
    assert newest_history(tmp_path) == []


def test_equal_checkpoints_have_equal_bytes(tmp_path: Path) -> None:
    names = {save_checkpoint(tmp_path, {"x": torch.zeros(1)}, {"step": 2}, continued([], 0, A)).name for _ in range(20)}
    assert len(names) == 1


def test_other_versions() -> None:
    assert other_versions(trained((0, A)), A.get) == set()
    assert other_versions(trained((0, A)), B.get) == {"datasets/d.py"}
    assert other_versions(trained((0, A), (10, B)), B.get) == {"datasets/d.py"}
    assert other_versions(trained((0, None), (10, A)), {}.get) == set()  # what is not known is not compared


def test_many_files_are_counted() -> None:
    assert files_text(["trainables/a.py", "datasets/b.py"]) == "datasets/b.py and trainables/a.py"
    assert files_text(f"trainables/{name}.py" for name in "dcba") == "trainables/a.py, trainables/b.py and 2 more files"


def findings(tmp_path: Path, runs: dict[str, list[str | None]], now: Any) -> list[CheckFinding]:
    """Return the findings for a study whose variants have runs of these codes, by learning rate."""
    made = SyntheticRecord(tmp_path)
    for variant, codes in runs.items():
        for index, code in enumerate(codes):
            made.want(10.0 ** -(index + 1), 0, variant=variant)
            made.end(made.wanted[-1], [(300, 0.5, 0.5)], "complete", 300, code=code)
    made.write()
    return code_findings(record.read_wanted(tmp_path, "small"), record.read_runs(tmp_path), now)


@pytest.mark.parametrize(
    ("codes", "now", "level", "message"),
    [
        ([trained((0, A))] * 2, A.get, None, ""),
        ([trained((0, A))] * 2, None, None, ""),
        ([None, None], B.get, None, ""),
        ([trained((0, A)), trained((0, A), (300, B))], A.get, None, ""),  # what came last trained nothing
        ([trained((0, A))] * 2, B.get, "note", "2 of 2 runs were trained by another version of datasets/d.py than is"),
        ([trained((0, A)), trained((0, B))], None, "problem", "trained by several versions of datasets/d.py"),
        ([trained((0, A)), trained((0, ENGINE_B))], None, "note", "trained by several versions of trainables/t.py"),
        ([trained((0, A)), trained((0, A), (9, B))], None, "problem", "trained by several versions of datasets"),
        ([trained((0, A), (9, ENGINE_B))], None, "note", "trained by several versions of trainables/t.py"),
    ],
)
def test_runs_of_several_versions(
    tmp_path: Path, codes: list[str | None], now: Any, level: str | None, message: str
) -> None:
    found = findings(tmp_path, {"frozen-random": codes}, now)
    assert [each.level for each in found] == ([] if level is None else [level])
    assert all(message in each.message and each.check == "code" for each in found)


def test_variants_trained_by_different_versions_cannot_be_compared(tmp_path: Path) -> None:
    found = findings(tmp_path, {"frozen-random": [trained((0, A))], "unfrozen-random": [trained((0, B))]}, B.get)
    assert [(each.variant, each.level) for each in found] == [
        ("frozen-random", "problem"),
        ("unfrozen-random", "problem"),
    ]
    assert "1 of 1 runs were trained by another version of datasets/d.py than is here" in found[0].message
    assert "than is here" not in found[1].message


def test_values_whose_squares_no_float_holds_are_none_or_0() -> None:
    values = [0.5, 1e-99, -1e-101, 1e-160, 1e99, 1e101, math.inf, -math.inf, math.nan]
    found = in_range(pd.DataFrame({"step": range(9), "test": values}))
    expected = [0.5, 1e-99, 0.0, 0.0, 1e99, *[math.nan] * 4]
    assert found["test"].tolist() == pytest.approx(expected, nan_ok=True, abs=0)
    assert found["step"].tolist() == list(range(9))
