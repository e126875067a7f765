"""Pairs of variants, and the correction of their p values for the number of pairs (Shaffer 1986)."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from functools import cache, reduce
from itertools import combinations
from operator import or_

import numpy as np

from lr_sweep.analysis.statistics.selection.best import Floats, Ints

MOST_VARIANTS = 30
"""With more variants, any part of the pairs may be equal: Holm's procedure, which differs little then."""


def shaffer(p_values: Floats, groups: Sequence[Hashable]) -> Floats:
    """Correct p values of pairs of variants (Shaffer 1986, the static form): reject where the result is below a level.

    Of 4 variants 6 pairs can be equal, or 3, 2, 1 and none: once a pair differs, at most 3 of the other 5 are equal.
    So the smallest p is multiplied by 6, the next three by 3, where Holm's procedure takes 5, 4 and 3.

    Args:
        p_values: one a pair; NaN stays NaN, uncounted.
        groups: what each pair is of; the pairs of one group are all pairs of its variants.
    """
    known = np.flatnonzero(~np.isnan(p_values))
    numbers: dict[Hashable, int] = {}
    for index in known.tolist():
        numbers[groups[index]] = numbers.get(groups[index], 0) + 1
    order = known[np.argsort(p_values[known], kind="stable")]
    corrected = np.full(len(p_values), math.nan)
    scaled = p_values[order] * most_equal(tuple(numbers.values()))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return corrected


@cache
def most_equal(numbers: tuple[int, ...]) -> Ints:
    """Return how many pairs can be equal at most, once none, one, two, ... of them are known to differ.

    `numbers` are of the pairs of each group of variants, as (6, 6): two tasks of 4 variants each. Of a number that is
    not all pairs of some variants, any part may be equal.
    """
    total = sum(numbers)
    left = np.arange(total, 0, -1)
    if max(numbers, default=0) > pairs_of(MOST_VARIANTS):
        return left
    reachable = 1  # as bits: bit n stands for n equal pairs
    for number in numbers:
        reachable = reduce(or_, (reachable << more for more in _possible(number)))
    packed = np.frombuffer(reachable.to_bytes(total // 8 + 1, "little"), np.uint8)
    is_reachable = np.unpackbits(packed, count=total + 1, bitorder="little")
    most = np.maximum.accumulate(np.where(is_reachable, np.arange(total + 1), 0))
    return most[:0:-1]


@cache
def _possible(num_pairs: int) -> Collection[int]:
    """Return how many pairs can be equal: all partitions of the variants into classes of equal ones."""
    num_variants = round((1 + math.sqrt(1 + 8 * num_pairs)) / 2)
    if pairs_of(num_variants) != num_pairs:
        return range(num_pairs + 1)
    found: list[set[int]] = [{0}]
    for size in range(1, num_variants + 1):
        found.append(
            {pairs_of(part) + rest for part in range(1, size + 1) for rest in found[size - part]}
        )
    return found[num_variants]


def pairs_within(groups: Sequence[Hashable]) -> tuple[Ints, Ints]:
    """Return the indices of the first and of the second of every two members of a group, group by group."""
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    pairs = [pair for each in members.values() for pair in combinations(each, 2)]
    first, second = np.array(pairs, int).reshape(-1, 2).T
    return first, second


def pairs_of(num_variants: int) -> int:
    """Return the number of pairs: 6 of 4."""
    return math.comb(num_variants, 2)
