"""A candidate against a stored baseline, seed by seed: the test, the levels of a stream of candidates, and drift.

All numbers were chosen by simulation (docs/statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtr

from lr_sweep.analysis.statistics.comparisons.decide import (
    FIRST,
    FIRST_LOOK,
    SECOND,
    UNDECIDED,
)
from lr_sweep.analysis.statistics.comparisons.noise import NO_SPREAD
from lr_sweep.analysis.statistics.comparisons.spending import nominal_levels
from lr_sweep.analysis.statistics.selection.best import Floats, Ints

FEWEST_SEEDS = 8
"""Seeds of a baseline, and of an accepted candidate, at least."""
FEW_SEEDS, FEW_LEVEL = 20, 1 / 70
"""Seeds of a candidate from which on the level is kept, and the part of it with fewer seeds: these may lack all of
their rare bad runs, and look better and quieter than the candidate is."""
NUM_SEEDS = 30
"""Seeds that a baseline should have, and after which a candidate is accepted if the user gives no other number."""
MISSED = 0.05
"""Likelihood of the least gain, relative to no gain, at which a candidate is rejected."""
MIN_SD = 1.5
"""Least gain that is looked for, in standard deviations of the noisier side's runs."""
FALSE_ACCEPT = 0.05
"""Largest share of candidates without a gain that a gate accepts, and of accepted ones of a stream that are none."""
CANDIDATE, DISCARDED = 0.25, 0.5
"""Evidence (a p value) up to which ADDIS counts a candidate as promising, and above which it does not count it."""
GAMMA_POWER, GAMMA_SUM = 1.6, 2.28576
"""The k-th next candidate gets a share k^-1.6 / 2.28576 of the error that a discovery brings (Ramdas et al. 2018)."""
DRIFT, CAP, ALARM = 0.7, 2.5, 5.8
"""Standard deviations that a night must be worse by to raise the sum over nights (CUSUM, Page 1954), that a night
counts at most, and that make the sum an alarm."""
RANK = 0.25
"""Weight of a night's normal score among the runs of the baseline: outliers of these hide a drift otherwise."""


class Looks(NamedTuple):
    """A candidate after each number of its seeds, from 0 on; ... x seeds + 1."""

    p: Floats
    """One-sided p value of a gain."""
    ratio: Floats
    """Logarithm of the likelihood of the least gain, relative to no gain."""


class Concluded(NamedTuple):
    """The test's answers on candidates; one entry each."""

    outcome: Ints
    """`FIRST`: it is accepted; `SECOND`: rejected; `UNDECIDED`."""
    num_seeds: Ints
    """Seeds at the deciding look, else all there are."""
    evidence: Floats
    """p value by the largest likelihood ratio that any look had (Ville), for the levels of a stream."""


def looks(base: Floats, values: Floats, min_gain: float = 0.0, min_sd: float = MIN_SD) -> Looks:
    """Compare a candidate with a baseline after each seed, by Welch's t test and a ratio of two normal likelihoods.

    The noise of a candidate is pooled from both sides, or its own where that is larger: few seeds without one of their
    rare bad values look quiet.

    Args:
        base: values of the baseline, ... x seeds; more is better.
        values: of the candidate, ... x seeds.
        min_gain: least gain that is looked for, in the unit of the values; 0: `min_sd` standard deviations.
        min_sd: of the noisier side.
    """
    size, counts = base.shape[-1], np.arange(1.0, values.shape[-1] + 1)
    mean, variance = base.mean(-1, keepdims=True), _variance(base)
    gain = (values - mean).cumsum(-1) / counts
    squares = np.maximum(((values - mean) ** 2).cumsum(-1) - counts * gain**2, 0.0)
    pooled = (squares + variance * (size - 1)) / (size + counts - 2)
    own = squares / np.maximum(counts - 1, 1)
    noise, dof = np.maximum(own, pooled), np.where(own > pooled, counts - 1, size + counts - 2)
    ones, others = noise / counts, variance / size
    free = (ones + others) ** 2 / (ones**2 / dof + others**2 / (size - 1))
    p = stdtr(free, -gain / np.sqrt(ones + others))
    least = min_gain or min_sd * np.sqrt(np.maximum(noise, variance))
    ratio = least * (gain - least / 2) / (ones + others)
    return Looks(np.insert(p, 0, 1.0, -1), np.insert(ratio, 0, 0.0, -1))


