"""How large differences are, and how many seeds would make one certain."""

from __future__ import annotations

import numpy as np
from scipy.special import nctdtr, stdtrit

from lr_sweep.analysis.statistics.comparisons.noise import Ints, Noise, welch
from lr_sweep.analysis.statistics.comparisons.uncertainty import Floats

POWER = 0.8
"""With which the further seeds make a difference certain, if it is as large as it seems."""
MOST_FURTHER = 100
"""More further seeds are not counted."""


def superiority(values: Floats, first: Ints, second: Ints) -> Floats:
    """Return how often a run of each pair's first cell is above one of its second, ties counting half.

    That is the statistic of Mann and Whitney 1947. NaN: either has no value. `values`: cells x seeds; NaN: none.
    """
    ones, others = values[first], values[second]
    won, number = np.zeros(len(first)), np.zeros(len(first))
    for run in ones.T:
        known = ~np.isnan(run[:, None] + others)
        won += np.where(known, (run[:, None] > others) + 0.5 * (run[:, None] == others), 0.0).sum(-1)
        number += known.sum(-1)
    with np.errstate(invalid="ignore"):
        return won / number


def further_seeds(difference: Floats, noise: Noise, counts: Floats, level: Floats) -> Floats:
    """Return how many more seeds of both of two cells make their difference certain with probability `POWER`.

    Assumed is that the difference and the noise are what they seem: of a difference that is by luck too large the
    number is too small, and the other way round. Power rises with the seeds, so the number is found by halving.

    Args:
        difference: of the two means, one a pair.
        noise: pairs x 2; degrees of freedom grow with the seeds.
        counts: their seeds, pairs x 2.
        level: two-sided, of the test of each pair.

    Returns:
        At least 1; infinity: more than `MOST_FURTHER`.
    """
    low, high = np.zeros(len(difference)), np.full(len(difference), MOST_FURTHER + 1.0)
    while (high - low > 1).any():
        middle = (low + high) // 2
        enough = _power(difference, noise, counts, counts + middle[:, None], level) >= POWER
        low, high = np.where(enough | (middle == low), low, middle), np.where(enough & (middle > low), middle, high)
    return np.where(high > MOST_FURTHER, np.inf, high)


def _power(difference: Floats, noise: Noise, counts: Floats, later: Floats, level: Floats) -> Floats:
    """Return the probability that a test with more seeds finds a difference."""
    grown = noise._replace(dof=noise.dof * (later - 1) / (counts - 1))
    sem, dof = (found[:, 0] for found in welch(grown, later, np.array([0]), np.array([1])))
    power: Floats = 1 - nctdtr(dof, np.abs(difference) / sem, -stdtrit(dof, level / 2))
    return power
