"""Sequential comparison of variants on fresh seeds: stop when a pair is decided, one error over all pairs and looks.

Fresh seeds chose nothing, so their means are not optimistic. Pure functions of the values: the same values give the
same decisions, however they arrived. The test was chosen by simulation (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import fdtr, fdtrc, ndtr, ndtri, stdtr, stdtrit

from lr_sweep.analysis.statistics.comparisons.correction import most_equal, pairs_of, pairs_within
from lr_sweep.analysis.statistics.comparisons.noise import (
    NO_SPREAD,
    Noise,
    num_known,
    undefined_is_nan,
    welch,
)
from lr_sweep.analysis.statistics.selection.best import CONFIDENCE, Bools, Floats, Ints

UNDECIDED, FIRST, SECOND, EQUAL = 0, 1, -1, 2
"""Outcomes of a pair: more seeds are needed (or were not enough), either one is ahead, or equal within the limit."""
FIRST_LOOK = 2
"""Seeds of each variant at the first look. Two are enough where their noise is known from earlier runs, too."""
ENOUGH = 8
"""Fresh seeds that may show less noise than earlier runs: fewer may all be in one of two modes."""
QUIETER, NOISIER = 0.001, 0.05
"""Levels of the F test by which fresh seeds contradict the noise of earlier runs. Most of these were at rates beside
the chosen one: where training breaks down there, it is noisier there; where models guess, quieter. To keep noise that
is too small makes false differences, so less is needed against it. All were chosen by simulation."""
SPENDING = 1.5
"""At a share t of the most seeds, the share t^1.5 of the error is spent (Kim and DeMets 1987). Chosen by simulation:
docs/statistics.md."""
UNEQUAL, SKEWED = 0.5, 1.5
"""Shares by which a standard error grows where one of two cells has all the noise: always, and per unit of skewness.
Chosen by simulation: docs/statistics.md."""
FAILED = 8.0
"""Median absolute deviations below the median of its cell from which a run counts as failed."""
LEAST_LOSS = 0.02
"""Least loss of a failed run, in the metric's unit; of a metric that is no fraction, times the cell's median."""
FEWEST_RUNS = 4
"""Runs of a cell that show which of them failed; fewer have no deviation to speak of."""
NUM_NODES = 64
"""Nodes of the Gauss-Legendre rule for the density between two boundaries; more change no level's fifth digit."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """When a pair counts as decided."""

    min_difference: float = 0.0
    """Two variants are equal if their means differ by less, in the unit of the values; 0: none are called equal."""
    max_seeds: int = 20
    error: float = 0.05
    """Probability that any equal pair is called different, and that any pair this far apart is called equal."""
    first_look: int = FIRST_LOOK


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Which cells are compared."""

    first: Ints
    """Index of each pair's first cell."""
    second: Ints
    most_equal: Ints
    """As of `pairs.most_equal`."""

    @classmethod
    def all_of(cls, groups: Sequence[Hashable]) -> Pairs:
        """Compare every two cells of each group; `groups` has the group of each cell."""
        first, second = pairs_within(groups)
        sizes = [list(groups).count(group) for group in dict.fromkeys(groups)]
        return cls(
            first=first,
            second=second,
            most_equal=most_equal(tuple(pairs_of(n) for n in sizes if n > 1)),
        )

    @classmethod
    def named(cls, pairs: Sequence[tuple[int, int]]) -> Pairs:
        """Compare these pairs of cells; any of them may be equal while others are not."""
        ones, others = np.array(pairs, int).T.reshape(2, -1)
        return cls(first=ones, second=others, most_equal=np.arange(len(pairs), 0, -1))


@dataclass(frozen=True, kw_only=True)
class Decided:
    """State of each pair by its values, ... x pairs."""

    outcome: Ints
    """`UNDECIDED`, `FIRST`, `SECOND` (which is ahead, as larger values are better) or `EQUAL`."""
    num_seeds: Ints
    """Seeds of each variant at the deciding look; of an undecided pair at the last look."""
    difference: Floats
    """Mean of the first less that of the second, over all seeds there are."""
    low: Floats
    """95% interval of the difference, for this pair alone."""
    high: Floats


