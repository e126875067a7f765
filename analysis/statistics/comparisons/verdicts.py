"""The verdict on each task and model: what is best when tuned, and what a comparison at one fixed rate would have said.

Test accuracies are read here; nothing is chosen by them (Rothermel et al. 2021, sections 3 and 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.comparisons.orders import orders, ranked_means
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary

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


@lru_cache(maxsize=2)
def verdicts(summary: StudySummary) -> pd.DataFrame:
    """Say for each task and model which variant is best when tuned, and which at a fixed learning rate.

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
        - `strongest`: the `Flip` with the largest difference to the leader, of all learning rates; None: there is none;
        - `num_rates`, that were tried; `num_others`, where another variant has the best mean, and `num_sure` of these.
    """
    rows_of = dict(list(orders(summary).dropna(subset=["learning_rate"]).groupby(GROUP, sort=False)))
    found = []
    for labels, _, best, leads in ranked(summary):
        tried = rows_of[labels["task"], labels["model"]].to_dict("records")
        turned = [flip for row in tried for flip in row["flips"] if flip.better == next(iter(best), "")]
        strongest = max(turned, key=lambda flip: summary.metric.sign * flip.difference, default=None)
        others = [row["sure"] for row in tried if row["kind"] == "winner"]
        counts = {"num_rates": len(tried), "num_others": len(others), "num_sure": sum(others)}
        at_fixed = _at_fixed(tried, best) | {"strongest": strongest}
        found.append(labels | {"best": best, "leads": leads} | at_fixed | counts)
    return pd.DataFrame(found)


def ranked(
    summary: StudySummary,
) -> Iterator[tuple[dict[str, str], StudySummary, tuple[str, ...], tuple[Lead, ...]]]:
    """Yield each task and model with its summary, and `best` and `leads` of `verdicts`."""
    compared = comparisons(summary)
    for labels, group in summary.groups():
        tuned = list(ranked_means(group.cells, group.metric))
        here = (compared["task"] == labels["task"]) & (compared["model"] == labels["model"])
        leader = next(iter(tuned), "")
        pairs = _pairs(compared[here & (compared["variant"].eq(leader) | compared["other"].eq(leader))])
        leads = tuple(pairs[tuned[0], other] for other in tuned[1:])
        yield labels, group, (*tuned[:1], *(lead.over for lead in leads if not lead.distinguishable)), leads


def fixed_rate(num_variants: Mapping[float, int]) -> float:
    """Return the rate at which a study of one learning rate would have compared a task's variants; NaN: none.

    Among the rates where the most variants have a value: the nearest to that of Lu et al. 2021 (in the logarithm), or
    the middle one (of two the smaller) where theirs lies outside.

    `num_variants`: with a value at each learning rate, rising.
    """
    most = max(num_variants.values(), default=0)
    shared = [rate for rate, number in num_variants.items() if number == most > 0]
    if not shared:
        return math.nan
    if shared[0] <= LU2021_LEARNING_RATE <= shared[-1]:
        return min(shared, key=lambda rate: abs(math.log(rate / LU2021_LEARNING_RATE)))
    return shared[(len(shared) - 1) // 2]


def _at_fixed(tried: Sequence[Row], best: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns of `verdicts` on the fixed rate; `tried`: rows of `orders.orders` at the learning rates."""
    rate = fixed_rate({row["learning_rate"]: len(row["means"]) for row in tried})
    at_rate: Row = next((row for row in tried if row["learning_rate"] == rate), {"means": {}, "flips": ()})
    means: Mapping[str, float] = at_rate["means"]
    leader, top = next(iter(best), ""), next(iter(means), "")
    fixed_best = leader if leader in means and means[leader] == means[top] else top
    others = [mean for variant, mean in means.items() if variant != leader]
    ahead = means[leader] - others[0] if leader in means and others else math.nan
    tested = (leader, fixed_best) in [(flip.better, flip.worse) for flip in at_rate["flips"]]
    is_flip = bool(fixed_best) and fixed_best not in best and (leader not in means or tested)
    return {"fixed_rate": rate, "fixed_best": fixed_best, "fixed_difference": ahead, "flips": is_flip}


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
