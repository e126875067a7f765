"""Variants compared, each at the learning rate that validation chose for it, with one error rate for the whole study.

The error rate is Shaffer's procedure (`shaffer`), which knows that equal variants are equal in turn. The test was
chosen by simulation (docs/statistics.md, "Variants compared"; `benchmarks/verdict_simulation.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from functools import cache, lru_cache, reduce
from itertools import combinations, compress
from operator import or_

import numpy as np
import pandas as pd
from scipy.special import comb, nctdtr, ndtri, stdtr, stdtrit

from lr_sweep.analysis.statistics.comparisons.noise import (
    NO_SPREAD,
    Noise,
    Sampled,
    at_chosen,
    cell_noise,
    num_known,
    padded,
    undefined_is_nan,
    welch,
)
from lr_sweep.analysis.statistics.selection.best import CELL, CONFIDENCE, Bools, Floats, Ints, arrays_by_cell, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary

LEVEL = 1 - CONFIDENCE
"""How often a study of equal variants may name any pair distinguishable."""
OPEN_SEMS = 3.0
"""A rate could as well have been chosen if it is behind by fewer standard errors of the difference of two rates."""
LEAST_CORRELATION = 0.25
"""Correlation of the variants' values by seed: below it, comparing by seed loses more freedom than noise."""
POWER = 0.8
"""Probability with which the further seeds make a difference certain, if it is as large as it seems."""
MOST_FURTHER = 30
"""More further seeds are not counted."""
MOST_VARIANTS = 30
"""With more variants, any part of the pairs may be equal: Holm's procedure, which differs little then."""


@lru_cache(maxsize=2)
def comparisons(summary: StudySummary) -> pd.DataFrame:
    """Compare the mean test accuracies of every two variants of a task and model.

    Returns:
        One row a task, model and pair; NaN: not known. The luck of the choice of the two learning rates is in none of
        `difference`, `low`, `high` and `p`, but in what follows these (`choice_luck`).

        - `task`, `model`, `variant`, `other`; `num_seeds` and `num_other_seeds`, with a value;
        - `difference`: mean of `variant` less that of `other`; `low` and `high`: its 95% interval, for this pair alone
          (fractions);
        - `effect_size`: the difference in standard deviations of a run; `superiority`: how often a run of `variant` is
          better than one of `other`;
        - `p`: of Welch's t test, two-sided; of Fisher's exact test where neither of two variants has any spread;
          `corrected_p`: over the family, all pairs of all tasks and models; `distinguishable`: whether that is below
          `LEVEL`;
        - `equal`: whether the difference is certainly within `StudySummary.equal_within`, by two one-sided tests over
          the same family;
        - `further_seeds`: of each of the two, that would make the difference certain (see `further_seeds`); NaN:
          it is, or they are certainly equal;
        - `note`.
    """
    cells, found = summary.cells, at_chosen(summary)
    groups = list(tuples_in(cells[GROUP]))
    first, second = pairs_within(groups)
    counts, spread, of_pairs = found.counts, found.noise.variance, [groups[index] for index in first]
    difference, sem, dof, apart = differences(summary, found, first, second)
    with undefined_is_nan():
        effect = (found.means[first] - found.means[second]) / np.sqrt((spread[first] + spread[second]) / 2)
        p = 2 * stdtr(dof, -np.abs(difference) / sem)
        luck = choice_luck(_behind(summary), found.noise, counts)
        lead = without_luck(summary.metric.sign * difference, luck, first, second)
        without = 2 * stdtr(dof, -lead / sem)
        least = np.minimum(counts[first], counts[second])
        sizes = np.maximum(found.noise.size[first], found.noise.size[second])
        ranked = np.isnan(sem) & (least > 1) & (np.abs(difference) > NO_SPREAD * sizes)
        by_rank = 2 / _orders(counts[first], counts[second], is_paired(summary) & ~apart)
        p, without = (np.where(ranked, by_rank, each) for each in (p, without))
        effect[ranked] = math.nan
        corrected, equal = shaffer(without, of_pairs), np.zeros(len(p), bool)
        if (within := summary.equal_within) is not None:  # two one-sided tests (Schuirmann 1987), Holm's correction
            most = np.abs(difference) + np.abs(luck[first] - luck[second])
            equal = shaffer(stdtr(dof, (most - within) / sem), range(len(p))) < LEVEL
    half = stdtrit(dof, (1 + CONFIDENCE) / 2) * sem
    frame = cells.iloc[first][[*GROUP, "variant"]].reset_index(drop=True)
    frame = frame.assign(
        other=cells["variant"].to_numpy()[second],
        num_seeds=counts[first].astype(int),
        num_other_seeds=counts[second].astype(int),
        **{"difference": difference, "low": difference - half, "high": difference + half, "effect_size": effect},
        superiority=superiority(found.values * summary.metric.sign, first, second),
        **{"p": p, "corrected_p": corrected, "distinguishable": corrected < LEVEL, "equal": equal},
        further_seeds=math.nan,
        note=list(map(_note, least, difference, sem, apart)),
    )
    open_ = ~(np.isnan(sem) | (corrected < LEVEL) | equal)
    if open_.any():
        steps = most_equal(tuple(Counter(compress(of_pairs, ~np.isnan(p))).values()))
        level = np.full(open_.sum(), LEVEL / steps[(corrected < LEVEL).sum()])  # of the next step of the family
        pairs = np.stack([first, second], axis=-1)[open_]
        noise = Noise(*(each[pairs] for each in found.noise))
        frame.loc[open_, "further_seeds"] = further_seeds(lead[open_], noise, counts[pairs], level)
    return frame