def judge_pairs(values: Floats, pairs: Pairs, settings: Settings, known: Noise) -> Decided:
    """Decide pairs at the looks that the values allow, in the order of the seeds.

    A look at n seeds compares the first n values of both cells by Welch's t test at the level of that look; differences
    by Shaffer's procedure over the pairs, equality by two one-sided tests at the level over their number. A decision
    stays. Without any spread in two cells nothing is known of the noise, and nothing decided.

    Args:
        values: ... x cells x seeds, in the order in which they were trained; more is better. NaN after the last one.
        pairs: which cells to compare.
        settings: limits.
        known: what the runs that chose the rates say of the noise of each cell, ... x cells. Without it the first seeds
            may all be in one of two modes, and seem to have none.
    """
    counts = num_known(values)
    shape = (*values.shape[:-2], len(pairs.first))
    outcome, num_seeds = np.zeros(shape, int), np.zeros(shape, int)
    steps = np.unique(pairs.most_equal)
    below = np.zeros((*shape, len(steps)), bool)  # whether some p was below the level of each step
    both = np.minimum(counts[..., pairs.first], counts[..., pairs.second])
    levels = [
        nominal_levels(settings.error / step, settings.first_look, settings.max_seeds)
        for step in steps.tolist()
    ]
    for look in range(settings.first_look, settings.max_seeds + 1):
        open_ = (outcome == UNDECIDED) & (both >= look)
        if not open_.any():
            break
        num_seeds[open_] = look
        difference, sem, dof, caution = _compared(values[..., :look], pairs, known)
        p = 2 * stdtr(dof, -np.abs(difference) / (sem * caution))
        below |= open_[..., None] & (
            p[..., None] <= np.array([each[look - settings.first_look] for each in levels])
        )
        _differ(outcome, below, steps, difference, pairs)
        if settings.min_difference:
            level = nominal_levels(
                2 * settings.error / len(pairs.first), settings.first_look, settings.max_seeds
            )
            half = -stdtrit(dof, level[look - settings.first_look] / 2) * sem
            outcome[
                open_
                & (outcome == UNDECIDED)
                & (np.abs(difference) + half < settings.min_difference)
            ] = EQUAL
    difference, sem, dof, _ = _compared(values, pairs, known)
    half = stdtrit(dof, (1 + CONFIDENCE) / 2) * sem
    ends = {"low": difference - half, "high": difference + half}
    return Decided(outcome=outcome, num_seeds=num_seeds, difference=difference, **ends)


def _differ(outcome: Ints, below: Bools, steps: Ints, difference: Floats, pairs: Pairs) -> None:
    """Call pairs different, in place, until no more fall to the level that the others leave (Shaffer's steps)."""
    while True:
        num_different = (np.abs(outcome) == 1).sum(-1)
        step = pairs.most_equal[np.minimum(num_different, len(pairs.first) - 1)]
        at = np.searchsorted(steps, step)
        found = np.take_along_axis(below, at[..., None, None], -1)[..., 0] & (outcome == UNDECIDED)
        if not found.any():
            return
        outcome[found] = np.where(difference > 0, FIRST, SECOND)[found]


