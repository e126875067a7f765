"""Choose the step of each run and the learning rate of each cell, by validation data alone.

No function here takes a frame with a test column, so test data cannot select anything (Rothermel et al. 2021,
section 3 and appendix E).
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric

CELL = ["task", "model", "variant"]
"""The columns that name a cell: one entry of the main table."""

MEAN_DIGITS = 12
"""Means are compared after rounding: accuracies are ratios of counts, so a closer difference is summation error."""


def rule_text(metric: Metric, has_steps: bool = True) -> str:
    """State the selection rule, for tables and figures; without steps a run has one evaluation."""
    best, name = metric.best, metric.validation
    if not metric.chosen_on:
        return "Selection: none, as there is no validation data."
    rate = f"in each cell the learning rate with the {best} mean"
    if not has_steps:
        return f"Selection: {rate} {name} over seeds (ties: the smaller)."
    if metric.model == "final":
        return f"Selection: in each run the last step, then {rate} {name} over seeds (ties: the smaller)."
    return (
        f"Selection: in each run the step with the {best} {name} (ties: the earliest), then {rate} of that over seeds "
        "(ties: the smaller)."
    )


def best_steps(curves: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """Choose each run's evaluation with the best validation accuracy; ties: the earliest step; or the last evaluation.

    Args:
        curves: columns `run_id`, `step` and `validation_accuracy`, already cut at the step budget.
        metric: what the accuracies are, if they are none: which way is better; and which model of a run is measured.

    Returns:
        One row a run: `run_id`, `best_step`, `validation_accuracy` (fraction). Runs without a value are left out.

    Raises:
        ValueError: the frame has a test column.
    """
    _refuse_test_columns(curves)
    known = curves[["run_id", "step", "validation_accuracy"]].dropna()
    if metric.model == "final":
        ordered = known.sort_values(["run_id", "step"], ascending=[True, False])
    else:
        order = [True, not metric.higher_is_better, True]
        ordered = known.sort_values(["run_id", "validation_accuracy", "step"], ascending=order)
    return ordered.drop_duplicates("run_id").rename(columns={"step": "best_step"}).reset_index(drop=True)


def best_learning_rates(per_run: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """Choose each cell's learning rate: the best mean over seeds of the runs' best validation accuracy.

    Eligible are the learning rates with the most seeds that have a value: all wanted seeds, unless no learning rate
    has them all; then the cell is flagged incomplete. Ties go to the smaller learning rate: training diverges above
    a good learning rate and only slows below it, so the smaller one is the safer to reuse.

    Args:
        per_run: one row a wanted run: the cell's columns, `learning_rate`, `seed`, and `validation_accuracy` (NaN: no
            value).
        metric: as of `best_steps`.

    Returns:
        One row a cell, in order of appearance: the cell's columns, `learning_rate` and `validation_mean` (NaN: no run
        has a value), `runner_up` and `runner_up_mean` (second best eligible; NaN: none), `incomplete` (whether
        wanted seeds have no value there), `at_edge` (`low` or `high`: the smallest or largest learning rate wanted,
        so the best may lie outside; empty: neither, or only one was wanted).

    Raises:
        ValueError: the frame has a test column.
    """
    _refuse_test_columns(per_run)
    cells = per_run.groupby(CELL, sort=False)
    columns = [*CELL, "learning_rate", "validation_mean", "runner_up", "runner_up_mean", "incomplete", "at_edge"]
    return pd.DataFrame(
        [{**dict(zip(CELL, cell, strict=True)), **_choose(rows, metric)} for cell, rows in cells], columns=columns
    )


def _choose(rows: pd.DataFrame, metric: Metric) -> dict[str, Any]:
    rates = rows.groupby("learning_rate")["validation_accuracy"].agg(["mean", "count"])
    most = rates["count"].max()
    eligible = rates[(rates["count"] == most) & (rates["count"] > 0)]
    means = eligible["mean"].round(MEAN_DIGITS).sort_index()
    ranked = means.sort_values(ascending=not metric.higher_is_better, kind="stable")
    best, second = [*ranked.index, math.nan, math.nan][:2]
    edges = {rates.index.min(): "low", rates.index.max(): "high"}
    return {
        "learning_rate": best,
        "validation_mean": ranked.get(best, math.nan),
        "runner_up": second,
        "runner_up_mean": ranked.get(second, math.nan),
        "incomplete": bool(most < rows["seed"].nunique()),
        # Text in every case: pandas turns a None among texts into NaN, which counts as true.
        "at_edge": edges.get(best, "") if len(rates) > 1 else "",
    }


def _refuse_test_columns(frame: pd.DataFrame) -> None:
    if seen := [name for name in frame.columns if str(name).startswith("test")]:
        raise ValueError(f"selection must not see test data: got columns {seen}, drop them first")