def _behind(summary: StudySummary) -> Floats:
    """Return how far the validation mean of each eligible rate is behind the chosen one's, cells x rates."""
    rates = summary.learning_rates
    means = arrays_by_cell(rates.assign(mean=summary.metric.sign * rates["validation_mean"])[rates["eligible"]], "mean")
    nothing = [np.empty(0)]
    each = padded([means.get(cell, nothing)[0] for cell in tuples_in(summary.cells[CELL])])
    return np.fmax.reduce(each, -1, keepdims=True, initial=-math.inf) - each


def choice_luck(behind: Floats, noise: Noise, counts: Floats) -> Floats:
    """Return by how much the choice of a rate raises the mean of each cell: the test shares the runs' luck.

    That is what the best of k equal rates is expected to have, in standard errors (Blom 1958). Counted are the rates
    that could as well have been chosen.

    Args:
        behind: cells x rates, how far the validation mean of each is behind the chosen one's; NaN: no such rate.
        noise: of each cell.
        counts: seeds of each.
    """
    with undefined_is_nan():
        sem = np.sqrt(noise.variance / counts)
        num_rates = np.maximum((behind < OPEN_SEMS * math.sqrt(2) * sem[..., None]).sum(-1), 1)
    return sem * ndtri((num_rates - 3 / 8) / (num_rates + 1 / 4))


def without_luck(difference: Floats, luck: Floats, first: Ints, second: Ints) -> Floats:
    """Return the size of each pair's difference less what its leader's luck is above the other's, at least 0.

    The luck of equally noisy variants cancels; a noisy variant beside a quiet one has more. `difference`: positive
    where the first leads.
    """
    more = np.sign(difference) * (luck[..., first] - luck[..., second])
    return np.maximum(np.abs(difference) - np.fmax(more, 0.0), 0.0)


@lru_cache(maxsize=2)
def seed_correlation(summary: StudySummary) -> float:
    """Return the correlation of the variants' values by seed, over all pairs, at the chosen rates and beside them.

    NaN: no two variants share seeds.
    """
    windows = at_chosen(summary).windows
    groups = list(tuples_in(summary.cells[GROUP]))
    ones, others = (windows[index] for index in pairs_within(groups))
    both = ~np.isnan(ones + others)
    counts = both.sum(-1, keepdims=True)
    with undefined_is_nan():
        away = [np.where(both, x - np.where(both, x, 0.0).sum(-1, keepdims=True) / counts, 0.0) for x in (ones, others)]
        found = (away[0] * away[1]).sum(-1) / np.sqrt((away[0] ** 2).sum(-1) * (away[1] ** 2).sum(-1))
    known = found[np.isfinite(found)]
    return float(known.mean()) if len(known) else math.nan


