"""Pairs of variants, and the correction of their p values for the number of pairs (Holm 1979)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations

import numpy as np

from lr_sweep.analysis.statistics.selection.best import CONFIDENCE, Floats, Ints

LEVEL = 1 - CONFIDENCE
"""Largest share of studies of equal variants in which some pair is called different."""


def holm(p_values: Floats) -> Floats:
    """Correct p values: a pair is significant if its corrected p is below `LEVEL`.

    The smallest of m p values is multiplied by m, the next one by m - 1, and so on; no result is
    smaller than the one before it. NaN stays NaN, and is not counted.
    """
    return np.minimum(_scaled(p_values), 1.0)


def levels_of(p_values: Floats) -> Floats:
    """Return the level at which Holm's procedure tests each p value.

    An interval at this level excludes 0 exactly where the corrected p is below `LEVEL`.
    """
    positive = np.maximum(p_values, np.finfo(float).tiny)
    levels: Floats = LEVEL * positive / _scaled(positive)
    return levels


def _scaled(p_values: Floats) -> Floats:
    order = np.argsort(p_values, kind="stable")  # NaN last
    num_known = int((~np.isnan(p_values)).sum())
    factors = np.maximum(num_known - np.arange(len(p_values)), 1)
    scaled = np.empty(len(p_values))
    scaled[order] = np.maximum.accumulate(p_values[order] * factors)
    return scaled


def pairs_within(groups: Sequence[Hashable]) -> tuple[Ints, Ints]:
    """Return the indices of the first and of the second of every two members of a group."""
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    pairs = [pair for indices in members.values() for pair in combinations(indices, 2)]
    first, second = np.array(pairs, int).reshape(-1, 2).T
    return first, second
