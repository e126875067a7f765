"""Our entries of the papers' tables: numbers of runs at the chosen learning rates, and published ones beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.cells import accuracy_text, lost_text, marks_of, seeds_text
from lr_sweep.analysis.report.numbers import MINUS
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, cell_of, comparable, labels_of
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary, points_within_budget
from lr_sweep.common.text import NO_VALUE, percent_text

from . import published as theirs
from .published import Entry

REFERENCE = "frozen-pretrained"
"""The variant that the others have to match."""
NEAR = 0.01
"""A run has converged where its validation accuracy is this close to the best of its curve, as a fraction."""
NEVER = "-"
"""Never matched, as the paper writes it."""
AT_END = {
    theirs.TRAIN_AT_END: "train_at_end",
    theirs.TEST_AT_END: "test_at_end",
    theirs.TRAIN_MINUS_TEST_AT_END: "difference_at_end",
}
AT_BEST = {theirs.TRAIN: "train", theirs.TRAIN_MINUS_TEST: "gap"}
"""Columns of `our_numbers`, by metric."""
Numbers = Mapping[Cell, Row]
"""Rows of `our_numbers` by cell."""


class Number(NamedTuple):
    """An entry of our table."""

    text: str
    value: float = math.nan
    """The number in the unit of the published value; NaN: none."""


def our_numbers(summary: StudySummary, curves: pd.DataFrame) -> Numbers:
    """Return the cells of a study with all numbers of the papers; `curves` have `run_id`, `step` and the accuracies."""
    parameters = summary.runs.groupby(CELL)["trained_parameters"].first().astype(float)
    converged = steps_to_converge(summary, curves).rename("converged")
    numbers = summary.cells.set_index(CELL).join(
        [
            parameters,
            converged,
            train_accuracies(summary, curves),
            steps_to_match(summary, curves).set_index(CELL),
            accuracies_at_budget(summary, curves).set_index(CELL),
        ]
    )
    return {cell_of(row): row for row in numbers.reset_index().to_dict("records")}


def entry(metric: str, cell: Cell, numbers: Numbers) -> Number | None:
    """Return an entry of our table; None: the study has nothing of it."""
    row = numbers.get(cell)
    if row is None:
        return None
    if metric == theirs.PARAMETERS:
        count = row["trained_parameters"]
        return None if math.isnan(count) else Number(f"{count:,.0f}", count)
    if metric == theirs.SPEEDUP:
        random = numbers.get((*cell[:2], "frozen-random"), {})
        ratio = random.get("converged", math.nan) / row["converged"]
        return None if math.isnan(ratio) else Number(f"{ratio:.2g}×", ratio)
    return _measured(metric, row) if row["num_values"] else Number(lost_text(row))


def _measured(metric: str, row: Row) -> Number:
    marked = seeds_text(row) + marks_of(row)
    if metric == theirs.TEST:
        return Number(accuracy_text(row), 100 * row["test_mean"])
    if metric == theirs.STEPS:
        return Number(steps_text(row["converged"]) + marked, row["converged"])
    if metric == theirs.STEPS_TO_MATCH:
        if math.isnan(row["target"]):
            return Number(f"{NO_VALUE} (no {REFERENCE} to match)")
        return Number(steps_text(row["steps"]) + marked, row["steps"])
    if metric in AT_END:
        if math.isnan(row["num_at_budget"]):
            return Number(f"{NO_VALUE} (no seed reached the budget)")
        share = row[AT_END[metric]]
        seeds = seeds_text(row, int(row["num_at_budget"]))
        return Number(percent_text(share) + seeds + marks_of(row), 100 * share)
    name = AT_BEST[metric]
    mean, sem = row[name], row[f"{name}_sem"]
    return Number(ACCURACY.mean_text(mean, sem) + marked, 100 * mean)


def published_text(there: Entry, here: float) -> str:
    """Write a published value as printed, with how much ours is above it where the two can be compared."""
    value, metric = there.number, there.metric
    if metric == theirs.STEPS_TO_MATCH:
        return steps_text(value) + _above(value, here, 0)
    if metric == theirs.STEPS:
        return budget_text(value)
    if metric == theirs.SPEEDUP:
        return f"{there.value}×"
    if metric == theirs.PARAMETERS:
        return f"{value:,.0f}"
    return there.value + (f" ± {there.sem}" if there.sem else "") + _above(value, here, 1)


def steps_text(steps: float) -> str:
    """Write gradient steps as the paper does, `1.9×10⁵`; below 10,000 in full; `-` for never (NaN)."""
    if math.isnan(steps):
        return NEVER
    if steps < 10_000:
        return f"{steps:.0f}"
    mantissa, exponent = f"{steps:.1e}".split("e")
    return _power_text(mantissa, exponent)


def budget_text(steps: float) -> str:
    """Write a budget as the paper does, `3×10⁵`, where two digits say it exactly; otherwise in full."""
    mantissa, exponent = f"{steps:.1e}".split("e")
    if steps < 10_000 or float(f"{steps:.1e}") != steps:
        return f"{steps:.0f}"
    return _power_text(mantissa.removesuffix(".0"), exponent)


def _power_text(mantissa: str, exponent: str) -> str:
    raised = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
    return f"{mantissa}×10{str(int(exponent)).translate(raised)}"


def _above(there: float, here: float, digits: int) -> str:
    """Write with its sign how much ours is above a published number; empty: one of the two is missing."""
    difference = round(here - there, digits) + 0.0  # no -0.0
    if math.isnan(difference):
        return ""
    return f" ({difference:+.{digits}f})".replace("-", MINUS)


def steps_to_match(summary: StudySummary, curves: pd.DataFrame) -> pd.DataFrame:
    """Count the gradient steps until a cell is as good as the frozen pretrained one (Rothermel et al. 2021, Table 2).

    The paper does not say how the other side is read. Here it is what Table 1 would have reported had the budget ended
    there: the mean over seeds of the test accuracy of each run's best model by validation so far, at the chosen rate.

    Returns one row a cell that has a value: its columns, `target` (fraction; NaN: the reference has no value) and
    `steps` (gradient steps; NaN: never within the budget, or no target).
    """
    of_reference = summary.cells[summary.cells["variant"] == REFERENCE]
    reference = of_reference.set_index(GROUP)["test_mean"]
    rows = []
    for cell, points in _reported_so_far(summary, curves).groupby(CELL, sort=False):
        by_run = points.pivot(index="step", columns="run_id", values="test").ffill()
        means = by_run.mean(axis=1, skipna=False).map(comparable)
        target = reference.get(cell[:2], math.nan)
        reached = means.index[means >= comparable(target)]
        steps = float(reached[0]) if len(reached) else math.nan
        rows.append({**labels_of(cell), "target": target, "steps": steps})
    return pd.DataFrame(rows, columns=[*CELL, "target", "steps"])


def accuracies_at_budget(summary: StudySummary, curves: pd.DataFrame) -> pd.DataFrame:
    """Average train and test accuracy over the seeds that reached the last step (Rothermel et al. 2021, Table 3).

    Returns one row a cell that has such seeds: its columns, `train_at_end`, `test_at_end` and `difference_at_end`
    (fractions; train less test) and `num_at_budget` (seeds).
    """
    counted = _counted(summary)
    complete = counted[counted["status"] == "complete"].rename(columns={"num_steps": "step"})
    last = complete[["run_id", "step", *CELL]].merge(curves, on=["run_id", "step"])
    means = last.groupby(CELL, sort=False).agg(
        train_at_end=("train", "mean"),
        test_at_end=("test", _mean_of_all),
        num_at_budget=("run_id", "size"),
    )
    difference = means["train_at_end"] - means["test_at_end"]
    return means.assign(difference_at_end=difference).reset_index()


def steps_to_converge(summary: StudySummary, curves: pd.DataFrame) -> pd.Series:
    """Average over seeds the steps until each run is within `NEAR` of its best (Lu et al. 2021, table 6), by cell.

    The paper does not say how it read theirs. Diverged runs count with what they had before.
    """
    known = curves.dropna(subset=["validation"])
    points = points_within_budget(_counted(summary), known, ["validation"])
    best = points.groupby("run_id")["validation"].transform("max")
    # 1e-9: 0.71 - 0.01 is not 0.70 in floating point.
    near = points[points["validation"] >= best - NEAR - 1e-9]
    return near.groupby([*CELL, "run_id"])["step"].min().groupby(CELL).mean()


def train_accuracies(summary: StudySummary, curves: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds the train accuracy of each run's best model by validation, and what it is above test.

    Returns, by cell, the fractions `train`, `train_sem`, `gap` (train less test) and `gap_sem`.
    """
    train = curves[["run_id", "step", "train"]].rename(columns={"step": "best_step"})
    train = train.astype({"best_step": "Int64"})
    runs = _counted(summary).merge(train, on=["run_id", "best_step"])
    runs["gap"] = runs["train"] - runs["test"]
    return runs.groupby(CELL).agg(
        train=("train", "mean"),
        train_sem=("train", "sem"),
        gap=("gap", "mean"),
        gap_sem=("gap", "sem"),
    )


def _counted(summary: StudySummary) -> pd.DataFrame:
    return summary.chosen_runs.dropna(subset=["best_step"])


def _mean_of_all(values: pd.Series[float]) -> float:
    """NaN where a run was not evaluated on test at its last step (`test_evaluated: best`)."""
    return float(values.mean(skipna=False))


def _reported_so_far(summary: StudySummary, curves: pd.DataFrame) -> pd.DataFrame:
    known = curves.dropna(subset=["validation"])
    points = points_within_budget(_counted(summary), known, ["validation", "test"])
    run, validation = points["run_id"], points["validation"]
    before = validation.groupby(run).cummax().groupby(run).shift()
    improved = before.isna() | validation.gt(before)  # ties: the earliest, as in selection
    reported = points["test"].where(improved).groupby(run).ffill()
    return points.assign(test=reported)
