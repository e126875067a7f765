"""The values of each cell, learning rates x seeds, and the noise of a run, learned from a rate and the two beside it.

Three seeds say little of their variance; nine runs at three neighbouring rates say more, as the noise of training
changes slowly with the rate. Variants are never pooled: a frozen and a fully trained body are not equally noisy.
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
"""A standard error below this share of the values is rounding: all seeds have one value."""
ONE: Floats = np.ones(())
WINDOW = 3
"""Learning rates that a cell's noise is learned from: the chosen one first, then its neighbours."""
NOISIER_THAN_CELL, NOISIER_THAN_STUDY = 0.02, 0.03
"""Levels of the F tests by which a rate beside the chosen one is left out as too noisy: both must find it so."""
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
    size: Floats = ONE
    """Size of the largest value at the rate itself."""

    def pooled_with(self, other: Noise) -> Noise:
        """Pool with the noise of other runs of the same cells."""
        dof = self.dof + other.dof
        sums = [np.where(each.dof > 0, each.variance * each.dof, 0.0) for each in (self, other)]
        return Noise((sums[0] + sums[1]) / dof, dof, np.fmax(self.size, other.size))


class Spread(NamedTuple):
    """How the seeds of each rate lie around their mean; ... x cells x `WINDOW`, the chosen rate first."""

    known: Bools
    """x seeds: which have a value."""
    away: Floats
    """x seeds: distance from the mean; 0: no value."""
    squares: Floats
    """Sum of the squared distances; 0 if they are rounding."""
    dof: Floats
    """Degrees of freedom; 0 at rates beside the chosen one without any spread."""
    sizes: Floats
    """Of the largest value."""

    @classmethod
    def of(cls, values: Floats, sizes: Floats | None = None) -> Spread:
        """Measure the spread of values; arguments as of `cell_noise`."""
        known = ~np.isnan(values)
        counts = known.sum(-1)
        dof = np.maximum(counts - 1.0, 0.0)
        of_rates = (
            np.abs(np.where(known, values, 0.0)).max(-1, initial=0.0)
            if sizes is None
            else sizes[..., None]
        )
        with undefined_is_nan():
            means = np.where(known, values, 0.0).sum(-1) / counts
            away = np.where(known, values - means[..., None], 0.0)
            squares = (away**2).sum(-1)
            squares *= np.sqrt(squares) > NO_SPREAD * of_rates
        dof[..., 1:] *= squares[..., 1:] > 0
        return cls(known, away, squares, dof, of_rates)


def cell_noise(values: Floats, sizes: Floats | None = None) -> Noise:
    """Learn the noise of each cell of a study from runs at its chosen rate and the rates beside it.

    The variance is pooled over the rates, and at least that of the chosen one. Rates beside it without any spread, as
    of models that guess, tell nothing. Three corrections are learned from the whole study, as one cell's seeds say too
    little:

    - Rates beside it that are clearly noisier, as where some runs collapse, are left out (`_is_noisier`).
    - Where chosen rates are noisier than the rates beside them, the variances of the latter are multiplied by the ratio
      (`_ratio`).
    - Where the seeds of the rates are correlated, as by a common initialisation, k rates with f degrees of freedom in
      all have f / (1 + (k - 1) r^2): the variance of the mean of k correlated sample variances. Seeds that are
      all in one of two modes at every rate show no noise: the variance is at least r^4 times the mean of all cells. The
      fourth power leaves a small r, which is chance, without effect. Two seeds are in one mode so often that the
      variance is at least the median of all cells, of two cells the smaller one.

    Args:
        values: ... x cells x `WINDOW` x seeds; the chosen rate first; NaN: no run, or no such rate.
        sizes: of the largest value that each cell rests on; None: of those here.
    """
    found = Spread.of(values, sizes)
    with undefined_is_nan():
        kept = ~_is_noisier(found.squares, found.dof)
        squares, dof, known = found.squares * kept, found.dof * kept, found.known & kept[..., None]
        own = squares[..., 0] / dof[..., 0]
        beside = squares[..., 1:].sum(-1) * _ratio(squares, dof)
        variance = np.fmax(own, (squares[..., 0] + beside) / dof.sum(-1))
        mean, weighted = _correlations(found.away, squares, known)
        spread, num_rates = dof[..., 0] > 0, (dof > 0).sum(-1)
        of_all = np.where(spread, variance, 0.0).sum(-1, keepdims=True) / spread.sum(
            -1, keepdims=True
        )
        free = dof.sum(-1) / (1 + (num_rates - 1) * mean**2)
        ordered = np.sort(np.where(spread, variance, np.nan), axis=-1)
        median = np.take_along_axis(
            ordered, np.maximum(spread.sum(-1, keepdims=True) - 1, 0) // 2, -1
        )
        floored = np.fmax(
            variance, np.fmax(weighted**4 * of_all, np.where(dof[..., 0] == 1, median, 0.0))
        )
    return Noise(
        np.where(spread, floored, np.nan), np.where(spread, free, 0.0), found.sizes[..., 0]
    )


