"""Choose the step of each run and the learning rate of each cell, by validation data alone.

`best_steps` and `best_learning_rates` raise ValueError for a frame with a test column, so that test data cannot select
anything (Rothermel et al. 2021, section 3 and appendix E).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.columns import Row

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
CELL = ["task", "model", "variant"]
"""The columns that name a cell: one entry of the main table."""
Cell = tuple[str, str, str]
"""Their values."""
RATE = [*CELL, "learning_rate"]
"""The columns that name a learning rate of a cell."""
CONFIDENCE = 0.95
"""Confidence of every interval."""
UPPER = (1 + CONFIDENCE) / 2
"""Quantile of the upper end of an interval."""

MEAN_DIGITS = 12
"""Means are compared after rounding: accuracies are ratios of counts, so a closer difference is summation error."""
ORDINARY = (1e-4, 1e3)
"""Sizes of means for which so many decimals are right; others are rounded to as many significant digits."""
BOUNDING = ("diverged", "stopped")
"""Outcomes without a value that say that a learning rate is worse: it diverged, or fell behind the others."""


def labels_of(cell: Iterable[Any]) -> dict[str, str]:
    """Return the values of a cell by their columns."""
    return dict(zip(CELL, cell, strict=True))


def tuples_in(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a frame as plain tuples."""
    return frame.itertuples(index=False, name=None)


def comparable(mean: float) -> float:
    """Round a mean before it is compared, by numpy's rule as in a table: Python's `round` takes other halves up."""
    return float(rounded(np.array([mean]))[0])


def rounded(means: Floats) -> Floats:
    """Round means before they are compared, of any size."""
    decimals = np.round(means, MEAN_DIGITS)
    sizes = np.abs(means)
    is_ordinary = (sizes >= ORDINARY[0]) & (sizes < ORDINARY[1])
    digits = [float(f"{mean:.{MEAN_DIGITS}g}") for mean in means[~is_ordinary].tolist()]
    decimals[~is_ordinary] = digits
    return decimals


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


def each_cell(frame: pd.DataFrame) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """Yield each cell of a frame, in order of appearance, with its rows."""
    for key, rows in frame.groupby(CELL, sort=False):
        task, model, variant = map(str, key)
        yield (task, model, variant), rows


def arrays_by_cell(frame: pd.DataFrame, *names: str) -> dict[Cell, list[np.ndarray[Any, Any]]]:
    """Return columns of each cell of a frame, in order of appearance: hundreds of cells take a tenth of `each_cell`."""
    return arrays_by(frame, CELL, *names)


def arrays_by(
    frame: pd.DataFrame, keys: list[str], *names: str
) -> dict[Any, list[np.ndarray[Any, Any]]]:
    """Return columns of each combination of keys, in order of appearance."""
    if frame.empty:
        return {}
    codes = frame.groupby(keys, sort=False).ngroup().to_numpy()
    order = codes.argsort(kind="stable")
    starts = np.flatnonzero(np.diff(codes[order])) + 1
    groups = tuples_in(frame[keys].drop_duplicates())
    columns = (np.split(frame[name].to_numpy()[order], starts) for name in names)
    return {group: arrays for group, *arrays in zip(groups, *columns, strict=True)}


def rows_by_cell(frame: pd.DataFrame) -> dict[Cell, list[Row]]:
    """Return the rows of each cell of a frame, in order of appearance: many small frames would take longest of all."""
    found = defaultdict[Cell, list[Row]](list)
    for row in frame.to_dict("records"):
        found[row["task"], row["model"], row["variant"]].append(row)
    return dict(found)


