"""Settings that are not read are no seeds."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import Reading
from lr_sweep.common.errors import UserError
from lr_sweep.tests.analysis.judge.test_judge import chosen, study_of

GRID = "".join(
    f"{width},{drop},{rate},{i}.5,{4 + width / 128 + rate}\n"
    for i, (width, drop, rate) in enumerate(product((32, 128), (0.0, 0.4), (0.3, 0.03, 0.003)))
)


def test_settings_that_would_be_seeds_are_refused_by_name(tmp_path: Path) -> None:
    """Seconds differ as well, and are a result."""
    with pytest.raises(UserError, match="runs of one learning rate differ in width, dropout, and no column of seeds"):
        study_of(tmp_path, "width,dropout,lr,seconds,val_loss\n" + GRID)


def test_a_column_that_numbers_repeats_can_be_given(tmp_path: Path) -> None:
    text = "repeat,lr,val_loss\n0,0.1,0.5\n1,0.1,0.6\n0,0.2,0.7\n1,0.2,0.8\n"
    with pytest.raises(UserError, match="differ in repeat"):
        study_of(tmp_path, text)
    assert chosen(study_of(tmp_path, text, Reading(columns={"seed": "repeat"}))) == {"all": (0.1, 0.55)}


def test_results_that_differ_are_no_settings(tmp_path: Path) -> None:
    text = "lr,val_loss,seconds,correct,note\n0.1,0.5,7,81,x\n0.1,0.6,8,82,y\n0.2,0.7,7,83,z\n0.2,0.8,9,84,z\n"
    study = study_of(tmp_path, text)
    assert study.summary.runs["seed"].tolist() == [0, 1, 0, 1]
    assert "not read: seconds, correct, note" in study.about_table


def test_what_tells_two_runs_of_a_seed_apart_is_offered(tmp_path: Path) -> None:
    text = "gamma,lr,seed,val_acc\n0.9,0.3,0,0.1\n0.99,0.3,0,0.3\n0.9,0.03,0,0.1\n0.99,0.03,0,0.2\n"
    for table in (text, "run_id," + "".join(f"{i}x," * bool(i) + line for i, line in enumerate(text.splitlines(True)))):
        with pytest.raises(UserError, match="they differ in gamma, which is not read: .* --columns variant=gamma"):
            study_of(tmp_path, table)
    assert set(chosen(study_of(tmp_path, text, Reading(columns={"variant": "gamma"})))) == {"0.9", "0.99"}


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
