"""The verdict on each task and model: what is best when tuned, and what a comparison at one fixed rate would have said.

Test accuracies are read here; nothing is chosen by them (Rothermel et al. 2021, sections 3 and 4).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.aggregate import GROUP, StudySummary
from lr_sweep.analysis.statistics.orders import mean_tests

LU2021_LEARNING_RATE = 1e-3
"""The one learning rate of Lu et al. 2021 (all tasks but homology), the dashed line of Rothermel et al., Figure 1."""
DIFFERENCE = ("difference", "low", "high")


class Lead(NamedTuple):
    """By how much a variant's mean is above another's, with its interval as in `comparisons`; NaN: not known."""

    over: str
    difference: float
    low: float
    high: float
    distinguishable: bool
    """Whether the difference can be distinguished from 0."""
    equal: bool
    """Whether it is certainly within `StudySummary.equal_within`."""
    num_seeds: int
    """The fewer of both."""
    further_seeds: float
    """As of `comparisons`."""


class Flip(NamedTuple):
    """Where a variant is distinguishably ahead of the tuned leader."""

    learning_rate: float
    winner: str
    difference: float
    """Of the winner less the leader there."""
    low: float
    high: float


def verdicts(summary: StudySummary, compared: pd.DataFrame, tested: pd.DataFrame) -> pd.DataFrame:
    """Say for each task and model which variant is best when tuned, and which at a fixed learning rate.

    Args:
        summary: of the study.
        compared: the result of `comparisons.comparisons` of it.
        tested: the result of `flips.flips` of both.

    Returns:
        One row a task and model. Differences are of mean test accuracy (fractions; of a metric to minimise the better
        variant's is negative); NaN: not known.

        - `task`, `model`;
        - `best`: tuple of variants, from best to worst tuned mean: the leader, and those that cannot be distinguished
          from it; empty if no variant has a value;
        - `leads`: a `Lead` over each other variant with a value, from the second best on;
        - `fixed_rate`: 1e-3, as in Lu et al. 2021, where it was tried; else the rate nearest to it of those tried, or
          the middle one where 1e-3 lies outside them (see `fixed_rate`);
        - `fixed_best`: the variant with the best mean at that rate; of equal ones the leader; empty: no value there;
        - `fixed_difference`: the leader's mean at that rate less that of the best other variant there;
        - `flips`: whether the fixed rate would have concluded the opposite: `fixed_best` is none of `best`, and there
          distinguishably ahead of the leader, or the leader has no value there;
        - `strongest`: the `Flip` with the largest difference to the leader, of all learning rates; None: there is none.
    """
    found = []
    for labels, group, best, leads in ranked(summary, compared):
        turned = _flips(tested, labels, best)
        at_fixed = _at_fixed(group, best, {(flip.learning_rate, flip.winner) for flip in turned})
        strongest = max(turned, key=lambda flip: summary.metric.sign * flip.difference, default=None)
        found.append(labels | {"best": best, "leads": leads} | at_fixed | {"strongest": strongest})
    fixed = ["fixed_rate", "fixed_best", "fixed_difference", "flips", "strongest"]
    return pd.DataFrame(found, columns=[*GROUP, "best", "leads", *fixed])


def ranked(
    summary: StudySummary, compared: pd.DataFrame
) -> Iterator[tuple[dict[str, str], StudySummary, tuple[str, ...], tuple[Lead, ...]]]:
    """Yield each task and model with its summary, and `best` and `leads` of `verdicts`."""
    for labels, group in summary.groups():
        tuned = list(_ranked(group.cells, group.metric))
        here = (compared["task"] == labels["task"]) & (compared["model"] == labels["model"])
        leader = next(iter(tuned), "")
        pairs = _pairs(compared[here & (compared["variant"].eq(leader) | compared["other"].eq(leader))])
        leads = tuple(pairs[tuned[0], other] for other in tuned[1:])
        yield labels, group, (*tuned[:1], *(lead.over for lead in leads if not lead.distinguishable)), leads


def fixed_rate(rates: pd.DataFrame) -> float:
    """Return the rate at which a study of one learning rate would have compared a task's variants; NaN: none.

    Among the rates where the most variants have a value: the nearest to that of Lu et al. 2021 (in the logarithm), or
    the middle one (of two the smaller) where theirs lies outside.

    Args:
        rates: rows of `StudySummary.learning_rates` of one task and model.
    """
    variants = rates.dropna(subset=["test_mean"]).groupby("learning_rate")["variant"].nunique()
    if variants.empty:
        return math.nan
    shared = sorted(float(rate) for rate in variants[variants == variants.max()].index)
    if shared[0] <= LU2021_LEARNING_RATE <= shared[-1]:
        return min(shared, key=lambda rate: abs(math.log(rate / LU2021_LEARNING_RATE)))
    return shared[(len(shared) - 1) // 2]


def _flips(tested: pd.DataFrame, labels: Mapping[str, str], best: tuple[str, ...]) -> list[Flip]:
    """Return the flips that are against the leader."""
    here = tested["flips"] & (tested["task"] == labels["task"]) & (tested["model"] == labels["model"])
    rows = tested[here & (tested["better"] == next(iter(best), ""))]
    return [Flip(*row) for row in rows[["learning_rate", "worse", *DIFFERENCE]].itertuples(index=False)]


def _at_fixed(group: StudySummary, best: tuple[str, ...], tested: Collection[tuple[float, str]]) -> dict[str, Any]:
    rate = fixed_rate(group.learning_rates)
    means = _ranked(group.learning_rates[group.learning_rates["learning_rate"] == rate], group.metric)
    leader = next(iter(best), "")
    top = next(iter(means), "")
    fixed_best = leader if leader in means and means[leader] == means[top] else top
    others = [mean for variant, mean in means.items() if variant != leader]
    ahead = means[leader] - others[0] if leader in means and others else math.nan
    flips = bool(fixed_best) and fixed_best not in best and (leader not in means or (rate, fixed_best) in tested)
    return {"fixed_rate": rate, "fixed_best": fixed_best, "fixed_difference": ahead, "flips": flips}


def _ranked(rows: pd.DataFrame, metric: Metric) -> dict[str, float]:
    """Return the mean test accuracy of each variant with a value, best first; equal ones in the study's order."""
    return dict(sorted(mean_tests(rows).items(), key=lambda item: -metric.sign * item[1]))


def _pairs(compared: pd.DataFrame) -> dict[tuple[str, str], Lead]:
    """Return how each variant compares with each other one."""
    found = {}
    seeds = ["num_seeds", "num_other_seeds"]
    kept = compared[["variant", "other", *DIFFERENCE, "distinguishable", "equal", *seeds, "further_seeds"]]
    for one, other, difference, low, high, apart, equal, *both, further in kept.itertuples(index=False, name=None):
        how = bool(apart), bool(equal), min(both)
        found[one, other] = Lead(other, difference, low, high, *how, further)
        found[other, one] = Lead(one, -difference, -high, -low, *how, further)
    return found
