"""A candidate against a stored baseline, seed by seed: the test, the levels of a stream of candidates, and drift.

All numbers were chosen by simulation (docs/statistics.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit, zeta

from lr_sweep.analysis.statistics.selection.best import (
    Bools,
    Floats,
    Ints,
)

from .noise import Noise, welch
from .spending import nominal_levels

MIN_SEEDS = 20
"""Least number of seeds of a baseline and of an accepted candidate: fewer may lack all of their rare bad runs."""
NUM_SEEDS = 30
"""Number of seeds that a baseline should have, and after which a candidate is accepted unless the user sets another."""
FIRST_LOOK = 5
"""Number of a candidate's seeds from which Welch's test keeps its error: fewer show too little of their noise."""
MISSED = 0.05
"""Likelihood of the least gain, relative to no gain, at which a candidate is rejected."""
MIN_SD = 1.5
"""Default of the least gain that is looked for, in standard deviations of the noisier side's runs."""
FALSE_ACCEPT = 0.05
"""Largest share of candidates without a gain that a gate accepts, and of a stream's accepted ones that have none."""
SHARE_POWER = 1.6
"""Exponent of the shares k^-1.6 in which the candidates of a stream divide the error (Ramdas et al. 2018)."""
ROUNDING = 1e-9
"""Standard deviation of equal values, as a share of their mean."""
DRIFT, ALARM = 0.7, 5.4
"""Normal score of a night that leaves the sum over nights as it is (CUSUM, Page 1954), and the sum that is an alarm."""


def lower_bound(base: Floats, values: Floats, level: Floats | float) -> Floats:
    """Return the gain that a candidate has at least, with a one-sided error `level`, by Welch's t test (1947).

    The bound is above 0 where the p value of the gain is below `level`. Arguments: ... x seeds, at least two of each;
    more is better.
    """
    counts = np.array([base.shape[-1], values.shape[-1]], float)
    variances = np.broadcast_arrays(variance(base), variance(values))
    noise = Noise(np.stack(variances, -1), counts - 1)
    sem, dof = welch(noise, counts, 0, 1)
    return values.mean(-1) - base.mean(-1) + stdtrit(dof, level) * sem


def variance(values: Floats) -> Floats:
    """Return the variance of runs, along the last axis; of equal values that of rounding."""
    rounding = (ROUNDING * values.mean(-1)) ** 2 + 1e-100
    return np.maximum(values.var(-1, ddof=1), rounding)


class Concluded(NamedTuple):
    """Answers on candidates; one that is neither accepted nor rejected needs more seeds."""

    is_accepted: Bools
    is_rejected: Bools
    num_seeds: Ints
    """Number of seeds at the deciding look, else of all there are."""


def conclude(
    base: Floats,
    values: Floats,
    level: Floats | float,
    max_seeds: int,
    min_gain: float = 0.0,
    min_sd: float = MIN_SD,
) -> Concluded:
    """Decide candidates: early that there is no gain, and after `max_seeds` that there is one.

    Args:
        base: values of the baselines, ... x seeds; more is better.
        values: of the candidates, ... x at most `max_seeds` seeds.
        level: one-sided error rate of Welch's test after the last seed.
        max_seeds: number of seeds after which a candidate is accepted or rejected.
        min_gain: least gain that is looked for, in the unit of the values; 0: `min_sd` standard deviations.
        min_sd: least gain in standard deviations of the noisier side.
    """
    ratios = likelihood_ratios(base, values, min_gain, min_sd)
    is_likely = np.minimum.accumulate(ratios, -1) > np.log(MISSED)
    is_rejected = ~is_likely.all(-1)
    num_seeds = is_likely.sum(-1) + is_rejected
    if values.shape[-1] < max_seeds:
        return Concluded(np.zeros_like(is_rejected), is_rejected, num_seeds)
    is_better = lower_bound(base, values, level) > 0
    is_accepted = is_better & ~is_rejected
    return Concluded(is_accepted, ~is_accepted, num_seeds)


def likelihood_ratios(base: Floats, values: Floats, min_gain: float, min_sd: float) -> Floats:
    """Return the logarithm of the likelihood of the least gain, relative to no gain, after each seed.

    The noise of a candidate is its own, or the baseline's where that is larger, since its first seeds show too little
    of it. Arguments: as of `conclude`.
    """
    counts = np.arange(1, values.shape[-1] + 1)
    away = values - base.mean(-1)[..., None]
    gains = away.cumsum(-1) / counts
    squares = (away**2).cumsum(-1) - counts * gains**2
    base_noise = variance(base)[..., None]
    noise = np.maximum(squares / np.maximum(counts - 1, 1), base_noise)
    least = min_gain or min_sd * np.sqrt(noise)
    sem_squared = noise / counts + base_noise / base.shape[-1]
    return least * (gains - least / 2) / sem_squared


def is_worse(base: Floats, values: Floats) -> bool:
    """Return whether a candidate is shown to be worse at some look, from `FIRST_LOOK` seeds on; more is better."""
    levels = nominal_levels(2 * FALSE_ACCEPT, FIRST_LOOK, NUM_SEEDS) / 2
    return any(
        lower_bound(-base, -values[:look], level) > 0
        for look, level in enumerate(levels, FIRST_LOOK)
        if look <= len(values)
    )


def next_level(num_candidates: int, num_accepted: Ints) -> Floats:
    """Return the level of a stream's next candidate: LOND (Javanmard and Montanari 2018).

    Args:
        num_candidates: number of the candidates before it.
        num_accepted: number of these that were accepted.
    """
    share = (num_candidates + 1) ** -SHARE_POWER / zeta(SHARE_POWER)
    return FALSE_ACCEPT * share * (num_accepted + 1)


def drift(base: Floats, nights: Floats) -> Floats:
    """Return the sum that a drift raises, after each night; from `ALARM` on something is wrong.

    A night counts by the normal score of its rank among the baseline's seeds, so one bad night is no drift, and noise
    of any shape has the same false alarms. Arguments: seeds and nights, more is better.
    """
    num_better = np.sign(base[:, None] - nights).sum(0)
    ranks = num_better / (2 * len(base) + 2) + 0.5
    totals = (ndtri(ranks) - DRIFT).cumsum()
    return totals - np.minimum.accumulate(np.minimum(totals, 0.0))
