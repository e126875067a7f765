"""A candidate against a stored baseline, seed by seed: the test, the levels of a stream of candidates, and drift.

The candidate is accepted by a group-sequential t test (`decide.nominal_levels`), and rejected as soon as a gain of the
least size is unlikely, which makes equal candidates cheap. All numbers were chosen by simulation (docs/statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtr

from lr_sweep.analysis.statistics.comparisons.decide import FIRST, SECOND, UNDECIDED, noise_of, nominal_levels
from lr_sweep.analysis.statistics.comparisons.noise import NO_SPREAD, Noise, num_known, undefined_is_nan
from lr_sweep.analysis.statistics.selection.best import Bools, Floats, Ints

BASELINE_SEEDS = 30
"""Seeds that a stored baseline should have; with 20 seeds, fewer gains are found where noise has long tails."""
FEWEST_SEEDS = 8
"""Seeds of a baseline, at least: fewer may all be in one of two modes."""
FIRST_ACCEPT = 16
"""Seeds of a candidate that is accepted, at least: fewer may lack all of its rare bad runs."""
MAX_SEEDS = 30
"""Seeds of a candidate, at most, if the user gives no other number."""
MISSED = 0.1
"""Likelihood of the least gain, relative to no gain, at which a candidate is rejected."""
MIN_SD = 1.5
"""Least gain that is looked for, in standard deviations of the noisier side's runs."""
FALSE_ACCEPT = 0.05
"""Largest share of candidates without a gain that a gate accepts, and of accepted ones of a stream that are none."""
STREAM_ERROR = 0.03
"""Error rate of a stream's levels; the rest of `FALSE_ACCEPT` is for noise that is not normal."""
CANDIDATE, DISCARDED = 0.25, 0.5
"""Evidence (a p value) up to which ADDIS counts a candidate as promising, and above which it does not count it."""
GAMMA_POWER, GAMMA_SUM = 1.6, 2.28576
"""The k-th next candidate gets a share k^-1.6 / 2.28576 of the error that a discovery brings (Ramdas et al. 2018)."""
DRIFT, CAP, ALARM = 1.0, 2.5, 4.25
"""Of the sum over nights (CUSUM, Page 1954), in standard deviations: what a night must be worse by to raise it, how
much of a night counts at most, and the sum that is an alarm."""


class Stored(NamedTuple):
    """What the runs of a baseline say; one entry each."""

    mean: Floats
    variance: Floats
    """Of a run."""
    dof: Floats
    """Degrees of freedom of the variance."""
    num_seeds: Ints

    @classmethod
    def of(cls, values: Floats, earlier: Noise | None = None) -> Stored:
        """Measure a baseline: ... x seeds, more is better, NaN at the end; `earlier`: its noise by other runs, ..."""
        nothing = np.full(values.shape[:-1], math.nan)
        before = Noise(nothing, np.zeros(values.shape[:-1])) if earlier is None else earlier
        noise, count = noise_of(values, before), num_known(values)
        with undefined_is_nan():
            mean = np.nansum(values, -1) / count
            known = np.sqrt(noise.variance) > NO_SPREAD * np.abs(mean)
        return cls(mean, np.where(known, noise.variance, np.nan), noise.dof, count)


class Looks(NamedTuple):
    """A candidate after each of its seeds; ... x seeds."""

    gain: Floats
    """Its mean, less that of the baseline."""
    p: Floats
    """One-sided p value of a gain; 1 - p: of a loss."""
    ratio: Floats
    """Logarithm of the likelihood of the least gain, relative to no gain."""


class Concluded(NamedTuple):
    """What a sequential test says of candidates; one entry each."""

    outcome: Ints
    """`FIRST`: it is accepted; `SECOND`: rejected; `UNDECIDED`."""
    num_seeds: Ints
    """Seeds at the deciding look, else all there are."""
    evidence: Floats
    """p value by the largest likelihood ratio that any look had (Ville), for the levels of a stream."""


