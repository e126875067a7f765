"""`judge --target`: tables in which variants reach a loss of 3 at known steps."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.statistics.comparisons.target import compare_steps
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.api import judge
from lr_sweep.tests.support.judged import rows_of, study_of

HEAD = "optimizer,seed,step,val_loss,device,time_s,tokens"


def table_of(slower: str = "H100") -> str:
    """The first optimizer is there at step 100, the second at 200; its steps take a quarter of the time."""
    rows = []
    for name, at, seconds, device in (("a", 100, 2.0, "H100"), ("b", 200, 0.5, slower)):
        for seed, off in enumerate((-0.01, 0.0, 0.01)):
            for step in range(20, 301, 20):
                loss = 3 - 0.3 * math.log(step / at) + off
                rows.append(f"{name},{seed},{step},{loss:.6f},{device},{step * seconds},{step * 512}")
    return rows_of(HEAD, rows)


@pytest.mark.parametrize(("by", "steps"), [("", [100, 200]), ("tokens", [51_200, 102_400]), ("time_s", [100, 200])])
def test_units(tmp_path: Path, by: str, steps: list[float]) -> None:
    study = study_of(tmp_path, table_of(), Reading(target=3.0, by=by))
    found = compare_steps(study.summary, study.curves, study.per_step)
    assert found is not None
    assert list(found.cells["variant"]) == (["b", "a"] if by == "time_s" else ["a", "b"])
    assert list(found.cells["steps"]) == pytest.approx(steps, rel=1e-4)


def test_times_need_one_device(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="which is A100, H100: count steps"):
        study_of(tmp_path, table_of("A100"), Reading(target=3.0, by="time_s"))
    with pytest.raises(UserError, match="unknown column 'flops'"):
        study_of(tmp_path, table_of(), Reading(target=3.0, by="flops"))


def test_runs_in_two_folders_are_two_variants(tmp_path: Path) -> None:
    for name, at in (("fast", 100), ("slow", 200)):
        (tmp_path / name).mkdir()
        for seed, off in enumerate((-0.01, 0.01)):
            losses = ((step, 3 - 0.3 * math.log(step / at) + off) for step in range(20, 301, 20))
            lines = [f"step:{step}/300 val_loss:{loss:.5f} train_time:{step}s" for step, loss in losses]
            (tmp_path / name / f"{seed}.txt").write_text("\n".join(["import torch", *lines, ""]))
    columns = {"variant": "folder", "seed": "file"}
    found = judge(tmp_path / "fast", tmp_path / "slow", columns=columns, target=3.0)
    steps = found.steps_to_target()
    assert steps is not None
    assert steps.pairs[["variant", "other"]].to_numpy().tolist() == [["fast", "slow"]]
    report = " ".join(found.report(tmp_path / "out").text.split())
    assert "fast reaches validation loss 3 first, in 100 steps" in report


def test_a_column_a_step(tmp_path: Path) -> None:
    rows = ["0,3.2,3.05,2.9", "1,3.22,3.06,2.92", "2,3.21,3.07,2.91"]
    reading = Reading(columns={"validation": "step *", "step": "names.2"}, higher_is_better=False, target=3.0)
    study = study_of(tmp_path, rows_of("seed,step 100,step 110,step 120", rows), reading)
    found = compare_steps(study.summary, study.curves)
    assert found is not None
    assert found.means["step"].tolist() == [100, 110, 120]
    assert found.cells["certain_step"].tolist() == [120]
