"""Rows of a table as runs: which count, which diverged, which are one; settings that are not read are no seeds."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.study_files import Study
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import chosen, judge, rows_of, study_of


def test_a_value_behind_nan_does_not_count(tmp_path: Path) -> None:
    """At 0.3 there is none before it; at 0.1 the one before counts, 0.7, and not 0.1."""
    rows = "0.3,0,1,nan 0.3,0,2,0.40 0.1,0,1,0.7 0.1,0,2,inf 0.1,0,3,0.1 0.03,0,1,0.90 0.03,0,2,0.80"
    study = study_of(tmp_path, rows_of("lr,seed,step,val_loss", rows))
    assert study.summary.runs["status"].tolist() == ["diverged", "diverged", "complete"]
    assert chosen(study) == {"all": (0.1, 0.7)}


LOSSES = rows_of(
    "lr,seed,val_loss,val_acc",
    "30,0,nan,0.99 30,1,nan,0.10 0.03,0,0.5,0.80 0.03,1,0.5,0.81 0.003,0,0.7,0.70 0.003,1,0.7,0.71",
)


def test_a_loss_of_nan_beside_the_metric_is_divergence(tmp_path: Path) -> None:
    for name in ("val_loss", "train_loss"):
        study = study_of(tmp_path, LOSSES.replace("val_loss", name))
        assert study.summary.runs["status"].tolist() == ["diverged"] * 2 + ["complete"] * 4
        assert chosen(study) == {"all": (0.03, 0.805)}
        assert f"2 runs diverged by {name}, which is NaN to their end" in study.about_table


def test_a_loss_of_nan_is_divergence_without_a_value_of_the_metric_too(tmp_path: Path) -> None:
    """In a row of its own, or as the run's only row; an empty loss says nothing."""
    study = study_of(tmp_path, LOSSES.replace("nan,0.99", "nan,").replace("nan,0.10", "NaN,"))
    assert study.summary.runs["status"].tolist() == ["diverged"] * 2 + ["complete"] * 4
    lost = "lr,seed,val_loss,val_acc\n30,0,,\n0.3,0,0.5,0.8\n0.03,0,0.5,0.8\n"
    assert study_of(tmp_path, lost).summary.runs["status"].tolist() == ["missing", "complete", "complete"]
    rows = ["0.1,0,1,0.9,", "0.1,0,2,,0.5", "0.1,0,3,nan,", "0.1,0,4,,0.1", "0.2,0,1,0.9,", "0.2,0,2,,0.6"]
    found = study_of(tmp_path, rows_of("lr,seed,step,train_loss,val_acc", rows))
    assert found.summary.runs[["status", "best_step"]].to_numpy().tolist() == [["diverged", 2], ["complete", 2]]


def test_a_loss_that_was_not_measured_is_no_divergence(tmp_path: Path) -> None:
    """In most runs, or at the first evaluation alone."""
    text = LOSSES.replace(",0.5,", ",nan,")
    study = study_of(tmp_path, text, Reading(metric="accuracy"))
    assert set(study.summary.runs["status"]) == {"complete"}
    assert "val_loss is NaN at the end of 4 of 6 runs: not read as a sign of divergence" in study.about_table
    steps = "lr,seed,step,train_loss,val_acc\n0.1,0,0,nan,0.1\n0.1,0,1,0.5,0.7\n"
    assert study_of(tmp_path, steps, Reading(metric="accuracy")).summary.runs["status"].tolist() == ["complete"]


def test_rows_of_training_and_of_validation_are_one(tmp_path: Path) -> None:
    """And a training loss behind the last evaluation is no reason to miss an evaluation there."""
    rows = ["0.3,0,99,0.9,", "0.3,0,99,,1.0", "0.3,0,120,0.9,", "0.03,0,99,,0.6", "0.03,0,99,0.5,"]
    study = study_of(tmp_path, "\n".join(["lr,seed,step,train_loss,val_loss", *rows, ""]))
    assert study.summary.runs[["status", "best_step"]].to_numpy().tolist() == [["complete", 99]] * 2
    assert chosen(study) == {"all": (0.03, 0.6)}


