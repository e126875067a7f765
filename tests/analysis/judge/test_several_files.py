"""Several files are one table: what a column means is decided of all, and what may be a setting, too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.reading import QuestionError, Reading
from lr_sweep.analysis.study_files import Study
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import chosen, judge

DECAYS = [(1e-4, 0, 0.8), (1e-4, 0.1, 0.84), (1e-3, 0, 0.9), (1e-3, 0.1, 0.86), (1e-2, 0, 0.7), (1e-2, 0.1, 0.88)]
RUNS = [{"lr": rate, "weight_decay": decay, "val_acc": value} for rate, decay, value in DECAYS]


def study_of_parts(folder: Path, runs: Sequence[Mapping[str, object]], reading: Reading | None = None) -> Study:
    """Write a file a run, and judge all by a pattern."""
    for number, run in enumerate(runs):
        (folder / f"{number}.json").write_text(json.dumps(run))
    return judge([str(folder / "*.json")], reading or Reading())


def test_a_file_a_run_is_read_as_one_file_with_all_runs(tmp_path: Path) -> None:
    parts = study_of_parts(tmp_path, RUNS)
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, RUNS)))
    assert (
        chosen(parts)
        == chosen(judge([tmp_path / "all.jsonl"], Reading()))
        == {
            "weight_decay=0": (1e-3, 0.9),
            "weight_decay=0.1": (1e-2, 0.88),
        }
    )


def test_a_setting_that_some_files_lack_is_one(tmp_path: Path) -> None:
    runs = [{"lr": rate, "optimizer": "sgd", "val_acc": 0.5 + rate} for rate in (0.1, 0.2)]
    runs += [
        {"lr": rate, "optimizer": "adam", "beta": beta, "val_acc": rate} for rate in (0.1, 0.2) for beta in (0.8, 0.9)
    ]
    with pytest.raises(QuestionError, match=r"differ in beta \(2 values\)"):
        study_of_parts(tmp_path, runs)
    found = study_of_parts(tmp_path, runs, Reading(columns={"variant": "optimizer+beta"}))
    assert set(chosen(found)) == {"sgd", "adam, beta=0.8", "adam, beta=0.9"}


def test_an_architecture_that_changes_with_the_rate_is_a_problem(tmp_path: Path) -> None:
    kinds = ((1e-4, "plain"), (9e-4, "tabm"))
    runs = [
        {"lr": rate, "seed": s, "arch_type": kind, "val_acc": (1 + s) / 4 + rate}
        for rate, kind in kinds
        for s in (0.0, 1.0)
    ]
    found = study_of_parts(tmp_path, runs)
    assert [each.level for each in found.findings if "differ in arch_type as well" in each.message] == ["problem"]


def test_seeds_of_several_columns_are_numbered_over_all_files(tmp_path: Path) -> None:
    runs = [{"lr": 0.1 * (1 + fold), "fold": fold, "split": s, "val_acc": s / 4} for fold in (0, 1) for s in (0, 1)]
    found = study_of_parts(tmp_path, runs, Reading(columns={"seed": "fold+split"}))
    assert sorted(found.summary.runs["seed"]) == [0, 1, 2, 3]


def test_a_file_without_a_column_that_is_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"1.json has other columns than .*0.json, where validation is val_acc: judge"):
        study_of_parts(tmp_path, [{"lr": 0.1, "val_acc": 0.5}, {"lr": 0.2, "val_loss": 0.5}])
