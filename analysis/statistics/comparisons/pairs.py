"""Variants compared, each at the learning rate that validation chose for it, with one error rate for the whole study.

The error rate is Shaffer's procedure (`shaffer`), which knows that equal variants are equal in turn. The test was
chosen by simulation (docs/statistics.md, "Variants compared"; `benchmarks/verdict_simulation.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import comb, nctdtr, ndtri, stdtr, stdtrit

from lr_sweep.analysis.statistics.comparisons.correction import most_equal, pairs_within, shaffer
from lr_sweep.analysis.statistics.comparisons.noise import (
    NO_SPREAD,
    Noise,
    Sampled,
    at_chosen,
    num_known,
    padded,
    undefined_is_nan,
    welch,
)
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    CONFIDENCE,
    Bools,
    Floats,
    Ints,
    arrays_by_cell,
    tuples_in,
)
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary

LEVEL = 1 - CONFIDENCE
"""How often a study of equal variants may name any pair distinguishable."""
OPEN_SEMS = 3.0
"""A rate could as well have been chosen if it is behind by fewer standard errors of the difference of two rates."""
POWER = 0.8
"""Probability with which the further seeds make a difference certain, if it is as large as it seems."""
MOST_FURTHER = 30
"""More further seeds are not counted."""


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
    families = [groups[index] for index in first]
    tests = _tests(summary, found, first, second)
    corrected = shaffer(tests.p_without_luck, families)
    half = stdtrit(tests.dof, (1 + CONFIDENCE) / 2) * tests.sem
    frame = cells.iloc[first][[*GROUP, "variant"]].reset_index(drop=True)
    frame = frame.assign(
        other=cells["variant"].to_numpy()[second],
        num_seeds=found.counts[first].astype(int),
        num_other_seeds=found.counts[second].astype(int),
        difference=tests.difference,
        low=tests.difference - half,
        high=tests.difference + half,
        effect_size=tests.effect_size,
        superiority=superiority(found.values * summary.metric.sign, first, second),
        p=tests.p,
        corrected_p=corrected,
        distinguishable=corrected < LEVEL,
        equal=_are_equal(tests, summary.equal_within),
        further_seeds=math.nan,
    )
    least = frame[["num_seeds", "num_other_seeds"]].min(axis=1)
    frame["note"] = list(map(_note, least, tests.difference, tests.sem))
    open_ = ~(np.isnan(tests.sem) | frame["distinguishable"] | frame["equal"]).to_numpy(bool)
    if open_.any():
        pairs = np.stack([first, second], axis=-1)[open_]
        level = np.full(len(pairs), _next_level(tests.p, corrected, families))
        noise = Noise(*(each[pairs] for each in found.noise))
        frame.loc[open_, "further_seeds"] = further_seeds(
            tests.lead[open_], noise, found.counts[pairs], level
        )
    return frame


class Tests(NamedTuple):
    """Tests of equal means, one entry a pair; NaN: not known."""

    difference: Floats
    """Mean of the first variant less that of the second."""
    sem: Floats
    """Standard error of the difference; NaN: neither variant has any spread."""
    dof: Floats
    luck: Floats
    """Size of the difference of the two variants' luck in the choice of the rate."""
    lead: Floats
    """Size of the difference without this luck."""
    p: Floats
    """Two-sided p value of the difference."""
    p_without_luck: Floats
    """Two-sided p value of the lead."""
    effect_size: Floats
    """Difference in standard deviations of a run."""


def _tests(summary: StudySummary, found: Sampled, first: Ints, second: Ints) -> Tests:
    """Test all pairs: by Welch's t test, or by Fisher's exact test where neither variant has any spread."""
    difference = found.means[first] - found.means[second]
    sem, dof = welch(found.noise, found.counts, first, second)
    luck = choice_luck(_behind(summary), found.noise, found.counts)
    lead = without_luck(summary.metric.sign * difference, luck, first, second)
    sizes = np.maximum(found.noise.size[first], found.noise.size[second])
    several = np.minimum(found.counts[first], found.counts[second]) > 1
    exact = np.isnan(sem) & several & (np.abs(difference) > NO_SPREAD * sizes)
    # Of all ways to label the runs of two equal variants, one has all runs of the first above those of the second.
    by_rank = 2 / comb(found.counts[first] + found.counts[second], found.counts[first])
    with undefined_is_nan():
        p, without = (
            np.where(exact, by_rank, 2 * stdtr(dof, -each / sem))
            for each in (np.abs(difference), lead)
        )
        deviation = np.sqrt((found.noise.variance[first] + found.noise.variance[second]) / 2)
        effect = np.where(exact, math.nan, (found.means[first] - found.means[second]) / deviation)
    return Tests(difference, sem, dof, np.abs(luck[first] - luck[second]), lead, p, without, effect)


def _are_equal(tests: Tests, within: float | None) -> Bools:
    """Return which differences are certainly smaller: two one-sided tests (Schuirmann 1987), Holm's correction."""
    if within is None:
        return np.zeros(len(tests.p), bool)
    with undefined_is_nan():
        p = stdtr(tests.dof, (np.abs(tests.difference) + tests.luck - within) / tests.sem)
    return shaffer(p, range(len(p))) < LEVEL


def _next_level(p: Floats, corrected: Floats, families: Sequence[Hashable]) -> float:
    """Return the level of the next step of Shaffer's procedure: with the pairs that can still be equal."""
    steps = most_equal(tuple(Counter(compress(families, ~np.isnan(p))).values()))
    return float(LEVEL / steps[(corrected < LEVEL).sum()])


def _behind(summary: StudySummary) -> Floats:
    """Return how far the validation mean of each eligible rate is behind the chosen one's, cells x rates."""
    rates = summary.learning_rates
    means = arrays_by_cell(
        rates.assign(mean=summary.metric.sign * rates["validation_mean"])[rates["eligible"]], "mean"
    )
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


def _note(num_seeds: float, difference: float, sem: float) -> str:
    if num_seeds == 0:
        return "a variant without a value"
    if num_seeds == 1:
        return "one seed: no interval, no p"
    if math.isnan(sem):
        return f"no spread between seeds: no interval, {'p by ranks' if difference else 'no p'}"
    few = "two seeds: their noise is hardly known" if num_seeds == 2 else ""
    noisy = "noise larger than the difference" if abs(difference) < sem else ""
    return "; ".join(filter(None, [few, noisy]))


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
