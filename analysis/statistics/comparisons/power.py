"""How large a difference of two variants must be for a comparison to find it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, nctdtrinc, stdtrit

from lr_sweep.analysis.statistics.selection.best import Floats

from .correction import LEVEL
from .noise import ENOUGH_SEEDS
from .pair_tests import FEWEST_SEEDS

POWER = 0.8
"""Share of studies in which a difference is to be found."""
POOLED_RATES = 2
"""Learning rates whose runs, in effect, show the noise of a variant with few seeds. The noise is pooled over three
rates, but never below that of the rate itself."""
NUM_QUANTILES = 200
"""Quantiles of a distribution over which a function is averaged."""


def findable_difference(sem: Floats, dof: Floats, level: Floats) -> Floats:
    """Return the true difference that a two-sided t test finds in 80% of studies.

    Args:
        sem: standard error of the difference.
        dof: its degrees of freedom.
        level: level of the test.
    """
    critical = -stdtrit(dof, level / 2)
    difference: Floats = sem * nctdtrinc(dof, 1 - POWER, critical)
    return difference


def findable(
    noise: ArrayLike,
    num_seeds: ArrayLike,
    num_pairs: ArrayLike,
    *,
    is_fresh: bool,
) -> Floats:
    """Return the true difference of two variants that a study finds with probability 80%.

    Welch's t test compares variants of equal noise at the first step of Holm's correction.

    Args:
        noise: standard deviation of a run.
        num_seeds: seeds of each variant; fewer than three find no difference: infinity.
        num_pairs: pairs of variants that the study compares.
        is_fresh: whether the seeds are fresh; else the noise of few seeds is pooled.
    """
    seeds = np.asarray(num_seeds)
    num_rates = np.where((seeds < ENOUGH_SEEDS) & (not is_fresh), POOLED_RATES, 1)
    dof = num_rates * (np.maximum(seeds, FEWEST_SEEDS) - 1.0)
    sem = np.asarray(noise) * np.sqrt(2 / seeds)
    level = LEVEL / np.asarray(num_pairs)
    critical = -stdtrit(_welch_dof(dof), level[..., None] / 2).mean(-1)
    difference = sem * nctdtrinc(2 * dof, 1 - POWER, critical)
    return np.where(seeds < FEWEST_SEEDS, np.inf, difference)


def _welch_dof(dof: Floats) -> Floats:
    """Return quantiles of the degrees of freedom that Welch's test has for equal noise: ... x 200.

    They depend on the two sample variances, which have `dof` each: the share of the first one in
    their sum has a beta distribution.
    """
    half = dof[..., None] / 2
    probabilities = (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES
    share = betaincinv(half, half, probabilities)
    quantiles: Floats = dof[..., None] / (share**2 + (1 - share) ** 2)
    return quantiles
