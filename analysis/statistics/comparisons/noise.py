"""The test values of each cell, learning rates x seeds, and the noise of a run at one of its rates.

Three seeds say little of their variance. Nine runs at three neighbouring rates say more, since the
noise of training changes slowly with the rate. So the noise of fewer than `ENOUGH_SEEDS` seeds is
pooled with that of the neighbouring rates. Variants are never pooled: a frozen and a fully trained
body are not equally noisy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
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
from lr_sweep.analysis.statistics.selection.summary import (
    StudySummary,
    computed_once,
)

NO_SPREAD = 1e-9
"""Standard deviation, as a share of the values, up to which it is rounding: all seeds have one value."""
WINDOW = 3
"""Learning rates of a window: the one that is compared first, then its two neighbours."""
ENOUGH_SEEDS = 5
"""Least number of seeds whose noise is not pooled with that of the neighbouring rates."""
NOISIER_THAN_CELL, NOISIER_THAN_STUDY = 0.02, 0.03
"""Levels of the two F tests by which a neighbouring rate is too noisy to be pooled."""
RUN = ("learning_rate", "seed", "test")
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
    total_dof = (dof * is_pooled).sum(-1)
    pooled_dof = np.where(dof[..., 0] > 0, total_dof, 0.0)
    with undefined_is_nan():
        own = squares[..., 0] / dof[..., 0]
        variance = np.fmax(own, (squares * is_pooled).sum(-1) / pooled_dof)
    return Noise(np.where(pooled_dof > 0, variance, np.nan), pooled_dof)


def spread(values: Floats) -> tuple[Floats, Floats]:
    """Return the sum of squared distances from the mean, and its degrees of freedom.

    `values`: ... x seeds. A sum that is only rounding is 0.
    """
    counts = num_known(values)
    known = np.nan_to_num(values)
    with undefined_is_nan():
        means = known.sum(-1) / counts
    squares = np.nansum((values - means[..., None]) ** 2, -1)
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
        own = variance[..., :1]
        own_dof = dof[..., :1]
        known = np.where(own > 0, own, 0.0)
        total = known.sum(-2, keepdims=True)
        share = known / total
        mean = total / (known > 0).sum(-2, keepdims=True)
        mean_dof = 1 / np.nansum(share**2 / own_dof, -2, keepdims=True)
        neighbour = variance[..., 1:]
        neighbour_dof = dof[..., 1:]
        p_of_cell = fdtrc(neighbour_dof, own_dof, neighbour / own)
        p_of_study = fdtrc(neighbour_dof, mean_dof, neighbour / mean)
    return (p_of_cell < NOISIER_THAN_CELL) & (p_of_study < NOISIER_THAN_STUDY)


def welch(
    noise: Noise, counts: Floats, first: Ints | int, second: Ints | int
) -> tuple[Floats, Floats]:
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
        total = squares[..., first] + squares[..., second]
        total = np.where(total > 0, total, np.nan)
        share = squares[..., first] / total  # the squares of the squares may overflow
        of_first = share**2 / noise.dof[..., first]
        of_second = (1 - share) ** 2 / noise.dof[..., second]
        return np.sqrt(total), 1 / (of_first + of_second)


class CellValues(NamedTuple):
    """Values of a cell on one split; seeds of one column are the same at all rates."""

    rates: Floats
    """Rising."""
    values: Floats
    """Rates x seeds; NaN: none."""

    @classmethod
    def of(cls, rates: Floats, seeds: Ints, values: Floats) -> CellValues:
        """Arrange the values of a cell's runs, a column for each seed of the cell."""
        rising, row = np.unique(rates, return_inverse=True)
        all_seeds, column = np.unique(seeds, return_inverse=True)
        arranged = np.full((len(rising), len(all_seeds)), math.nan)
        arranged[row, column] = values
        return cls(rising, arranged)

    def window(self, rate: float, num_seeds: int) -> Floats:
        """Return the values at a rate and at its neighbours, `WINDOW` x seeds; NaN: none."""
        num_lacking = num_seeds - self.values.shape[1]
        padded = np.pad(
            self.values,
            ((1, 1), (0, num_lacking)),
            constant_values=math.nan,
        )
        if rate not in self.rates:
            return np.full((WINDOW, num_seeds), math.nan)
        at = np.searchsorted(self.rates, rate) + 1
        window: Floats = padded[[at, at - 1, at + 1]]
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
        """Means over these seeds; NaN: a cell without values."""
        with undefined_is_nan():
            return np.nansum(self.values, -1) / self.counts


def sampled(cells: Sequence[CellValues], rates: Iterable[float]) -> Sampled:
    """Return the values of each cell at one learning rate each.

    A cell has no values at NaN, or at a rate that it did not try.
    """
    num_seeds = max((cell.values.shape[1] for cell in cells), default=0)
    pairs = zip(cells, rates, strict=True)
    windows = [cell.window(rate, num_seeds) for cell, rate in pairs]
    stacked = np.array(windows).reshape(len(windows), WINDOW, num_seeds)
    return Sampled(stacked[:, 0], cell_noise(stacked))


@computed_once
def cell_values(summary: StudySummary) -> list[CellValues]:
    """Return the test values of the runs that choose, in the order of `StudySummary.cells`."""
    runs = arrays_by_cell(summary.runs, *RUN)
    return [CellValues.of(*runs[cell]) for cell in tuples_in(summary.cells[CELL])]


@computed_once
def at_chosen(summary: StudySummary) -> Sampled:
    """Return the values of each cell at its chosen learning rate: of fresh seeds, if it has these."""
    rates = summary.cells["learning_rate"].to_numpy(float)
    if summary.fresh is None:
        return sampled(cell_values(summary), rates)
    runs = arrays_by_cell(summary.chosen_runs, *RUN)
    no_runs = [np.empty(0)] * len(RUN)
    cells = tuples_in(summary.cells[CELL])
    return sampled(
        [CellValues.of(*runs.get(cell, no_runs)) for cell in cells],
        rates,
    )