def is_paired(summary: StudySummary) -> bool:
    """Return whether runs are compared by seed: if that was asked for, and seeds are seen to move variants alike."""
    return summary.paired and seed_correlation(summary) >= LEAST_CORRELATION


def differences(
    summary: StudySummary, found: Sampled, first: Ints, second: Ints
) -> tuple[Floats, Floats, Floats, Bools]:
    """Return differences of means, their standard errors and degrees of freedom, and which are not by seed as asked."""
    difference, apart = found.means[first] - found.means[second], np.zeros(len(first), bool)
    sem, dof = welch(found.noise, found.counts, first, second)
    if is_paired(summary):
        apart = (np.isnan(found.values[first]) != np.isnan(found.values[second])).any(-1)
        with undefined_is_nan():
            difference, sem, dof = np.where(apart, (difference, sem, dof), _by_seed(found, first, second))
    return difference, sem, dof, apart


def _by_seed(found: Sampled, first: Ints, second: Ints) -> tuple[Floats, Floats, Floats]:
    """Return the mean differences of runs that share a seed, their standard errors and degrees of freedom."""
    differences = found.windows[first] - found.windows[second]
    sizes = np.maximum(found.noise.size[first], found.noise.size[second])
    noise = cell_noise(differences, sizes)
    counts = num_known(differences[:, 0])
    sem = np.sqrt(noise.variance / counts)
    known = sem > NO_SPREAD * sizes
    means = np.nansum(differences[:, 0], -1) / counts
    return means, np.where(known, sem, np.nan), np.where(known, noise.dof, np.nan)


def _orders(first: Floats, second: Floats, by_seed: Bools) -> Floats:
    """Return in how many ways the runs of two equal variants may be labelled, each as likely (Fisher 1935).

    In one of these ways all runs of the first are above all of the second. By seed, the two labels of a seed change.
    """
    return np.where(by_seed, 2.0**first, comb(first + second, first))


def _note(num_seeds: float, difference: float, sem: float, apart: bool) -> str:
    if num_seeds == 0:
        return "a variant without a value"
    if num_seeds == 1:
        return "one seed: no interval, no p"
    if math.isnan(sem):
        return f"no spread between seeds: no interval, {'p by ranks' if difference else 'no p'}"
    few = "two seeds: their noise is hardly known" if num_seeds == 2 else ""
    noisy = "noise larger than the difference" if abs(difference) < sem else ""
    return "; ".join(filter(None, [few, noisy, "not by seed: some have no partner" if apart else ""]))


def superiority(values: Floats, first: Ints, second: Ints) -> Floats:
    """Return how often a run of each pair's first cell is above one of its second, ties counting half.

    That is the statistic of Mann and Whitney 1947. NaN: either has no value. `values`: cells x seeds; NaN: none.
    """
    ones, others = values[first], values[second]
    won = number = np.zeros(len(first))
    for run in ones.T:
        above = np.heaviside(run[:, None] - others, 0.5)
        won, number = won + np.nansum(above, -1), number + num_known(above)
    with undefined_is_nan():
        return won / number


def further_seeds(difference: Floats, noise: Noise, counts: Floats, level: Floats) -> Floats:
    """Return how many more seeds of both of two cells make their difference certain with probability `POWER`.

    Assumed is that the difference and the noise are what they seem: of a difference that is by luck too large the
    number is too small, and the other way round.

    Args:
        difference: of the two means, one a pair.
        noise: pairs x 2; degrees of freedom grow with the seeds.
        counts: their seeds, pairs x 2.
        level: two-sided, of the test of each pair.

    Returns:
        At least 1; infinity: more than `MOST_FURTHER`.
    """
    needed = np.full(len(difference), np.inf)
    for more in range(MOST_FURTHER, 0, -1):
        later = counts + more
        grown = noise._replace(dof=noise.dof * (later - 1) / (counts - 1))
        sem, dof = (found[:, 0] for found in welch(grown, later, np.array([0]), np.array([1])))
        power = 1 - nctdtr(dof, np.abs(difference) / sem, -stdtrit(dof, level / 2))
        needed[power >= POWER] = more
    return needed


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
        found.append({pairs_of(part) + rest for part in range(1, size + 1) for rest in found[size - part]})
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
