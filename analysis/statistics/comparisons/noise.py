"""The test values of each cell, learning rates x seeds, and the noise of a run at one of its rates.

Three seeds say little of their variance. Nine runs at three neighbouring rates say more, since the
noise of training changes slowly with the rate. So the noise of fewer than `ENOUGH_SEEDS` seeds is
pooled with that of the neighbouring rates. Variants are never pooled: a frozen and a fully trained
body are not equally noisy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc

from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    Bools,
    Floats,
    Ints,
    arrays_by_cell,
    tuples_in,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary

NO_SPREAD = 1e-9
"""Largest share of the values that a standard deviation has if all seeds have one value: rounding."""
WINDOW = 3
"""Learning rates of a window: the one that is compared first, then its two neighbours."""
ENOUGH_SEEDS = 5
"""Least number of seeds whose noise is not pooled with that of the neighbouring rates."""
NOISIER_THAN_CELL, NOISIER_THAN_STUDY = 0.02, 0.03
"""Levels of the two F tests by which a neighbouring rate is too noisy to be pooled."""
RUN = ("learning_rate", "seed", "test_accuracy")
"""Columns of `StudySummary.runs`."""
undefined_is_nan = partial(np.errstate, invalid="ignore", divide="ignore")
"""Context in which 0 / 0, and the like, makes no warning."""


def num_known(values: Floats) -> Ints:
    """Count the values that are not NaN, along the last axis."""
    counts: Ints = (~np.isnan(values)).sum(-1)
    return counts


class Noise(NamedTuple):
    """The variance of a run, and what it rests on; one entry a cell."""

    variance: Floats
    """In the square of the values' unit; NaN: unknown."""
    dof: Floats
    """Degrees of freedom; 0: unknown."""


def cell_noise(values: Floats) -> Noise:
    """Estimate the noise of each cell of a study from runs at one rate and at its neighbours.

    It is at least the noise of the rate itself, which may be noisier than its neighbours.

    Args:
        values: ... x cells x `WINDOW` x seeds; NaN: no run, or no such rate.
    """
    squares, dof = spread(values)
    is_pooled = np.ones(dof.shape, bool)
    is_few = num_known(values[..., :1, :]) < ENOUGH_SEEDS
    has_spread = squares[..., 1:] > 0  # models that only guess show no noise
    is_pooled[..., 1:] = is_few & has_spread & ~_is_noisier(squares, dof)
    pooled_dof = np.where(dof[..., 0] > 0, (dof * is_pooled).sum(-1), 0.0)
    with undefined_is_nan():
        own = squares[..., 0] / dof[..., 0]
        variance = np.fmax(own, (squares * is_pooled).sum(-1) / pooled_dof)
    return Noise(np.where(pooled_dof > 0, variance, np.nan), pooled_dof)


def spread(values: Floats) -> tuple[Floats, Floats]:
    """Return the sum of squared distances from the mean, and its degrees of freedom.

    `values`: ... x seeds. A sum that is only rounding is 0.
    """
    is_known, counts = ~np.isnan(values), num_known(values)
    known = np.where(is_known, values, 0.0)
    with undefined_is_nan():
        means = known.sum(-1) / counts
        squares = (np.where(is_known, values - means[..., None], 0.0) ** 2).sum(-1)
    largest = np.abs(known).max(-1, initial=0.0)
    squares = np.where(np.sqrt(squares) > NO_SPREAD * largest, squares, 0.0)
    return squares, np.maximum(counts - 1.0, 0.0)


def _is_noisier(squares: Floats, dof: Floats) -> Bools:
    """Return which neighbours are noisier than the rate itself, and than the rates of the study.

    Where runs fall into two modes, all runs at a rate may be in one of them by chance, and its
    neighbours show the true noise. Then the same rate of other cells shows it, too, so both F tests
    are needed. The mean of the study's variances, of which each has a share s of the sum and f
    degrees of freedom, has 1 / sum of (s^2 / f) degrees of freedom (Satterthwaite 1946).
    """
    with undefined_is_nan():
        variance = squares / dof
        own, own_dof = variance[..., :1], dof[..., :1]
        known = np.where(own > 0, own, 0.0)
        share = known / known.sum(-2, keepdims=True)
        mean = known.sum(-2, keepdims=True) / (known > 0).sum(-2, keepdims=True)
        mean_dof = 1 / np.nansum(share**2 / own_dof, -2, keepdims=True)
        beside, beside_dof = variance[..., 1:], dof[..., 1:]
        above_own = fdtrc(beside_dof, own_dof, beside / own) < NOISIER_THAN_CELL
        above_mean = fdtrc(beside_dof, mean_dof, beside / mean) < NOISIER_THAN_STUDY
    return above_own & above_mean