def _variance(base: Floats) -> Floats:
    """Return the variance of a baseline's run, ... x 1; of equal values that of rounding."""
    least = (NO_SPREAD * base.mean(-1, keepdims=True)) ** 2 + np.finfo(float).tiny
    found: Floats = np.maximum(base.var(-1, ddof=1, keepdims=True), least)
    return found


def conclude(
    found: Looks, level: float | Floats = FALSE_ACCEPT, max_seeds: int = NUM_SEEDS
) -> Concluded:
    """Decide candidates: early that there is no gain, and after `max_seeds` that there is one, at a one-sided level.

    With fewer than `FEW_SEEDS` seeds the level is stricter.
    """
    level = level * (FEW_LEVEL if max_seeds < FEW_SEEDS else 1)
    p, ratio = (each[..., : max_seeds + 1] for each in found)
    unlikely = ratio <= math.log(MISSED)
    is_last = p.shape[-1] > max_seeds
    is_rejected = unlikely.any(-1)
    num_seeds = np.where(is_rejected, unlikely.argmax(-1), p.shape[-1] - 1)
    is_accepted = ~is_rejected & is_last & (p[..., -1] <= level)
    outcome = np.where(is_accepted, FIRST, np.where(is_rejected | is_last, SECOND, UNDECIDED))
    until = np.arange(p.shape[-1]) <= num_seeds[..., None]
    return Concluded(outcome, num_seeds, np.exp(-np.where(until, ratio, 0.0).max(-1)))


def is_worse(base: Floats, values: Floats) -> bool:
    """Return whether a candidate is shown to be worse at some look, from two seeds on; arguments as of `looks`."""
    p = looks(-base, -values[:NUM_SEEDS]).p[FIRST_LOOK:]
    levels = nominal_levels(2 * FALSE_ACCEPT, FIRST_LOOK, NUM_SEEDS) / 2
    return bool((p <= levels[: len(p)]).any())


def next_level(
    evidence: Sequence[float], accepted: Sequence[bool], error: float = FALSE_ACCEPT
) -> float:
    """Return the level of a stream's next candidate: ADDIS (Tian and Ramdas 2019), for a false discovery rate `error`.

    `evidence` has the p value of each candidate so far, `accepted` whether it was accepted.
    """
    counted = np.array([CANDIDATE < p <= DISCARDED for p in evidence], int)
    since = [0, *(index + 1 for index, each in enumerate(accepted) if each)]
    earned = [error / 2, error / 2, *[error] * len(since)][: len(since)]
    shares = [(counted[start:].sum() + 1) ** -GAMMA_POWER / GAMMA_SUM for start in since]
    return float(min(CANDIDATE, (DISCARDED - CANDIDATE) * np.dot(earned, shares)))


def drift(base: Floats, nights: Floats) -> Floats:
    """Return the sum that a drift raises, after each night; from `ALARM` on something is wrong.

    A night counts by what it is worse than `DRIFT` standard deviations below the baseline, at most `CAP` below it: one
    bad night is no drift. Arguments: seeds and nights, more is better.
    """
    deviation = np.sqrt(_variance(base) * (1 + 1 / len(base)))
    below = np.minimum((base.mean() - nights) / deviation, CAP)
    rank = np.sign(base[:, None] - nights).sum(0) / (2 * len(base) + 2) + 0.5
    total = np.insert((1 - RANK) * below + RANK * ndtri(rank) - DRIFT, 0, 0.0)
    return np.array(list(accumulate(total, lambda total, each: max(0.0, total + each))))[1:]
