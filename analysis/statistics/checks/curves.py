"""Checks of the evaluations of a study's runs: does validation still improve, or is it stuck at one value?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.comparisons.correction import (
    LEVEL,
    holm,
)
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    Cell,
    arrays_by_cell,
    each_cell,
)
from lr_sweep.analysis.statistics.selection.summary import (
    StudySummary,
    points_within_budget,
)
from lr_sweep.common.text import counted

MIN_EVALUATIONS = 6
"""Fewest evaluations of a run from which a rise is tested."""
QUARTER, MIN_WINDOW = 4, 3
"""The last part of a curve is a quarter of its evaluations, and at least three."""
STILL_RISING = 0.005
"""Largest rise that counts as none, in the metric's unit."""
STUCK_EVALUATIONS = 4
"""Fewest evaluations of a cell that are not all equal by chance."""
STUCK_SHARE = 0.5
"""Share of a cell's evaluations at its highest accuracy, if that is below 100%, from which the cell is stuck. A model
that reads nothing names the commonest class, and now and then a rarer one."""


class Rise(NamedTuple):
    """Change for the better of a cell's validation over the last part of its runs."""

    size: float
    """Rise of the line through the runs' last evaluations."""
    num_steps: int
    """Steps from the first to the last of these evaluations."""
    p: float
    """P value of the hypothesis that the rise is at most `STILL_RISING`."""


def late_rises(summary: StudySummary, curves: pd.DataFrame) -> dict[Cell, Rise]:
    """Return the rise at the end of each cell whose validation clearly still improves at the chosen rate.

    Lines of one slope are fitted to the last quarter of the evaluations of the complete runs, each run at its own
    height. The error of the slope is the larger of two: from the evaluations around the lines, and from the spread of
    the runs' slopes, which includes slow changes. Holm's correction covers the cells of the study.
    """
    chosen = summary.chosen_runs
    complete = chosen[chosen["status"] == "complete"]
    points = points_within_budget(complete, curves, ["validation"]).dropna()
    means = summary.cells.set_index(CELL)["validation_mean"]
    rises: dict[Cell, Rise] = {}
    for cell, rows in each_cell(points):
        unit = 1.0 if summary.metric.is_fraction else abs(means[cell])
        runs = [run for _, run in rows.groupby("run_id", sort=False)]
        if min(map(len, runs)) >= MIN_EVALUATIONS:
            rises[cell] = _rise(runs, summary.metric, STILL_RISING * unit)
    corrected = holm(np.array([rise.p for rise in rises.values()]))
    items = zip(rises.items(), corrected, strict=True)
    return {cell: rise for (cell, rise), p in items if p < LEVEL}


def _rise(runs: list[pd.DataFrame], metric: Metric, least: float) -> Rise:
    num_points = max(MIN_WINDOW, min(map(len, runs)) // QUARTER)
    last = np.stack([run[["step", "validation"]].tail(num_points) for run in runs])
    num_steps = float(np.ptp(last[..., 0], axis=1).mean())
    x, y = np.moveaxis(last - last.mean(axis=1, keepdims=True), -1, 0)  # runs x points
    y *= metric.sign
    products = (x * y).sum(1)
    squares = (x**2).sum(1)
    slope = float(products.sum() / squares.sum())
    dof = y.size - len(runs) - 1
    residuals = y - slope * x
    error = math.sqrt((residuals**2).sum() / dof / squares.sum())
    if len(runs) > 1:
        slopes = products / squares
        sem = float(slopes.std(ddof=1)) / math.sqrt(len(runs))
        error = max(error, sem)
    excess = slope - least / num_steps
    p = float(stdtr(dof, -excess / error)) if error > 0 else float(excess <= 0)
    return Rise(slope * num_steps, round(num_steps), p)


def stuck_cells(points: pd.DataFrame, metric: Metric) -> dict[Cell, str]:
    """Describe the evaluations of each cell whose validation accuracy stays at one number; most cells do not."""
    texts: dict[Cell, str] = {}
    for cell, (values, run_ids) in arrays_by_cell(points, "validation", "run_id").items():
        if len(values) < STUCK_EVALUATIONS or np.isnan(values).all():
            continue
        best = metric.sign * float(np.nanmax(metric.sign * values))
        at_best = values == best
        num_runs = len(set(run_ids))
        in_every_run = len(set(run_ids[at_best])) == num_runs
        is_mostly = at_best.mean() >= STUCK_SHARE and in_every_run and best != metric.perfect
        if at_best.all() or is_mostly:
            where = f"{at_best.sum()} of {len(values)} evaluations of {counted(num_runs, 'run')}"
            value = metric.text(best)
            texts[cell] = f"{metric.validation} is {value} at {where}, and never {metric.better}"
    return texts