def welch(noise: Noise, counts: Floats, first: Ints, second: Ints) -> tuple[Floats, Floats]:
    """Return the standard errors of differences of means and their degrees of freedom (Welch 1947).

    NaN: the noise of a cell is unknown, or neither of the two cells has any spread.

    Args:
        noise: of each cell, ... x cells.
        counts: seeds of each cell's mean, ... x cells.
        first: index of each pair's first cell.
        second: index of its second cell.
    """
    with undefined_is_nan():
        squares = noise.variance / counts
        ones, others = squares[..., first], squares[..., second]
        total = np.where(ones + others > 0, ones + others, np.nan)
        share = ones / total  # the squares of the squares may overflow
        inverse = share**2 / noise.dof[..., first] + (1 - share) ** 2 / noise.dof[..., second]
        return np.sqrt(total), 1 / inverse


class CellValues(NamedTuple):
    """Values of a cell on one split; seeds of one column are the same at all rates."""

    rates: Floats
    """Rising."""
    values: Floats
    """Rates x seeds; NaN: none."""

    @classmethod
    def of(cls, rates: Floats, seeds: Ints, values: Floats) -> CellValues:
        """Arrange the values of a cell's runs, a column for each seed of the cell."""
        rows, i = np.unique(rates, return_inverse=True)
        ordered, j = np.unique(seeds, return_inverse=True)
        arranged = np.full((len(rows), len(ordered)), math.nan)
        arranged[i, j] = values
        return cls(rows, arranged)

    def window(self, rate: float, num_seeds: int) -> Floats:
        """Return the values at a rate and at its neighbours, `WINDOW` x seeds; NaN: none."""
        window = np.full((WINDOW, num_seeds), math.nan)
        for index in np.flatnonzero(self.rates == rate).tolist():
            for row, neighbour in enumerate((index, index - 1, index + 1)):
                if 0 <= neighbour < len(self.rates):
                    window[row, : self.values.shape[1]] = self.values[neighbour]
        return window


class Sampled(NamedTuple):
    """The values of cells at one rate each, and their noise."""

    values: Floats
    """Cells x seeds; NaN: none."""
    noise: Noise

    @property
    def counts(self) -> Floats:
        """Seeds with a value."""
        return num_known(self.values).astype(float)

    @property
    def means(self) -> Floats:
        """Over these; NaN: none has."""
        with undefined_is_nan():
            return np.nansum(self.values, -1) / self.counts


def sampled(cells: Sequence[CellValues], rates: Iterable[float]) -> Sampled:
    """Return the values of each cell at one of its rates; NaN, or a rate that it lacks: none."""
    num_seeds = max((cell.values.shape[1] for cell in cells), default=0)
    windows = [cell.window(rate, num_seeds) for cell, rate in zip(cells, rates, strict=True)]
    stacked = np.array(windows).reshape(len(windows), WINDOW, num_seeds)
    return Sampled(stacked[:, 0], cell_noise(stacked))


@lru_cache(maxsize=2)
def cell_values(summary: StudySummary) -> list[CellValues]:
    """Return the test values of the runs that choose, in the order of `StudySummary.cells`."""
    runs = arrays_by_cell(summary.runs, *RUN)
    return [CellValues.of(*runs[cell]) for cell in tuples_in(summary.cells[CELL])]


@lru_cache(maxsize=2)
def at_chosen(summary: StudySummary) -> Sampled:
    """Return the values of each cell at its chosen learning rate: of fresh seeds, if it has these."""
    values = cell_values(summary)
    if summary.fresh is not None:
        runs, none = arrays_by_cell(summary.chosen_runs, *RUN), [np.empty(0)] * len(RUN)
        values = [CellValues.of(*runs.get(cell, none)) for cell in tuples_in(summary.cells[CELL])]
    return sampled(values, summary.cells["learning_rate"].to_numpy(float))
