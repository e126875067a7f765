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
from lr_sweep.analysis.record.columns import STATUSES, Row

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
"""Significant digits by which means are compared: accuracies are ratios of counts, so a closer difference is summation
error."""
OUTCOMES = (*STATUSES, "short", "missing")
"""Outcomes of a wanted run at the study's budget."""
BOUNDING = ("diverged", "stopped")
"""Outcomes without a value that say that a learning rate is worse: it diverged, or fell behind the others."""


def labels_of(cell: Iterable[Any]) -> dict[str, str]:
    """Return the values of a cell by their columns."""
    return dict(zip(CELL, cell, strict=True))


def cell_of(row: Row) -> Cell:
    """Return task, model and variant of a row."""
    return row["task"], row["model"], row["variant"]


def tuples_in(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a frame as plain tuples."""
    return frame.itertuples(index=False, name=None)


def comparable(mean: float) -> float:
    """Round a mean before it is compared."""
    return float(f"{mean:.{MEAN_DIGITS}g}")


def rounded(means: Floats) -> Floats:
    """Round means before they are compared."""
    return np.array([comparable(mean) for mean in means.tolist()], float)


def each_cell(
    frame: pd.DataFrame,
) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """Yield each cell of a frame, in order of appearance, with its rows."""
    for key, rows in frame.groupby(CELL, sort=False):
        task, model, variant = map(str, key)
        yield (task, model, variant), rows


def arrays_by_cell(frame: pd.DataFrame, *names: str) -> dict[Cell, list[np.ndarray[Any, Any]]]:
    """Return columns of each cell of a frame, in order of appearance.

    With hundreds of cells this takes a tenth of the time of `each_cell`.
    """
    places = frame.groupby(CELL, sort=False).indices
    columns = [frame[name].to_numpy() for name in names]
    cells = tuples_in(frame[CELL].drop_duplicates())
    return {cell: [values[places[cell]] for values in columns] for cell in cells}


def rows_by_cell(frame: pd.DataFrame) -> dict[Cell, list[Row]]:
    """Return the rows of each cell of a frame, in order of appearance, as dictionaries: many small frames are slow."""
    rows_of = defaultdict[Cell, list[Row]](list)
    for row in frame.to_dict("records"):
        rows_of[cell_of(row)].append(row)
    return dict(rows_of)


def best_steps(
    curves: pd.DataFrame,
    metric: Metric = ACCURACY,
) -> pd.DataFrame:
    """Choose the evaluation that counts of each run: the best on validation data, or the last one (`metric.model`).

    Of several equally good evaluations the earliest is chosen.

    Args:
        curves: columns `run_id`, `step` and `validation`, already cut at the step budget.
        metric: the study's metric; it says which way is better, and which model of a run counts.

    Returns:
        One row a run: `run_id`, `best_step`, `validation` (fraction). Runs without a value are left out.
    """
    _refuse_test_columns(curves)
    known = curves[["run_id", "step", "validation"]].dropna()
    if metric.model == "final":
        ordered = known.sort_values(["run_id", "step"], ascending=[True, False])
    else:
        order = [True, not metric.higher_is_better, True]
        ordered = known.sort_values(["run_id", "validation", "step"], ascending=order)
    return (
        ordered.drop_duplicates("run_id")
        .rename(columns={"step": "best_step"})
        .reset_index(drop=True)
    )


def best_learning_rates(
    per_run: pd.DataFrame,
    metric: Metric = ACCURACY,
) -> pd.DataFrame:
    """Choose each cell's learning rate: the best mean over seeds of the runs' best validation accuracy.

    Eligible are the learning rates with the most seeds that have a value: all wanted seeds, unless no learning rate
    has them all; then the cell is flagged incomplete. Where runs have seeds of their own, a rate needs a value of each
    of its own runs, however many these are. Ties go to the smaller learning rate: training diverges above
    a good learning rate and only slows below it, so the smaller one is the safer to reuse.

    Args:
        per_run: one row a wanted run: the cell's columns, `learning_rate`, `seed`, `status` (of `OUTCOMES`) and
            `validation` (NaN: no value).
        metric: as of `best_steps`.

    Returns:
        One row a cell, in order of appearance: the cell's columns, `learning_rate` and `validation_mean` (NaN: no run
        has a value), `incomplete` (whether seeds of the cell have no value there), `at_edge` (`low` or `high`: the
        smallest or largest learning rate that `was_tried`, so the best may lie outside; empty: neither, or a rate
        inside is as good, or all rates are equally good).
    """
    _refuse_test_columns(per_run)
    rates = validated_rates(per_run).sort_values("learning_rate", kind="stable")
    by_cell = rows_by_cell(rates)
    cells = tuples_in(per_run[CELL].drop_duplicates())
    chosen = [(*cell, *_choose(by_cell[cell], metric)) for cell in cells]
    columns = [
        *RATE,
        "validation_mean",
        "incomplete",
        "at_edge",
    ]
    return pd.DataFrame(chosen, columns=columns)


def validated_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what validation data show of each learning rate, in order of appearance.

    Args:
        runs: as of `best_learning_rates`.

    Returns:
        The cell's columns, `learning_rate`, `num_wanted` (runs), `num_values` (seeds with a validation value),
        `validation_mean`, the number of runs of each of `OUTCOMES`, `num_seeds` (of the cell, see `seeds_of`) and
        `eligible` (may be chosen, see `are_eligible`).
    """
    outcomes = {status: runs["status"].eq(status) for status in OUTCOMES}
    by_rate = runs.assign(**outcomes).groupby(RATE, sort=False)
    rates = by_rate.agg(
        num_wanted=("seed", "size"),
        num_values=("validation", "count"),
        validation_mean=("validation", "mean"),
    )
    rates = rates.join(by_rate[list(OUTCOMES)].sum())
    rates["num_seeds"] = seeds_of(runs).astype("int64")
    rates["eligible"] = are_eligible(rates["num_values"], rates["num_seeds"], CELL)
    return rates.reset_index()


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


def are_eligible(
    counts: pd.Series[int],
    wanted: pd.Series[int],
    cells: Any,
) -> pd.Series[bool]:
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


def inner_rate(
    equal: Collection[float],
    tried: Collection[float],
) -> float:
    """Return the smallest of equally good learning rates that lies between others that were tried, else the smallest.

    The best of a sweep lies at its edge only if no rate inside is as good.
    """
    inside = [rate for rate in equal if min(tried) < rate < max(tried)]
    return min(inside or equal, default=math.nan)


def _choose(
    rates: list[Row],
    metric: Metric,
) -> tuple[float, float, bool, str]:
    """Choose among the rates of a cell, and return the last columns of `best_learning_rates`; `rates` rise."""
    tried = [row["learning_rate"] for row in rates if was_tried(row)]
    eligible = [row for row in rates if row["eligible"]]
    means = {row["learning_rate"]: comparable(row["validation_mean"]) for row in eligible}
    best = max(means, key=lambda rate: metric.sign * means[rate], default=math.nan)
    mean = means.get(best, math.nan)
    equal = [rate for rate in means if means[rate] == mean]
    is_incomplete = not any(row["num_values"] >= row["num_seeds"] for row in rates)
    edge = ""
    if len(equal) < len(tried):
        edges = {min(tried): "low", max(tried): "high"}
        edge = edges.get(inner_rate(equal, tried), "")
    return best, mean, is_incomplete, edge


def _refuse_test_columns(frame: pd.DataFrame) -> None:
    if seen := [name for name in frame.columns if str(name).startswith("test")]:
        raise ValueError(f"selection must not see test data: got columns {seen}, drop them first")