def welch(noise: Noise, counts: Floats | Ints, first: Ints, second: Ints) -> tuple[Floats, Floats]:
    """Return the standard errors of differences of means and their degrees of freedom (Welch 1947).

    NaN where nothing is known of the noise: a cell has none, or neither of two has any spread.

    Args:
        noise: of each cell, ... x cells.
        counts: seeds of each cell's mean.
        first: index of each pair's first cell.
        second: of its second cell.
    """
    with undefined_is_nan():
        squares = noise.variance / counts
        ones, others = squares[..., first], squares[..., second]
        sem = np.sqrt(ones + others)
        share = ones / (ones + others)  # the squares' own squares may overflow
        dof = 1 / (share**2 / noise.dof[..., first] + (1 - share) ** 2 / noise.dof[..., second])
    sizes = np.broadcast_to(noise.size, noise.variance.shape)
    known = sem > NO_SPREAD * np.maximum(sizes[..., first], sizes[..., second])
    return np.where(known, sem, np.nan), np.where(known, dof, np.nan)


def quiet_neighbours(values: Floats) -> tuple[float, float]:
    """Return how many times as noisy the chosen rates of a study are as the rates beside them, and p of an F test.

    Every cell counts alike, however noisy it is: its sums of squares are divided by their total.

    Args:
        values: cells x `WINDOW` x seeds, as for `cell_noise`.

    Returns:
        The ratio of the standard deviations, and p; NaN and 1 if nothing can be compared.
    """
    found = Spread.of(values)
    with undefined_is_nan():
        shares = np.nan_to_num(found.squares / found.squares.sum(-1, keepdims=True))
        dof = np.where(shares > 0, found.dof, 0.0)
        own, beside = (shares[:, at].sum() / dof[:, at].sum() for at in (slice(1), slice(1, None)))
        p = fdtrc(dof[:, 0].sum(), dof[:, 1:].sum(), own / beside)
    return float(np.sqrt(own / beside)), float(np.nan_to_num(p, nan=1.0))


def _is_noisier(squares: Floats, dof: Floats) -> Bools:
    """Return which rates are noisier than the quieter ones of their cell, and than the chosen rates of the study.

    Where runs fall into two modes, all runs at a chosen rate may be in one of them by chance, and a rate beside it
    shows the noise of the cell. Then the chosen rates of other cells show it, too. So both are F tests, the second
    with the mean of the study's variances; of shares s with f degrees of freedom each it has 1 / sum of (s^2 / f)
    (Satterthwaite 1946).
    """
    variance = squares / dof
    own = np.nan_to_num(variance[..., 0])
    total = own.sum(-1, keepdims=True)
    mean = total / (own > 0).sum(-1, keepdims=True)
    of_mean = 1 / np.where(own > 0, (own / total) ** 2 / dof[..., 0], 0.0).sum(-1, keepdims=True)
    above = variance[..., 1:] > variance[..., :0:-1]  # than the rate on the other side
    quieter, of_quieter = (
        each[..., :1] + np.where(above, each[..., :0:-1], 0.0) for each in (squares, dof)
    )
    noisier = (
        fdtrc(dof[..., 1:], of_quieter, variance[..., 1:] / (quieter / of_quieter))
        < NOISIER_THAN_CELL
    )
    noisier &= (
        fdtrc(dof[..., 1:], of_mean[..., None], variance[..., 1:] / mean[..., None])
        < NOISIER_THAN_STUDY
    )
    noisier |= above & noisier[..., ::-1]
    return np.concatenate([np.zeros_like(noisier[..., :1]), noisier], axis=-1)


