"""Pairs of variants, and the correction of their p values for the number of pairs (Holm 1979)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.selection.best import (
    CONFIDENCE,
    Floats,
    Ints,
    rounded,
)

LEVEL = 1 - CONFIDENCE
"""Largest share of studies of equal variants in which some pair is called different."""

MOST_VARIANTS = 60
"""Variants of a task and model up to which every two are compared; of more, each with the best one alone."""


def holm(p_values: Floats) -> Floats:
    """Correct p values: a pair is significant if its corrected p is below `LEVEL`.

    The smallest of m p values is multiplied by m, the next one by m - 1, and so on; no result is
    smaller than the one before it. NaN stays NaN, and is not counted.
    """
    return np.minimum(_scaled(p_values), 1.0)


def levels_of(
    p_values: Floats,
    num_untested: int = 0,
) -> Floats:
    """Return the level at which Holm's procedure tests each p value.

    An interval at this level excludes 0 exactly where the corrected p is below `LEVEL`. `num_untested`: pairs that were
    left out, as their means differ less; they count all the same.
    """
    positive = np.maximum(p_values, np.finfo(float).tiny)
    levels: Floats = LEVEL * positive / _scaled(positive, num_untested)
    return levels


def _scaled(p_values: Floats, num_untested: int = 0) -> Floats:
    order = np.argsort(p_values, kind="stable")  # NaN last
    num_known = int((~np.isnan(p_values)).sum()) + num_untested
    factors = np.maximum(num_known - np.arange(len(p_values)), 1)
    scaled = np.empty(len(p_values))
    scaled[order] = np.maximum.accumulate(p_values[order] * factors)
    return scaled


class Pairs(NamedTuple):
    """The pairs of cells that are compared, by their places in a frame of cells."""

    first: Ints
    second: Ints
    num_untested: int = 0
    """Pairs of a task and model that are left out, where it has too many variants."""


def pairs_within(groups: Sequence[Hashable]) -> tuple[Ints, Ints]:
    """Return the places of the first and of the second of every two members of a group."""
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    pairs = [pair for places in members.values() for pair in combinations(places, 2)]
    first, second = np.array(pairs, int).reshape(-1, 2).T
    return first, second


def compared_pairs(cells: pd.DataFrame, sign: int) -> Pairs:
    """Return every two variants of a task and model; of more than `MOST_VARIANTS`, the best one with each other.

    `cells`: `StudySummary.cells`. `sign`: as of `Metric.sign`.
    """
    groups = cells.groupby(["task", "model"], sort=False).ngroup().to_numpy()
    first, second = pairs_within(groups.tolist())
    means = pd.Series(rounded(sign * cells["test_mean"].to_numpy(float))).groupby(groups)
    is_best = means.rank(method="first", ascending=False).eq(1).to_numpy()
    is_small = means.transform("size").le(MOST_VARIANTS).to_numpy()
    is_compared = is_small[first] | is_best[first] | is_best[second]
    num_untested = int((~is_compared).sum())
    return Pairs(first[is_compared], second[is_compared], num_untested)