def _compared(
    values: Floats, pairs: Pairs, earlier: Noise
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return each pair's difference, its standard error, degrees of freedom and caution.

    NaN: too few values, or no spread.
    """
    counts = num_known(values)
    with undefined_is_nan():
        means = np.nansum(values, -1) / counts
        away = np.nan_to_num(values - means[..., None])
        skewness = np.nan_to_num((away**3).sum(-1) / (away**2).sum(-1) ** 1.5) * np.sqrt(counts)
    noise, difference = (
        noise_of(values, earlier),
        means[..., pairs.first] - means[..., pairs.second],
    )
    sem, dof = welch(noise, counts, pairs.first, pairs.second)
    return difference, sem, dof, _caution(noise.variance, skewness, difference, pairs)


def _caution(variance: Floats, skewness: Floats, difference: Floats, pairs: Pairs) -> Floats:
    """Return what to multiply the standard error of a difference by, at least 1.

    A t test is too sure where noise is unequal and skewed: a noisy cell without one of its rare bad values seems better
    and quieter than it is. Noise that is skewed the other way only makes the test miss a difference.
    """
    ones, others = variance[..., pairs.first], variance[..., pairs.second]
    with undefined_is_nan():
        unequal = (ones - others) / (ones + others)
    skewed = (
        -(skewness[..., pairs.first] + skewness[..., pairs.second])
        / 2
        * np.sign(unequal * difference)
    )
    return 1 + np.abs(unequal) * (UNEQUAL + SKEWED * np.maximum(skewed, 0.0))


def num_failed(values: Floats, is_fraction: bool) -> Ints:
    """Count the runs of each cell that lie far below its others, as where training collapsed.

    `values`: ... x cells x runs, more is better; NaN: none. `is_fraction`: of the metric.
    """
    if values.shape[-1] < FEWEST_RUNS:
        return np.zeros(values.shape[:-1], int)
    counts = (~np.isnan(values)).sum(-1, keepdims=True)
    middle = np.maximum(counts - 1, 0) // 2
    medians = np.take_along_axis(np.sort(values), middle, -1)  # NaN last
    deviations = np.take_along_axis(np.sort(np.abs(values - medians)), middle, -1)
    loss = np.maximum(FAILED * deviations, LEAST_LOSS * (1.0 if is_fraction else np.abs(medians)))
    return ((values < medians - loss) & (counts >= FEWEST_RUNS)).sum(-1)


def noise_of(values: Floats, earlier: Noise) -> Noise:
    """Learn the noise of each cell from its fresh seeds, pooled with that of earlier runs unless they contradict it."""
    counts = num_known(values)
    with undefined_is_nan():
        means = np.nansum(values, -1) / counts
        variance = np.nansum((values - means[..., None]) ** 2, -1) / (counts - 1)
        fresh = Noise(
            variance,
            np.maximum(counts - 1.0, 0.0),
            np.abs(np.nan_to_num(values)).max(-1, initial=0.0),
        )
        pooled, ratio = fresh.pooled_with(earlier), earlier.variance / fresh.variance
    spread = (counts >= ENOUGH) & (np.sqrt(fresh.variance) > NO_SPREAD * fresh.size)
    alone = spread & (fdtrc(earlier.dof, fresh.dof, ratio) < QUIETER)
    alone |= fdtr(earlier.dof, fresh.dof, ratio) < NOISIER
    return Noise(*(np.where(alone, own, both) for own, both in zip(fresh, pooled, strict=True)))


@cache
def nominal_levels(error: float, first: int, last: int) -> Floats:
    """Return the two-sided level of the test at each look, at `first`, `first` + 1, ... `last` seeds.

    Under no difference some look rejects with probability `error`; with fewer looks less often. These are
    group-sequential boundaries by error spending (Lan and DeMets 1983; Jennison and Turnbull 2000, chapters 7 and 11),
    exact for normal data of known variance; nominal levels carry them over to t tests.
    """
    times = np.arange(first, last + 1) / last
    spent = error * times**SPENDING
    nodes, weights = np.polynomial.legendre.leggauss(NUM_NODES)
    bound = float(-ndtri(spent[0] / 2) * np.sqrt(times[0]))
    places, levels = bound * nodes, [float(spent[0])]
    density = bound * weights * _normal(places, times[0])  # times the width of each node
    for look in range(1, len(times)):
        step = times[look] - times[look - 1]
        bound = _bound(places, density, step, spent[look] - spent[look - 1])
        levels.append(float(2 * ndtr(-bound / np.sqrt(times[look]))))
        ahead = bound * nodes
        density = bound * weights * (_normal(ahead[:, None] - places, step) @ density)
        places = ahead
    return np.array(levels)


def _normal(values: Floats, variance: float) -> Floats:
    density: Floats = np.exp(-(values**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    return density


def _bound(places: Floats, density: Floats, step: float, error: float) -> float:
    """Find the bound beyond which a step from the density ends with probability `error`."""
    from scipy.optimize import (
        brentq,
    )  # imported late: it takes 0.2 s, and few studies have `decide`

    def excess(bound: float) -> float:
        return float(
            density @ (ndtr((places - bound) / step**0.5) + ndtr(-(places + bound) / step**0.5))
            - error
        )

    return float(brentq(excess, 0.0, 20.0, xtol=1e-15))