def _ratio(squares: Floats, dof: Floats) -> Floats:
    """Return by how much the chosen rates' variances exceed their neighbours', over the cells of a study; at least 1.

    Compared are the shares of the chosen rate in the sum of squares, with those expected of equal noise: unlike the
    mean ratio they are bounded, and defined where some seeds are equal.
    """
    total, of_all = squares.sum(-1), dof.sum(-1)
    counted = (total > 0) & (dof[..., 0] > 0) & (of_all > dof[..., 0])
    found = np.where(counted, squares[..., 0] / total, 0.0).sum(-1)
    equal = np.where(counted, dof[..., 0] / of_all, 0.0).sum(-1)
    number = counted.sum(-1)
    ratio = (found / (number - found)) / (equal / (number - equal))
    return np.where(number > 0, np.fmax(ratio, 1.0), 1.0)[..., None]


def _correlations(away: Floats, squares: Floats, known: np.ndarray) -> tuple[Floats, Floats]:
    """Return the correlation of seeds between two rates of a cell, over the cells of a study; at least 0.

    The first is the mean over cells. In the second noisy cells count more: where seeds fall into two modes, cells of
    one mode show no correlation.
    """
    total = number = shared = whole = np.zeros(away.shape[:-3])
    for one, other in ((0, 1), (0, 2), (1, 2)):
        scale = np.sqrt(squares[..., one]) * np.sqrt(
            squares[..., other]
        )  # their product may overflow
        paired = ((known[..., one, :] & known[..., other, :]).sum(-1) > 1) & (scale > 0)
        product = (away[..., one, :] * away[..., other, :]).sum(-1)
        total = total + np.where(paired, product / scale, 0.0).sum(-1)
        number = number + paired.sum(-1)
        shared = shared + np.where(paired, product, 0.0).sum(-1)
        whole = whole + np.where(paired, scale, 0.0).sum(-1)
    found = (
        np.where(number > 0, np.clip(each, 0.0, 1.0), 0.0)[..., None]
        for each in (total / number, shared / whole)
    )
    mean, weighted = found
    return mean, weighted


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
        found = np.full((len(rows), len(ordered)), math.nan)
        found[i, j] = values
        return cls(rows, found)

    def window(self, rate: float, num_seeds: int) -> Floats:
        """Return the values at a rate and at the rates beside it, `WINDOW` x seeds; NaN: no such rate or run."""
        found = np.full((WINDOW, num_seeds), math.nan)
        (at,) = np.flatnonzero(self.rates == rate) if rate in self.rates else (None,)
        for row, index in enumerate(() if at is None else (at, at - 1, at + 1)):
            if 0 <= index < len(self.rates):
                found[row, : self.values.shape[1]] = self.values[index]
        return found


class Sampled(NamedTuple):
    """The values of cells at one rate each, and what is known of their noise."""

    windows: Floats
    """Cells x `WINDOW` x seeds; the rate itself first."""
    noise: Noise

    @property
    def values(self) -> Floats:
        """Those at the rate itself, cells x seeds."""
        return self.windows[:, 0]

    @property
    def counts(self) -> Floats:
        """Seeds with a value there."""
        return num_known(self.values).astype(float)

    @property
    def means(self) -> Floats:
        """Over these; NaN: none has."""
        with undefined_is_nan():
            return np.nansum(self.values, -1) / self.counts


def padded(arrays: Sequence[Floats]) -> Floats:
    """Stack arrays whose last axes differ in length, with NaN at the ends of the shorter ones."""
    most = max((each.shape[-1] for each in arrays), default=0)
    found = np.full((len(arrays), *(arrays[0].shape[:-1] if arrays else ()), most), math.nan)
    for part, each in zip(found, arrays, strict=True):
        part[..., : each.shape[-1]] = each
    return found


@lru_cache(maxsize=2)
def cell_values(summary: StudySummary) -> list[CellValues]:
    """Return the test values of each cell, in the order of `StudySummary.cells`."""
    runs = arrays_by_cell(summary.runs, *RUN)
    return [CellValues.of(*runs[cell]) for cell in tuples_in(summary.cells[CELL])]


def sampled(cells: Sequence[CellValues], rates: Iterable[float]) -> Sampled:
    """Return what is known of each cell at one of its rates; NaN, or a rate it has not: nothing."""
    num_seeds = max((cell.values.shape[1] for cell in cells), default=0)
    windows = [cell.window(rate, num_seeds) for cell, rate in zip(cells, rates, strict=True)]
    stacked = np.array(windows).reshape(-1, WINDOW, num_seeds)
    return Sampled(stacked, cell_noise(stacked))


@lru_cache(maxsize=2)
def at_chosen(summary: StudySummary) -> Sampled:
    """Return what is known of each cell at its chosen learning rate."""
    return sampled(cell_values(summary), summary.cells["learning_rate"].to_numpy(float))
