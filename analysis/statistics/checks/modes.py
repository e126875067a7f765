"""Cells whose seeds fall into two modes, as where some runs get stuck: their spread is no noise around a mean."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from lr_sweep.analysis.statistics.comparisons.noise import Bools, Ints
from lr_sweep.analysis.statistics.comparisons.uncertainty import Floats
from lr_sweep.analysis.statistics.selection.best import Cell
from lr_sweep.analysis.statistics.selection.grid_values import at_chosen, cell_values
from lr_sweep.analysis.statistics.selection.summary import StudySummary

LEVEL = 0.05
"""Of studies whose runs are normally distributed at most this share has a cell with two modes."""
LEAST_GAP = 0.02
"""A smaller gap between the modes is none, in the metric's unit; of one that is no fraction, times the cell's mean."""
NUM_DRAWS, SEED = 20_000, 0
"""Of the simulation that gives the level."""


class Modes(NamedTuple):
    """The seeds of a learning rate on both sides of the widest gap between them, in the unit of the metric."""

    learning_rate: float
    low: tuple[float, ...]
    high: tuple[float, ...]


@lru_cache(maxsize=2)
def two_modes(summary: StudySummary) -> dict[Cell, Modes]:
    """Find cells whose seeds fall into two modes, at the chosen rate or one beside it.

    The widest gap between the sorted seeds of a rate is compared with the spread on its two sides, pooled over the
    three rates, and that ratio with the ratios of normal noise.
    """
    windows, cells = at_chosen(summary).windows, summary.cells
    found: dict[Cell, Modes] = {}
    if windows.shape[-1] < 3:
        return found
    wide, rows = zip(*_widest(np.sort(windows)), strict=True), cells.to_dict("records")
    for window, values, (ratio, gap, at), row in zip(windows, cell_values(summary), wide, rows, strict=True):
        unit = 1.0 if summary.metric.is_fraction else abs(row["validation_mean"])
        if gap < LEAST_GAP * unit:
            continue
        counts = tuple((~np.isnan(window)).sum(-1).tolist())
        if ratio > _limit(counts, LEVEL / len(cells)):
            centre = int(np.flatnonzero(values.rates == row["learning_rate"])[0])
            rate = centre + (0, -1, 1)[at]
            found[row["task"], row["model"], row["variant"]] = _split(float(values.rates[rate]), window[at])
    return found


def _widest(ordered: Floats) -> tuple[Floats, Floats, Ints]:
    """Return the widest gap over the spread beside it, the gap, and the index of its rate.

    `ordered`: ... x rates x seeds, rising along seeds, NaN last. Rates with fewer than three seeds have no spread.
    """
    num_seeds = (~np.isnan(ordered)).sum(-1)
    gaps = np.where(num_seeds[..., None] > 2, np.nan_to_num(np.diff(ordered), nan=0.0), 0.0)
    split = gaps.argmax(-1)
    upper = np.arange(ordered.shape[-1]) > split[..., None]
    squares = _squares(ordered, ~upper) + _squares(ordered, upper)
    dof = np.maximum(num_seeds - 2, 0).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(np.where(num_seeds > 2, squares, 0.0).sum(-1) / dof)
        gap = gaps.max(-1)
        return np.nan_to_num(gap.max(-1) / spread, nan=0.0, posinf=math.inf), gap.max(-1), gap.argmax(-1)


def _squares(values: Floats, chosen: Bools) -> Floats:
    """Return the sum of squares of the chosen values around their mean, along the last axis."""
    kept = np.where(chosen & ~np.isnan(values), values, 0.0)
    number = np.maximum((chosen & ~np.isnan(values)).sum(-1), 1)
    squares: Floats = (kept**2).sum(-1) - kept.sum(-1) ** 2 / number
    return np.maximum(squares, 0.0)


@cache
def _limit(counts: tuple[int, ...], level: float) -> float:
    """Return the ratio that normal noise exceeds with a probability, for so many seeds at each rate."""
    if max(counts, default=0) < 3:
        return math.inf
    drawn = np.random.default_rng(SEED).normal(size=(NUM_DRAWS, len(counts), max(counts)))
    drawn[:, np.arange(drawn.shape[-1]) >= np.array(counts)[:, None]] = np.nan
    return float(np.quantile(_widest(np.sort(drawn))[0], 1 - level))


def _split(rate: float, values: Floats) -> Modes:
    rising = np.sort(values[~np.isnan(values)])
    at = int(np.diff(rising).argmax()) + 1
    return Modes(rate, tuple(rising[:at].tolist()), tuple(rising[at:].tolist()))
