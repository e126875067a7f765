"""How large differences are, and how many seeds would make one certain."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import nctdtr, stdtrit

from lr_sweep.analysis.statistics.noise import Noise, welch
from lr_sweep.analysis.statistics.uncertainty import Floats

POWER = 0.8
"""With which the further seeds make a difference certain, if it is as large as it seems."""
MOST_FURTHER = 100
"""More further seeds are not counted."""


def superiority(ones: Floats, others: Floats) -> float:
    """Return how often a run of the first is above one of the second, ties counting half (Mann and Whitney 1947).

    NaN: either has no value. Values without NaN.
    """
    if not len(ones) or not len(others):
        return math.nan
    away = ones[:, None] - others
    return float(np.mean((away > 0) + 0.5 * (away == 0)))


def further_seeds(difference: float, noise: Noise, counts: Floats, level: float) -> float:
    """Return how many more seeds of each of two cells make a difference certain with probability `POWER`.

    Assumed is that the difference and the noise are what they seem: of a difference that is by luck too large the
    number is too small, and the other way round.

    Args:
        difference: of the two means.
        noise: of the two cells; degrees of freedom grow with the seeds.
        counts: their seeds.
        level: two-sided, of the test.

    Returns:
        At least 1; infinity: more than `MOST_FURTHER`.
    """
    more = np.arange(1, MOST_FURTHER + 1)[:, None]
    later = Noise(np.broadcast_to(noise.variance, (MOST_FURTHER, 2)), noise.dof * (counts + more - 1) / (counts - 1))
    sem, dof = (found[:, 0] for found in welch(later, counts + more, np.array([0]), np.array([1])))
    power = 1 - nctdtr(dof, abs(difference) / sem, -stdtrit(dof, level / 2))
    enough = np.flatnonzero(power >= POWER)
    return float(enough[0] + 1) if len(enough) else math.inf
