"""Runs that are there twice count once, with a remark; seeds that are equal by chance stay seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.study_files import Study
from lr_sweep.tests.support.judged import judge, rows_of, study_of

CURVE = [0.5, 0.625, 0.75, 0.875]


def num_runs(study: Study) -> tuple[int, bool]:
    """Return how many runs there are, and whether any was left out."""
    return len(study.summary.runs), any("a repeat is no further seed" in line for line in study.about_table)


@pytest.mark.parametrize(
    ("head", "rows", "found"),
    [
        ("run_id,lr,seed,val_acc", "a,0.1,0,0.5 b,0.1,0,0.5 c,0.2,0,0.6 d,0.2,1,0.6", (3, True)),
        ("lr,seed,val_acc", "0.1,0,0.5 0.1,0,0.5", (1, True)),
        ("lr,seed,step,val_acc", "0.1,0,1,0.5 0.1,0,2,0.6 0.1,0,1,0.5 0.1,0,2,0.6", (1, True)),
        ("lr,seed,val_acc", "0.1,0,0.5 0.1,1,0.5", (2, False)),
        ("lr,val_acc", "0.1,0.5 0.1,0.5 0.2,0.6 0.2,0.6 0.3,0.7", (3, True)),
        ("lr,val_acc", "0.1,0.5 0.1,0.5 0.2,0.6 0.2,0.7", (4, False)),
        ("lr,val_acc", "0.1,0.5 0.1,0.5 0.2,nan 0.2,nan 0.3,0.6 0.3,0.6", (3, True)),
        ("lr,val_acc", "0.1,nan 0.1,nan 0.2,0.6 0.2,0.7", (4, False)),
    ],
    ids=["ids", "rows", "evaluations", "seeds", "all twice", "by chance", "diverged twice", "both diverged"],
)
def test_what_is_there_twice(tmp_path: Path, head: str, rows: str, found: tuple[int, bool]) -> None:
    assert num_runs(study_of(tmp_path, rows_of(head, rows))) == found


def test_a_whole_curve_is_equal_by_no_chance(tmp_path: Path) -> None:
    rows = [f"{run},0.1,{step},{value + 0.01 * (run == 'c')}" for run in "abc" for step, value in enumerate(CURVE)]
    assert num_runs(study_of(tmp_path, rows_of("run_id,lr,step,val_acc", rows))) == (2, True)
    flat = rows_of("run_id,lr,step,val_acc", [f"{run},0.1,{step},0.1" for run in "ab" for step in range(4)])
    other = "".join(f"{run},0.2,{step},{0.3 + (run == 'c') / 8}\n" for run in "cd" for step in range(4))
    assert num_runs(study_of(tmp_path, flat + other)) == (4, False)  # two that learned nothing, and two that did


def test_a_multirun_of_hydra_that_was_run_twice(tmp_path: Path) -> None:
    """One seed, which no job overrode."""
    for hour, (job, rate) in ((hour, each) for hour in (10, 11) for each in enumerate((0.1, 0.01))):
        folder = tmp_path / f"{hour}-00-00" / str(job)
        (folder / ".hydra").mkdir(parents=True)
        (folder / ".hydra" / "config.yaml").write_text(f"lr: {rate}\nseed: 0\n")
        (folder / "metrics.json").write_text(json.dumps({"val_acc": 0.7 + rate}))
    found = judge([tmp_path], Reading())
    assert num_runs(found) == (2, True)
    assert "seed = config.seed" in found.about_table[0]
