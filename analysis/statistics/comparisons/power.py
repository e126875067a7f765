"""How large a difference of two variants must be for a comparison to find it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import nctdtrinc, stdtrit

from lr_sweep.analysis.statistics.comparisons.correction import LEVEL
from lr_sweep.analysis.statistics.comparisons.pair_tests import FEWEST_SEEDS
from lr_sweep.analysis.statistics.selection.best import Floats

POWER = 0.8
"""Share of studies in which a difference is to be found."""


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


def findable(noise: ArrayLike, num_seeds: ArrayLike, num_pairs: ArrayLike) -> Floats:
    """Return the true difference of two variants that a study finds with probability 80%.

    Welch's t test compares variants of equal noise at the first step of Holm's correction.

    Args:
        noise: standard deviation of a run.
        num_seeds: seeds of each variant; fewer than three find no difference: infinity.
        num_pairs: pairs of variants that the study compares.
    """
    seeds = np.asarray(num_seeds)
    dof = 2.0 * np.maximum(seeds, FEWEST_SEEDS) - 2
    sem = np.asarray(noise) * np.sqrt(2 / seeds)
    difference = findable_difference(sem, dof, LEVEL / np.asarray(num_pairs))
    return np.where(seeds < FEWEST_SEEDS, np.inf, difference)
