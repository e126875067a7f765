"""Whether validation still rises at the end of training, with an error rate for the whole study."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import stdtr

from lr_sweep.analysis.statistics.comparisons.families import shaffer
from lr_sweep.analysis.statistics.comparisons.uncertainty import Floats
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, each_cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary, points_within_budget

MIN_EVALUATIONS = 6
"""Shorter curves are not tested."""
MIN_WINDOW = 3
QUARTER = 4
STILL_RISING = 0.005
"""A rise of up to this is none; of a metric that is no fraction, times the size of the cell's mean."""


@dataclass(frozen=True, kw_only=True)
class Rise:
    """The change for the better of a cell's validation over the last part of its runs."""

    size: float
    """The rise of the line through the runs' last evaluations."""
    num_steps: int
    """From the first to the last of these evaluations."""
    p: float
    """The p value of "the rise is at most `STILL_RISING`"; see `late_rises`."""


def late_rises(summary: StudySummary, curves: pd.DataFrame) -> dict[Cell, Rise]:
    """Test for each cell whether validation rises by more than `STILL_RISING` at the end, at the chosen rate.

    Read are the last quarter of the evaluations, at least `MIN_WINDOW`. Lines of one slope are fitted to the complete
    runs, each at its own height. The error of the slope is the larger of two: from the evaluations around the lines,
    and from the spread of the runs' own slopes, which includes slow changes that neighbouring evaluations share. p is
    corrected over the study's cells (Holm): of studies in which no cell rises by more, at most 5% have one below 0.05.
    """
    chosen = summary.chosen_runs
    points = points_within_budget(chosen[chosen["status"] == "complete"], curves, ["validation_accuracy"]).dropna()
    points["validation_accuracy"] *= summary.metric.sign
    cells = summary.cells.set_index(CELL)["validation_mean"]
    units = cells.abs() if not summary.metric.is_fraction else cells * 0 + 1
    least = (STILL_RISING * units).to_dict()
    lengths = points.groupby([*CELL, "run_id"]).size().groupby(CELL).min()
    long = points.join(lengths.rename("shortest"), on=CELL).query("shortest >= @MIN_EVALUATIONS")
    found = {key: _rise(rows, least[key]) for key, rows in each_cell(long)}
    corrected = shaffer(np.array([rise.p for rise in found.values()]), range(len(found)))
    return {key: replace(rise, p=float(p)) for (key, rise), p in zip(found.items(), corrected, strict=True)}


def _rise(rows: pd.DataFrame, least: float) -> Rise:
    """Fit the lines to one cell's runs."""
    by_run = [run[["step", "validation_accuracy"]].to_numpy(float) for _, run in rows.groupby("run_id", sort=False)]
    window = max(MIN_WINDOW, min(map(len, by_run)) // QUARTER)
    steps = np.stack([run[-window:, 0] for run in by_run])
    values = np.stack([run[-window:, 1] for run in by_run])
    length = float(np.mean(steps[:, -1] - steps[:, 0]))
    x = steps - steps.mean(axis=1, keepdims=True)
    y = values - values.mean(axis=1, keepdims=True)
    slope = float(np.sum(x * y) / np.sum(x**2))
    dof = y.size - len(y) - 1
    around = math.sqrt(float(np.sum((y - slope * x) ** 2)) / dof / float(np.sum(x**2)))
    error = max(around, _between_seeds(x, y))
    excess = slope - least / length
    p = float(stdtr(dof, -excess / error)) if error > 0 else float(excess <= 0)
    return Rise(size=slope * length, num_steps=round(length), p=p)


def _between_seeds(x: Floats, y: Floats) -> float:
    """Return the standard error of the mean slope from the spread of the runs' own; 0 for one run."""
    slopes = np.sum(x * y, axis=1) / np.sum(x**2, axis=1)
    return float(np.std(slopes, ddof=1)) / math.sqrt(len(slopes)) if len(slopes) > 1 else 0.0