def looks(stored: Stored, values: Floats, min_gain: float = 0.0, min_sd: float = MIN_SD) -> Looks:
    """Compare a candidate with a baseline after each seed.

    Its noise is the pooled noise of both sides, or its own where that is larger: few seeds without one of their rare
    bad values look quiet. The ratio is that of two normal densities at the
    normal scores of the t values, as of an SPRT, and the smaller one by both ways to write it, as few degrees of
    freedom press large scores together.

    Args:
        stored: the baseline, ...
        values: ... x seeds, more is better; NaN after the last one.
        min_gain: least gain that is looked for, in the unit of the values; 0: `min_sd` standard deviations.
        min_sd: of the noisier side.
    """
    mean, variance, dof, count = (each[..., None] for each in stored)
    counts = np.arange(1.0, values.shape[-1] + 1)
    away = values - mean
    gain = away.cumsum(-1) / counts
    squares = np.maximum((away**2).cumsum(-1) - counts * gain**2, 0.0)
    with undefined_is_nan():
        pooled = (squares + variance * dof) / (dof + counts - 1)
        own = squares / (counts - 1)
        alone = own > pooled
        noise, of_noise = np.where(alone, own, pooled), np.where(alone, counts - 1, dof + counts - 1)
        ones, others = noise / counts, variance / count
        sem, share = np.sqrt(ones + others), ones / (ones + others)
        free = 1 / (share**2 / of_noise + (1 - share) ** 2 / dof)
        t = gain / sem
        least = (min_gain or min_sd * np.sqrt(np.maximum(noise, variance))) / sem
        of_none, of_least, apart = (_score(free, each) for each in (t, t - least, least))
        ratio = np.minimum((of_none**2 - of_least**2) / 2, apart * (of_none - apart / 2))
    return Looks(gain, stdtr(free, -t), ratio)


def _score(dof: Floats, t: Floats) -> Floats:
    """Return the normal value that is as unlikely as a t value; both tails are exact."""
    score: Floats = -np.sign(t) * ndtri(stdtr(dof, -np.abs(t)))
    return score


def levels_of(error: float, max_seeds: int, first: int = FIRST_ACCEPT) -> Floats:
    """Return the one-sided level of the test after each seed; 0 before the first look."""
    start = min(first, max_seeds)
    return np.concatenate([np.zeros(start - 1), nominal_levels(2 * error, start, max_seeds) / 2])


def conclude(found: Looks, levels: Floats) -> Concluded:
    """Decide candidates at the looks that their values allow; `levels`: as of `levels_of`, ... x most seeds."""
    number = min(found.p.shape[-1], levels.shape[-1])
    p, ratio = (each[..., :number] for each in (found.p, found.ratio))
    unlikely = ratio <= math.log(MISSED)
    accepted = (p <= levels[..., :number]) & ~unlikely
    ended = accepted | unlikely
    known = num_known(found.gain[..., :number])
    ended[..., levels.shape[-1] - 1 :] |= (known == levels.shape[-1])[..., None]
    is_decided = ended.any(-1)
    seeds = np.where(is_decided, ended.argmax(-1) + 1 if number else 0, known)
    until = np.arange(1, number + 1) <= seeds[..., None]
    best = np.where(until & (ratio > 0), ratio, 0.0).max(-1, initial=0.0)
    is_accepted = (until & accepted).any(-1)
    outcome = np.where(is_decided, np.where(is_accepted, FIRST, SECOND), UNDECIDED)
    return Concluded(outcome, seeds, np.exp(-best))


def is_worse(found: Looks, levels: Floats) -> Bools:
    """Return whether a loss is shown at some look; without any noise, whether there is one."""
    number = min(found.p.shape[-1], levels.shape[-1])
    with undefined_is_nan():
        shown = 1 - found.p[..., :number] <= levels[..., :number]
    unknown = np.isnan(found.p).all(-1)
    below = np.nan_to_num(found.gain[..., -1:]).min(-1, initial=0.0) < 0
    worse: Bools = shown.any(-1) | (unknown & below)
    return worse


def next_level(evidence: Sequence[float], accepted: Sequence[bool], error: float = STREAM_ERROR) -> float:
    """Return the level of a stream's next candidate: ADDIS (Tian and Ramdas 2019), for the false discovery rate.

    Args:
        evidence: p value of each candidate so far.
        accepted: which of them were accepted.
        error: false discovery rate of the stream.
    """
    counted = np.array([CANDIDATE < p <= DISCARDED for p in evidence], int)
    earned = [error / 2, *(error / 2 if index == 0 else error for index in range(sum(accepted)))]
    since = [0, *(index + 1 for index, each in enumerate(accepted) if each)]
    shares = [(counted[start:].sum() + 1) ** -GAMMA_POWER / GAMMA_SUM for start in since]
    return float(min(CANDIDATE, (DISCARDED - CANDIDATE) * np.dot(earned, shares)))


def drift(stored: Stored, values: Floats) -> Floats:
    """Return the sum that a drift raises, after each night; from `ALARM` on something is wrong.

    A night counts by what it is worse than `DRIFT` standard deviations below the baseline, at most `CAP` below it: one
    bad night is no drift. `values`: nights, more is better.
    """
    deviation = np.sqrt(stored.variance * (1 + 1 / stored.num_seeds))
    total, found = 0.0, []
    for below in np.minimum((stored.mean - values) / deviation, CAP):
        total = max(0.0, total + float(below) - DRIFT)
        found.append(total)
    return np.array(found)