def test_two_values_of_one_step_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="table.csv:3: has the task table"):
        study_of(tmp_path, "lr,seed,step,val_loss\n0.3,0,99,0.9\n0.3,0,99,0.8\n")


def test_learning_rates_of_six_and_of_more_digits_are_one(tmp_path: Path) -> None:
    for one, other, text in (
        ("0.000976563", "0.0009765625", "9.76563e-4 as 9.76562e-4"),
        ("0.00195313", "0.001953125", "1.95313e-3 as 1.95312e-3"),
    ):
        table = f"lr,seed,val_loss\n{one},1,0.52\n{other},0,0.50\n0.03125,0,0.60\n0.03125,1,0.62\n"
        study = study_of(tmp_path, table)
        assert study.summary.learning_rates["num_values"].tolist() == [2, 2]
        assert f"learning rates that differ in their sixth digit are one: {text}" in study.about_table


def test_failed_runs_have_no_value_without_validation_either(tmp_path: Path) -> None:
    text = "lr,seed,state,test_acc\n0.1,0,finished,0.5\n0.1,1,crashed,0.9\n"
    assert study_of(tmp_path, text).summary.learning_rates["test_mean"].tolist() == [0.5]


GRID = "".join(
    f"{width},{drop},{rate},{i}.5,{4 + width / 128 + rate}\n"
    for i, (width, drop, rate) in enumerate(product((32, 128), (0.0, 0.4), (0.3, 0.03, 0.003)))
)


def test_settings_that_would_be_seeds_are_refused_by_name(tmp_path: Path) -> None:
    """Seconds differ as well, and are a result."""
    with pytest.raises(
        UserError, match=r"runs of one learning rate differ in width \(2 values\), dropout \(2 values\)"
    ):
        study_of(tmp_path, "width,dropout,lr,seconds,val_loss\n" + GRID)


def test_results_that_differ_are_no_settings(tmp_path: Path) -> None:
    text = "lr,val_loss,seconds,correct,note\n0.1,0.5,7,81,x\n0.1,0.6,8,82,y\n0.2,0.7,7,83,z\n0.2,0.8,9,84,z\n"
    study = study_of(tmp_path, text)
    assert study.summary.runs["seed"].tolist() == [0, 1, 0, 1]
    assert "not used: seconds (3 values), correct (4 values), note (3 values)" in study.about_table[0]


def test_what_tells_two_runs_of_a_seed_apart_is_compared(tmp_path: Path) -> None:
    text = "gamma,lr,seed,val_acc\n0.9,0.3,0,0.1\n0.99,0.3,0,0.3\n0.9,0.03,0,0.1\n0.99,0.03,0,0.2\n"
    for table in (text, "run_id," + "".join(f"{i}x," * bool(i) + line for i, line in enumerate(text.splitlines(True)))):
        assert set(chosen(study_of(tmp_path, table))) == {"gamma=0.9", "gamma=0.99"}
    assert set(chosen(study_of(tmp_path, text, Reading(columns={"variant": "gamma"})))) == {"gamma=0.9", "gamma=0.99"}


def test_a_setting_that_differs_between_seeds_is_a_problem(tmp_path: Path) -> None:
    """Of the two, the data's seed follows from the seed, and the batch does not."""
    rows = ["8,10,0,0.5", "16,11,1,0.6", "16,10,0,0.7", "8,11,1,0.8"]
    lines = [f"{0.1 if i < 2 else 0.2},{row}" for i, row in enumerate(rows)]
    study = study_of(tmp_path, "\n".join(["params.lr,params.batch,params.data_seed,seed,val_loss", *lines, ""]))
    (found,) = [each for each in study.findings if each.check == "settings"]
    assert (found.level, found.message.partition(" besides")[0]) == (
        "problem",
        "runs of one learning rate differ in params.batch",
    )


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
