"""Which column means what, by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.columns import Columns, columns_of
from lr_sweep.analysis.judge.names import is_higher_better, measured
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.table_file import Line, TableFile
from lr_sweep.common.errors import UserError

MLFLOW = ["", "run_id", "status", "start_time", "metrics.test_acc", "metrics.val_acc", "metrics.val_loss", "params.lr"]
RAY = ["val_acc", "test_acc", "training_iteration", "trial_id", "time_total_s", "config/lr", "config/seed", "logdir"]


def find_columns(names: Sequence[str], given: Mapping[str, str], metric: str | None) -> Columns:
    """Of a table with two rows, in which all columns differ."""
    fields = {name: [f"0.{place}1", f"0.{place}2"] for place, name in enumerate(names, 1)}
    table = TableFile(
        path=Path("t.csv"),
        sha256="",
        columns=fields,
        lines=[Line(Path("t.csv"), 2), Line(Path("t.csv"), 3)],
        decimal_comma=False,
    )
    return columns_of(table, Reading(columns=given, metric=metric))


@pytest.mark.parametrize(
    ("names", "metric", "found"),
    [
        (
            *(MLFLOW, "accuracy"),
            "learning_rate=params.lr run=run_id status=status validation=metrics.val_acc test=metrics.test_acc",
        ),
        (
            *(RAY, None),
            "learning_rate=config/lr seed=config/seed step=training_iteration run=trial_id validation=val_acc "
            "test=test_acc",
        ),
        (
            ["number", "value", "params_lr", "params_width", "state", "val_acc"],
            None,
            "learning_rate=params_lr status=state validation=val_acc",
        ),
    ],
    ids=["MLflow", "Ray", "Optuna"],
)
def test_exports_are_read_by_name(names: list[str], metric: str | None, found: str) -> None:
    result = find_columns(names, {}, metric)
    assert (result.of, result.metric) == (dict(pair.split("=") for pair in found.split()), "accuracy")


def test_test_data_of_another_metric_or_left_out_by_the_user_are_not_read() -> None:
    assert "test" not in find_columns(["lr", "val_loss", "test_acc"], {}, None).of
    assert "test" not in find_columns(["lr", "val_acc", "test_acc"], {"test": ""}, None).of


@pytest.mark.parametrize(
    ("column", "metric", "higher"),
    [
        *[("best_val_acc", "accuracy", True), ("valid_ppl", "perplexity", False), ("eval/loss", "loss", False)],
        *[("val_bleu", "bleu", True), ("val_cross_entropy", "cross entropy", False), ("val_score", "score", None)],
        ("val_neg_mean_squared_error", "neg mean squared error", None),
    ],
)
def test_the_metric_and_its_direction(column: str, metric: str, higher: bool | None) -> None:
    assert (measured(column), is_higher_better(metric)) == (metric, higher)


def test_the_metric_is_that_of_the_column_that_is_selected_on_or_shown() -> None:
    names = ["lr", "val_loss", "val_acc", "test_acc"]
    assert find_columns(names, {"test": "test_acc"}, None).of["validation"] == "val_acc"
    found = find_columns(["lr", "dev_f1", "heldout_f1"], {"test": "heldout_f1"}, None)
    assert (found.of["validation"], found.metric) == ("dev_f1", "f1")
    assert find_columns(["lr", "val_acc", "val_loss"], {"validation": "val_loss"}, None).metric == "loss"


@pytest.mark.parametrize(
    ("given", "metric", "named"),
    [
        ({"validation": "val_loss", "test": "test_acc"}, None, ("validation=val_loss", "test=test_acc")),
        ({"validation": "val_acc", "train": "train_loss"}, None, ("validation=val_acc", "train=train_loss")),
        ({"validation": "val_loss", "test": ""}, "accuracy", ("validation=val_loss", "--metric accuracy")),
        ({"validation": "val_acc", "test": "test_f1"}, None, ("validation=val_acc", "test=test_f1")),
    ],
)
def test_columns_that_contradict_are_named(given: dict[str, str], metric: str | None, named: tuple[str, str]) -> None:
    names = ["lr", "val_loss", "val_acc", "test_acc", "test_f1", "train_loss"]
    with pytest.raises(UserError) as raised:
        find_columns(names, given, metric)
    assert all(name in str(raised.value) for name in named)


def test_columns_of_one_metric_may_be_named_differently() -> None:
    names = ["lr", "val_loss", "test_nll"]
    assert find_columns(names, {"validation": "val_loss", "test": "test_nll"}, None).metric == "loss"
