"""Checks that are tests with an error rate for the whole study: late rises of validation, and seeds in two modes.

Where some runs get stuck and others do not, the spread of the seeds is no noise around a mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr

from lr_sweep.analysis.statistics.comparisons.correction import holm
from lr_sweep.analysis.statistics.comparisons.noise import (
    cell_values,
    num_known,
    undefined_is_nan,
)
from lr_sweep.analysis.statistics.selection.best import CELL, Bools, Cell, Floats, Ints, each_cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary, points_within_budget

MIN_EVALUATIONS = 6
"""Shorter curves are not tested."""
MIN_WINDOW = 3
QUARTER = 4
STILL_RISING = 0.005
"""A rise of up to this is none; of a metric that is no fraction, times the size of the cell's mean."""
LEVEL = 0.05
"""Largest share of studies of normally distributed runs that have a cell with two modes."""
LEAST_GAP = 0.02
"""A smaller gap between the modes is none, in the metric's unit; of one that is no fraction, times the cell's mean."""
NUM_DRAWS, SEED = 20_000, 0
"""Drawn cells, and the seed, of the simulation that gives the level."""
MOST_CELLS = 8
"""Cells of a drawn study at most: with more, the noise of the rates is known as well."""
EXPLODED = 1e4
"""Ratio of the variances of a rate and the chosen one from which on its runs explode, and say nothing of modes."""
LEAST_NOISE = 0.1
"""Least variance of a rate, as a share of that of the three: values that are rounded may be equal by chance."""


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
    points = points_within_budget(
        chosen[chosen["status"] == "complete"], curves, ["validation_accuracy"]
    ).dropna()
    points["validation_accuracy"] *= summary.metric.sign
    cells = summary.cells.set_index(CELL)["validation_mean"]
    units = cells.abs() if not summary.metric.is_fraction else cells * 0 + 1
    least = (STILL_RISING * units).to_dict()
    lengths = points.groupby([*CELL, "run_id"]).size().groupby(CELL).min()
    long = points.join(lengths.rename("shortest"), on=CELL).query("shortest >= @MIN_EVALUATIONS")
    found = {key: _rise(rows, least[key]) for key, rows in each_cell(long)}
    corrected = holm(np.array([rise.p for rise in found.values()]))
    return {
        key: replace(rise, p=float(p))
        for (key, rise), p in zip(found.items(), corrected, strict=True)
    }


def _rise(rows: pd.DataFrame, least: float) -> Rise:
    by_run = [
        run[["step", "validation_accuracy"]].to_numpy(float)
        for _, run in rows.groupby("run_id", sort=False)
    ]
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


class Modes(NamedTuple):
    """The seeds of a learning rate on both sides of the widest gap between them, in the unit of the metric."""

    learning_rate: float
    low: tuple[float, ...]
    high: tuple[float, ...]


@lru_cache(maxsize=2)
def two_modes(summary: StudySummary) -> dict[Cell, Modes]:
    """Find cells whose seeds fall into two modes, at the chosen rate or one beside it.

    The widest gap between the sorted seeds of a rate is compared with the spread on its two sides, pooled over the
    three rates, and that ratio with the ratios of normal noise. How noise differs between the three rates, as where it
    grows with the rate, is learned from all cells.
    """
    cells, of_cells = summary.cells, cell_values(summary)
    most = max((cell.values.shape[1] for cell in of_cells), default=0)
    windows = np.array(
        [c.window(r, most) for c, r in zip(of_cells, cells["learning_rate"], strict=True)]
    )
    found: dict[Cell, Modes] = {}
    if windows.shape[-1] < 3:
        return found
    wide, rows = zip(*_widest(np.sort(windows)), strict=True), cells.to_dict("records")
    for window, values, (ratio, gap, at), row in zip(
        windows, cell_values(summary), wide, rows, strict=True
    ):
        unit = 1.0 if summary.metric.is_fraction else abs(row["validation_mean"])
        if gap < LEAST_GAP * unit:
            continue
        counts = tuple(num_known(window).tolist())
        if ratio > _limit(counts, min(len(cells), MOST_CELLS), LEVEL / len(cells)):
            centre = int(np.flatnonzero(values.rates == row["learning_rate"])[0])
            rate = centre + (0, -1, 1)[at]
            found[row["task"], row["model"], row["variant"]] = _split(
                float(values.rates[rate]), window[at]
            )
    return found


def _widest(ordered: Floats) -> tuple[Floats, Floats, Ints]:
    """Return the widest gap over the spread beside it, the gap, and the index of its rate.

    Rates with fewer than three seeds have no spread, and those where runs explode are left out.

    `ordered`: ... x cells x rates x seeds, rising along seeds, NaN last; the chosen rate first.
    """
    num_seeds = num_known(ordered)
    gaps = np.nan_to_num(np.diff(ordered), nan=0.0)
    upper = np.arange(ordered.shape[-1]) > gaps.argmax(-1)[..., None]
    squares = _squares(ordered, ~upper) + _squares(ordered, upper)
    counted = (num_seeds > 2) & ((squares <= EXPLODED * squares[..., :1]) | (squares[..., :1] == 0))
    squares, dof, gap = (
        np.where(counted, each, 0.0) for each in (squares, num_seeds - 2.0, gaps.max(-1))
    )
    with undefined_is_nan():
        share, equal = (
            np.nansum(each / each.sum(-1, keepdims=True), -2, keepdims=True)
            for each in (squares, dof)
        )
        noise = np.maximum(
            np.nan_to_num(share / equal, nan=1.0), LEAST_NOISE
        )  # of each rate, with a mean near 1
        spread = np.sqrt(
            noise * (squares / noise).sum(-1, keepdims=True) / dof.sum(-1, keepdims=True)
        )
        ratio = np.nan_to_num(gap / spread, nan=0.0, posinf=math.inf)
    at = ratio.argmax(-1)
    return ratio.max(-1), np.take_along_axis(gap, at[..., None], -1)[..., 0], at


def _squares(values: Floats, chosen: Bools) -> Floats:
    """Return the sum of squares of the chosen values around their mean, along the last axis."""
    kept = np.where(chosen & ~np.isnan(values), values, 0.0)
    number = np.maximum((chosen & ~np.isnan(values)).sum(-1), 1)
    squares: Floats = (kept**2).sum(-1) - kept.sum(-1) ** 2 / number
    return np.maximum(squares, 0.0)


@cache
def _limit(counts: tuple[int, ...], num_cells: int, level: float) -> float:
    """Return the ratio that normal noise exceeds with a probability, for so many seeds at each rate, and cells."""
    if max(counts, default=0) < 3:
        return math.inf
    shape = (NUM_DRAWS // num_cells, num_cells, len(counts), max(counts))
    drawn = np.random.default_rng(SEED).normal(size=shape)
    drawn[..., np.arange(drawn.shape[-1]) >= np.array(counts)[:, None]] = np.nan
    return float(np.quantile(_widest(np.sort(drawn))[0], 1 - level))


def _split(rate: float, values: Floats) -> Modes:
    rising = np.sort(values[~np.isnan(values)])
    at = int(np.diff(rising).argmax()) + 1
    return Modes(rate, tuple(rising[:at].tolist()), tuple(rising[at:].tolist()))
