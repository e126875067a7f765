"""Welch's t test of pairs of variants: once, or after every fresh seed until a pair is decided.

Both control the error over all pairs (Holm 1979), and the second one over all repetitions, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import comb, stdtr, stdtrit

from lr_sweep.analysis.statistics.selection.best import (
    Bools,
    Floats,
    Ints,
)

from .correction import LEVEL, Pairs, holm, levels_of
from .noise import (
    WINDOW,
    Sampled,
    cell_noise,
    num_known,
    undefined_is_nan,
    welch,
)
from .spending import nominal_levels

FEWEST_SEEDS = 3
"""Fewest seeds of both variants of a pair that is tested: two seeds do not show the noise."""
FIRST_LOOK = 4
"""Fresh seeds of both variants at the first test, where a pair is tested after every seed."""


class PairTests(NamedTuple):
    """Tests of equal means, one entry a pair; NaN: not known."""

    num_seeds: Ints
    """Seeds of the variant that has fewer."""
    difference: Floats
    """Mean of the first variant less that of the second."""
    sem: Floats
    """Standard error of the difference."""
    dof: Floats
    """Its degrees of freedom."""
    p: Floats
    """Two-sided p value of no difference."""
    level: Floats
    """Level of its test, corrected for the number of pairs and of repetitions."""
    is_equal: Bools
    """Whether the difference is certainly within the limit of equality."""

    @property
    def is_different(self) -> Bools:
        """Whether the means differ significantly."""
        return self.p < self.level

    @property
    def half_width(self) -> Floats:
        """Half the width of the interval of the difference, at the level of its test."""
        with undefined_is_nan():
            return -stdtrit(self.dof, self.level / 2) * self.sem

    @property
    def corrected_p(self) -> Floats:
        """p, corrected so that it is below `LEVEL` exactly where the means differ significantly."""
        return np.minimum(LEVEL * self.p / self.level, 1.0)


def at_once(cells: Sampled, pairs: Pairs, within: float | None) -> PairTests:
    """Test pairs of cells by all of their seeds.

    Args:
        cells: their values.
        pairs: cells of each pair.
        within: limit of equality, in the unit of the values; None: no pair is called equal.
    """
    first, second, num_untested = pairs
    difference = cells.means[first] - cells.means[second]
    sem, dof = welch(cells.noise, cells.counts, first, second)
    num_seeds = np.minimum(cells.counts[first], cells.counts[second])
    with undefined_is_nan():
        p = 2 * stdtr(dof, -np.abs(difference) / sem)
    no_spread = np.isnan(sem) & (np.abs(difference) > 0)
    p = np.where(
        no_spread,
        _p_by_ranks(cells.counts[first], cells.counts[second]),
        p,
    )
    p = np.where(num_seeds < FEWEST_SEEDS, np.nan, p)
    is_equal = np.zeros(len(p), bool)
    if within is not None:  # two one-sided tests (Schuirmann 1987)
        with undefined_is_nan():
            p_beyond = stdtr(dof, (np.abs(difference) - within) / sem)
        is_equal = (holm(p_beyond) < LEVEL) & (num_seeds >= FEWEST_SEEDS)
    levels = levels_of(p, num_untested)
    return PairTests(num_seeds.astype(int), difference, sem, dof, p, levels, is_equal)


def _p_by_ranks(counts: Floats, other_counts: Floats) -> Floats:
    """Return Fisher's exact p of runs that all lie above those of the other variant.

    Of all ways to label the runs of two equal variants, one has all of the first variant on top,
    and one all of the second.
    """
    p: Floats = 2 / comb(counts + other_counts, counts)
    return p


def after_every_seed(
    values: Floats, pairs: Pairs, within: float | None, max_seeds: int
) -> PairTests:
    """Test each pair after every fresh seed, from `FIRST_LOOK` seeds on, until it is decided.

    A decision stays: the numbers of a decided pair are those of its deciding test.

    Args:
        values: cells x fresh seeds, in the order of the seeds; NaN: a lost run, which is skipped.
        pairs: cells of each pair.
        within: as of `at_once`.
        max_seeds: most fresh seeds of a cell.
    """
    first, second, num_untested = pairs
    known_first = np.argsort(np.isnan(values), axis=-1, kind="stable")
    values = np.take_along_axis(values, known_first, -1)
    counts = num_known(values)
    reached = np.minimum(counts[first], counts[second])
    unknown = np.full(len(first), np.nan)
    state = _tested_at(values, values.shape[-1], pairs)
    state = state._replace(
        num_seeds=reached.copy(),
        sem=unknown,
        p=unknown.copy(),
    )
    is_open = np.ones(len(first), bool)
    num_pairs = len(first) + num_untested
    for look in range(FIRST_LOOK, int(reached.max(initial=0)) + 1):
        tested = _tested_at(values, look, pairs)
        is_equal = _equal_at(tested, look, within, max_seeds)
        for pair in np.argsort(tested.p, kind="stable").tolist():  # Holm: the smallest p first
            if is_open[pair] and reached[pair] >= look:
                step = num_pairs - int(state.is_different.sum())
                level = nominal_levels(LEVEL / step, FIRST_LOOK, max_seeds)[look - FIRST_LOOK]
                tested.level[pair] = level
                tested.is_equal[pair] = is_equal[pair] and not tested.p[pair] < level
                for kept, new in zip(state, tested, strict=True):
                    kept[pair] = new[pair]
        is_open &= ~(state.is_different | state.is_equal)
    return state


def _tested_at(values: Floats, look: int, pairs: Pairs) -> PairTests:
    """Test all pairs by the first seeds of both variants; the levels are not set yet."""
    windows = np.full((len(values), WINDOW, look), np.nan)
    windows[:, 0] = values[:, :look]
    cells = Sampled(windows[:, 0], cell_noise(windows))
    tested = at_once(cells, pairs, None)
    return tested._replace(num_seeds=np.full(len(pairs.first), look))


def _equal_at(tested: PairTests, look: int, within: float | None, max_seeds: int) -> Bools:
    if within is None:
        return tested.is_equal
    error = 2 * LEVEL / len(tested.p)  # each one-sided test has half of a two-sided level
    level = nominal_levels(error, FIRST_LOOK, max_seeds)[look - FIRST_LOOK]
    half_width = -stdtrit(tested.dof, level / 2) * tested.sem
    return np.abs(tested.difference) + half_width < within
