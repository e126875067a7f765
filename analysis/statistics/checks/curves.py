"""Checks of the evaluations of a study's runs: still improving, stuck, the same as another's, or blind to the rate."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr
from scipy.stats import sem

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.comparisons.correction import LEVEL, holm
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    Cell,
    Floats,
    arrays_by,
    arrays_by_cell,
    each_cell,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary, points_within_budget

MIN_EVALUATIONS = 6
"""Fewest evaluations of a run from which a rise is tested."""
QUARTER, MIN_WINDOW = 4, 3
"""Divisor of a run's evaluations, and fewest evaluations, that the last part of its curve has."""
STILL_RISING = 0.005
"""Largest rise that counts as none, in the metric's unit."""
STUCK_EVALUATIONS = 4
"""Fewest evaluations of a cell that are not all equal by chance."""
STUCK_SHARE = 0.5
"""Least share of a cell's evaluations that have its highest accuracy, below 100%, if the cell is stuck: as of a model
that reads nothing and names one class, now and then a rarer one."""
LEAST_EQUAL = 5
"""Fewest different validation values that runs at two rates share if the rate has no effect: fewer may be equal by
chance, and runs at the smallest rates, which learn nothing, have one."""
ACCURACIES = ["train_accuracy", "validation_accuracy", "test_accuracy"]
"""Columns of an evaluation that `identical_cells` and `ignored_rates` compare."""


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
    points = points_within_budget(complete, curves, ["validation_accuracy"]).dropna()
    means = summary.cells.set_index(CELL)["validation_mean"]
    rises: dict[Cell, Rise] = {}
    for cell, rows in each_cell(points):
        unit = 1.0 if summary.metric.is_fraction else abs(means[cell])
        runs = [run for _, run in rows.groupby("run_id", sort=False)]
        if min(map(len, runs)) >= MIN_EVALUATIONS:
            rises[cell] = _rise(runs, summary.metric, STILL_RISING * unit)
    corrected = holm(np.array([rise.p for rise in rises.values()]))
    is_clear = dict(zip(rises, corrected < LEVEL, strict=True))
    return {cell: rise for cell, rise in rises.items() if is_clear[cell]}


def _rise(runs: list[pd.DataFrame], metric: Metric, least: float) -> Rise:
    window = max(MIN_WINDOW, min(map(len, runs)) // QUARTER)
    last = np.stack([run[["step", "validation_accuracy"]].tail(window) for run in runs])
    x, y = np.moveaxis(last - last.mean(axis=1, keepdims=True), -1, 0)
    y *= metric.sign
    length = float(np.ptp(last[..., 0], axis=1).mean())
    products, squares = (x * y).sum(1), (x**2).sum(1)
    slope = float(products.sum() / squares.sum())
    num_free = y.size - len(y) - 1
    around = math.sqrt(((y - slope * x) ** 2).sum() / num_free / squares.sum())
    slopes = products / squares
    error = max(around, float(sem(slopes)) if len(slopes) > 1 else 0.0)
    excess = slope - least / length
    p = float(stdtr(num_free, -excess / error)) if error > 0 else float(excess <= 0)
    return Rise(slope * length, round(length), p)


def stuck_cells(points: pd.DataFrame, metric: Metric) -> dict[Cell, str]:
    """Describe the evaluations of each cell whose validation accuracy stays at one number; most cells do not."""
    found: dict[Cell, str] = {}
    for cell, (values, ids) in arrays_by_cell(points, "validation_accuracy", "run_id").items():
        number, num_runs = len(values), len(set(ids))
        if number < STUCK_EVALUATIONS or np.isnan(values).all():
            continue
        top = metric.sign * float(np.nanmax(metric.sign * values))
        at_top = values == top
        is_constant = bool(at_top.all())
        in_every_run = len(set(ids[at_top])) == num_runs
        is_mostly = at_top.mean() >= STUCK_SHARE and in_every_run and top != metric.perfect
        if is_constant or is_mostly:
            where = f"all {number}" if is_constant else f"{at_top.sum()} of {number}"
            never = "" if is_constant else f", and never {metric.better}"
            runs = f"{num_runs} run{'s' if num_runs > 1 else ''}{never}"
            found[cell] = (
                f"{metric.validation} is {metric.text(top)} at {where} evaluations of its {runs}"
            )
    return found


def identical_cells(points: pd.DataFrame) -> dict[Cell, Cell]:
    """Return for each cell the first of its task with the same evaluations, of other runs; most cells have none."""
    found: dict[Cell, Cell] = {}
    first: dict[tuple[str, bytes], tuple[Cell, set[str]]] = {}
    columns = ("learning_rate", "seed", "step", *ACCURACIES)
    for cell, (run_ids, *rows) in arrays_by_cell(points, "run_id", *columns).items():
        values, ids = np.array(rows, float), set(run_ids)
        held_out = values[-2:]
        is_trivial = np.isin(held_out[~np.isnan(held_out)], (0.0, 1.0)).all()
        if len(run_ids) < 2 or is_trivial:
            continue  # a single number, or runs that have all right, may agree by chance
        earlier, theirs = first.setdefault((cell[0], values.tobytes()), (cell, ids))
        if not ids & theirs:  # a study may have two names for one model
            found[cell] = earlier
    return found


def ignored_rates(points: pd.DataFrame) -> dict[Cell, list[float]]:
    """Return the learning rates of each cell at which runs of one seed have the same evaluations; most have none."""
    alike = defaultdict[Any, list[tuple[float, Floats]]](list)
    columns = ("seed", "learning_rate", "step", *ACCURACIES)
    by_run = arrays_by(points, [*CELL, "run_id"], *columns)
    for (*cell, _), (seeds, rates, *rows) in by_run.items():
        numbers = np.array(rows, float)
        run = float(rates[0]), numbers[2]
        alike[*cell, seeds[0], numbers.tobytes()].append(run)
    repeated = defaultdict[Cell, list[tuple[float, Floats]]](list)
    for (task, model, variant, *_), runs in alike.items():
        if len(runs) > 1:
            repeated[task, model, variant] += runs
    found: dict[Cell, list[float]] = {}
    for cell, runs in repeated.items():
        tried, validations = zip(*runs, strict=True)
        num_values = len(np.unique(np.concatenate(validations)))
        if len(set(tried)) > 1 and num_values >= LEAST_EQUAL:
            found[cell] = sorted(set(tried))
    return found