def best_steps(curves: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """Choose each run's evaluation with the best validation accuracy; ties: the earliest step; or the last evaluation.

    Args:
        curves: columns `run_id`, `step` and `validation_accuracy`, already cut at the step budget.
        metric: what the accuracies are, if they are none: which way is better; and which model of a run is measured.

    Returns:
        One row a run: `run_id`, `best_step`, `validation_accuracy` (fraction). Runs without a value are left out.
    """
    _refuse_test_columns(curves)
    known = curves[["run_id", "step", "validation_accuracy"]].dropna()
    if metric.model == "final":
        ordered = known.sort_values(["run_id", "step"], ascending=[True, False])
    else:
        order = [True, not metric.higher_is_better, True]
        ordered = known.sort_values(["run_id", "validation_accuracy", "step"], ascending=order)
    return (
        ordered.drop_duplicates("run_id")
        .rename(columns={"step": "best_step"})
        .reset_index(drop=True)
    )


def best_learning_rates(per_run: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """Choose each cell's learning rate: the best mean over seeds of the runs' best validation accuracy.

    Eligible are the learning rates with the most seeds that have a value: all wanted seeds, unless no learning rate
    has them all; then the cell is flagged incomplete. Where runs have seeds of their own, a rate needs a value of each
    of its own runs, however many these are. Ties go to the smaller learning rate: training diverges above
    a good learning rate and only slows below it, so the smaller one is the safer to reuse.

    Args:
        per_run: one row a wanted run: the cell's columns, `learning_rate`, `seed`, `status` (of `OUTCOMES`) and
            `validation_accuracy` (NaN: no value).
        metric: as of `best_steps`.

    Returns:
        One row a cell, in order of appearance: the cell's columns, `learning_rate` and `validation_mean` (NaN: no run
        has a value), `runner_up` and `runner_up_mean` (second best eligible; NaN: none), `incomplete` (whether
        seeds of the cell have no value there), `at_edge` (`low` or `high`: the smallest or largest learning rate
        that `was_tried`, so the best may lie outside; empty: neither, or a rate inside is as good, or all rates are
        equally good).
    """
    _refuse_test_columns(per_run)
    columns = [
        *CELL,
        "learning_rate",
        "validation_mean",
        "runner_up",
        "runner_up_mean",
        "incomplete",
        "at_edge",
    ]
    bounding = per_run.assign(bounding=per_run["status"].isin(BOUNDING))
    by_rate = bounding.groupby(RATE, sort=False).agg(
        mean=("validation_accuracy", "mean"),
        count=("validation_accuracy", "count"),
        bounding=("bounding", "all"),
    )
    by_rate["wanted"] = seeds_of(per_run)
    by_rate["eligible"] = are_eligible(by_rate["count"], by_rate["wanted"], CELL)
    by_rate["mean"] = rounded(by_rate["mean"].to_numpy(float))
    cells = rows_by_cell(by_rate.reset_index())
    chosen = {cell: _choose(rates, metric) for cell, rates in cells.items()}
    rows = [labels_of(cell) | choice for cell, choice in chosen.items()]
    return pd.DataFrame(rows, columns=columns)


def seeds_of(runs: pd.DataFrame) -> pd.Series[int]:
    """Return by cell and learning rate how many seeds the rate is to have: all that occur in its cell.

    Where no seed occurs at two rates, as in a table whose repeats have no numbers, each rate has its own number.
    """
    by_rate = runs.groupby(RATE, sort=False)["seed"].nunique()
    table = by_rate.rename("own").reset_index()
    of_cell = runs.groupby(CELL, sort=False)["seed"].nunique().rename("all")
    table = table.join(of_cell, on=CELL)
    has_shared = table["all"] < table.groupby(CELL)["own"].transform("sum")
    return table["all"].where(has_shared, table["own"]).set_axis(by_rate.index)


def are_eligible(counts: pd.Series[int], wanted: pd.Series[int], cells: Any) -> pd.Series[bool]:
    """Return which learning rates may be chosen: those with all wanted values or, in cells without any, with the most.

    `counts`, `wanted`: values and wanted seeds of each rate. `cells`: as of `Series.groupby`.
    """
    is_whole = counts.eq(wanted) & counts.gt(0)
    has_whole = is_whole.groupby(cells).transform("any")
    most = counts.groupby(cells).transform("max")
    return is_whole | (~has_whole & counts.eq(most) & counts.gt(0))


def was_tried(rate: Row) -> bool:
    """Return whether the runs of a row of `StudySummary.learning_rates` show how good the rate is.

    A rate without any value whose runs all ended in `BOUNDING` was tried: better rates are not beyond it. A rate whose
    runs failed or are missing was not.
    """
    if rate["num_values"]:
        return True
    return bool(sum(rate[status] for status in BOUNDING) == rate["num_wanted"])


def inner_rate(equal: Collection[float], tried: Collection[float]) -> float:
    """Return the smallest of equally good learning rates that lies between others that were tried, else the smallest.

    The best of a sweep lies at its edge only if no rate inside is as good.
    """
    inside = [rate for rate in equal if min(tried) < rate < max(tried)]
    return min(inside or equal, default=math.nan)


def _choose(rates: list[Row], metric: Metric) -> dict[str, Any]:
    """Choose among the rates of a cell, with `mean`, `count`, `wanted`, `eligible` and `bounding`."""
    rates = sorted(rates, key=lambda row: row["learning_rate"])
    tried = [row["learning_rate"] for row in rates if row["count"] or row["bounding"]]
    means = {row["learning_rate"]: row["mean"] for row in rates if row["eligible"]}
    best, second = [
        *sorted(means, key=lambda rate: -metric.sign * means[rate]),
        math.nan,
        math.nan,
    ][:2]
    equal = [rate for rate, mean in means.items() if mean == means[best]]
    edges = {min(tried, default=0.0): "low", max(tried, default=0.0): "high"}
    return {
        "learning_rate": best,
        "validation_mean": means.get(best, math.nan),
        "runner_up": second,
        "runner_up_mean": means.get(second, math.nan),
        "incomplete": all(row["count"] < row["wanted"] for row in rates),
        # Text in every case: pandas turns a None among texts into NaN, which counts as true.
        "at_edge": "" if len(equal) == len(tried) else edges.get(inner_rate(equal, tried), ""),
    }


def _refuse_test_columns(frame: pd.DataFrame) -> None:
    if seen := [name for name in frame.columns if str(name).startswith("test")]:
        raise ValueError(f"selection must not see test data: got columns {seen}, drop them first")
