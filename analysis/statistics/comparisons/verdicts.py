"""The verdict on each task and model: what is best when tuned, and what a comparison at one fixed rate would have said.

The point of Rothermel et al. 2021 (sections 3 and 4): at 1e-3 the variants ranked in another order than at their own
best learning rates. The verdict, the chart's handle and the table of orders read one frame, that of `orders`. Test
accuracies are read here; nothing is chosen by them.

A higher mean at one of nine rates is no conclusion: of equal variants the one that is worse when tuned is ahead at some
rate in nearly every study. A flip is one where its lead at that rate can be distinguished from none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, product
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.comparisons.correction import shaffer
from lr_sweep.analysis.statistics.comparisons.noise import (
    Sampled,
    cell_values,
    sampled,
    undefined_is_nan,
    welch,
)
from lr_sweep.analysis.statistics.comparisons.pairs import LEVEL, comparisons
from lr_sweep.analysis.statistics.selection.best import CONFIDENCE, Cell, Ints, rounded, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, OUTCOMES, StudySummary

LU2021_LEARNING_RATE = 1e-3
"""The one learning rate of Lu et al. 2021 (all tasks but homology), the dashed line of Rothermel et al., Figure 1."""
DIFFERENCE = ("difference", "low", "high")

Order = tuple[tuple[str, ...], ...]
"""Variants from best to worst; those in one inner tuple are equal."""
Kind = Literal["same", "order", "winner", "unknown"]
"""Conclusion at a learning rate: the tuned order, another order, another winner, or not comparable with the tuned."""

Conditions = Mapping[Cell, str]
"""By cell, why it may yet be better than its number, as the checks say (`CheckFinding.condition`)."""


class Lead(NamedTuple):
    """By how much a variant's mean is above another's, with its interval as in `comparisons`; NaN: not known."""

    over: str
    difference: float
    low: float
    high: float
    distinguishable: bool
    equal: bool
    """Whether it is certainly within `StudySummary.equal_within`."""
    num_seeds: int
    """The fewer of both."""
    further_seeds: float
    """As of `comparisons`."""
    condition: str = ""
    """Why the other variant may yet be better; empty: nothing says so."""

    @property
    def certain(self) -> bool:
        """Whether the other variant is worse, and tuned well enough for that to stay."""
        return self.distinguishable and not self.condition


class Certain(NamedTuple):
    """The largest certain statement on a task and model: each of `winners` beats each of `losers`."""

    winners: tuple[str, ...]
    losers: tuple[str, ...]
    differences: tuple[float, float]
    """The smallest and the largest of a winner's mean less a loser's."""


def verdicts(summary: StudySummary, conditions: Conditions = MappingProxyType({})) -> pd.DataFrame:
    """Say for each task and model which variant is best when tuned, and which at a fixed learning rate.

    Returns:
        One row a task and model. Differences are of mean test accuracy (fractions; of a metric to minimise the better
        variant's is negative); NaN: not known.

        - `task`, `model`;
        - `best`: tuple of variants, from best to worst tuned mean: the leader, and those that cannot be distinguished
          from it; empty if no variant has a value;
        - `leads`: a `Lead` over each other variant with a value, from the second best on;
        - `certain`: the `Certain` statement; None: nothing is certain;
        - `fixed_rate`: 1e-3, as in Lu et al. 2021, where it was tried; else the rate nearest to it of those tried, or
          the middle one where 1e-3 lies outside them (see `fixed_rate`);
        - `fixed_best`: the variant with the best mean at that rate; of equal ones the leader; empty: no value there;
        - `fixed_difference`: the leader's mean at that rate less that of the best other variant there;
        - `flips`: whether the fixed rate would have concluded the opposite: the leader certainly beats `fixed_best`,
          which is there significantly ahead of the leader, or the leader has no value there;
        - `strongest`: the `Flip` with the largest difference to the leader, of all learning rates at which the best
          variant is one that the leader certainly beats; None: there is none;
        - `num_rates`, that were tried; `num_others`, where another variant has the best mean, and `num_sure` of these.
    """
    rows_of = dict(
        list(orders(summary).dropna(subset=["learning_rate"]).groupby(GROUP, sort=False))
    )
    found = []
    for labels, best, leads, certain in ranked(summary, conditions):
        tried, leader = (
            rows_of[labels["task"], labels["model"]].to_dict("records"),
            next(iter(best), ""),
        )
        beaten = {lead.over for lead in leads if lead.certain}
        turned = [flip for row in tried if (flip := _flip_of(leader, beaten, row))]
        strongest = max(
            turned, key=lambda flip: summary.metric.sign * flip.difference, default=None
        )
        others = [row["sure"] for row in tried if row["kind"] == "winner"]
        counts = {"num_rates": len(tried), "num_others": len(others), "num_sure": sum(others)}
        at_fixed = _at_fixed(tried, leader, beaten) | {"strongest": strongest}
        found.append(
            labels | {"best": best, "leads": leads, "certain": certain} | at_fixed | counts
        )
    return pd.DataFrame(found)


def ranked(
    summary: StudySummary, conditions: Conditions = MappingProxyType({})
) -> Iterator[tuple[dict[str, str], tuple[str, ...], tuple[Lead, ...], Certain | None]]:
    """Yield each task and model with `best`, `leads` and `certain` of `verdicts`."""
    compared = with_conditions(comparisons(summary), summary.metric, conditions)
    for labels, group in summary.groups():
        tuned = tuple(ranked_means(group.cells, group.metric))
        here = (compared["task"] == labels["task"]) & (compared["model"] == labels["model"])
        pairs = _pairs(compared[here])
        leads = tuple(pairs[tuned[0], other] for other in tuned[1:])
        best = (*tuned[:1], *(lead.over for lead in leads if not lead.distinguishable))
        yield labels, best, leads, _largest_certain(tuned, pairs) if tuned else None


def with_conditions(compared: pd.DataFrame, metric: Metric, conditions: Conditions) -> pd.DataFrame:
    """Add to the result of `comparisons` the column `condition`: why the worse variant of a pair may yet be better."""
    worse = compared["variant"].where(metric.sign * compared["difference"] < 0, compared["other"])
    cells = zip(compared["task"], compared["model"], worse, strict=True)
    return compared.assign(condition=[conditions.get(cell, "") for cell in cells])


def _largest_certain(
    tuned: tuple[str, ...], pairs: Mapping[tuple[str, str], Lead]
) -> Certain | None:
    """Choose how many to name as winners, for the most pairs: the best, and next ones that it does not certainly beat.

    `tuned`: variants, the best first.
    """
    beaten = [pairs[tuned[0], other].certain for other in tuned[1:]]
    most = 1 + next(iter(np.flatnonzero(beaten)), 0)
    splits = []
    for n in range(1, most + 1):
        beaten_by_all = [
            other for other in tuned[n:] if all(pairs[one, other].certain for one in tuned[:n])
        ]
        splits.append((tuned[:n], tuple(beaten_by_all)))
    winners, losers = max(splits, key=lambda split: len(split[0]) * len(split[1]))
    if not losers:
        return None
    sizes = [pairs[pair].difference for pair in product(winners, losers)]
    return Certain(winners, losers, (min(sizes, key=abs), max(sizes, key=abs)))


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


def _at_fixed(tried: Sequence[Row], leader: str, beaten: Collection[str]) -> dict[str, Any]:
    """Return the columns of `verdicts` on the fixed rate; `tried`: rows of `orders` at the learning rates."""
    rate = fixed_rate({row["learning_rate"]: len(row["means"]) for row in tried})
    at_rate: Row = next(
        (row for row in tried if row["learning_rate"] == rate), {"means": {}, "flips": ()}
    )
    means: Mapping[str, float] = at_rate["means"]
    top = next(iter(means), "")
    fixed_best = leader if leader in means and means[leader] == means[top] else top
    others = [mean for variant, mean in means.items() if variant != leader]
    ahead = means[leader] - others[0] if leader in means and others else math.nan
    is_flip = fixed_best in beaten and (
        leader not in means or bool(_flip_of(leader, beaten, at_rate))
    )
    return {
        "fixed_rate": rate,
        "fixed_best": fixed_best,
        "fixed_difference": ahead,
        "flips": is_flip,
    }


def _flip_of(leader: str, beaten: Collection[str], row: Row) -> Flip | None:
    """Return the flip by which the best variant at a rate is ahead of the leader that beats it when tuned."""
    top = next(iter(row["means"]), "")
    return next(
        (
            flip
            for flip in row["flips"]
            if (flip.better, flip.worse) == (leader, top) and top in beaten
        ),
        None,
    )


def _pairs(compared: pd.DataFrame) -> dict[tuple[str, str], Lead]:
    found = {}
    for row in compared.to_dict("records"):
        one, other, difference, low, high = (
            row[name] for name in ("variant", "other", *DIFFERENCE)
        )
        how = (
            bool(row["distinguishable"]),
            bool(row["equal"]),
            min(row["num_seeds"], row["num_other_seeds"]),
        )
        more = (row["further_seeds"], row["condition"])
        found[one, other] = Lead(other, difference, low, high, *how, *more)
        found[other, one] = Lead(one, -difference, -high, -low, *how, *more)
    return found


class Flip(NamedTuple):
    """A pair at a learning rate where the variant that is worse when tuned has a significant lead."""

    learning_rate: float
    better: str
    """When tuned."""
    worse: str
    difference: float
    """Mean of `worse` less that of `better` there, with its 95% interval."""
    low: float
    high: float


@lru_cache(maxsize=2)
def flips(summary: StudySummary) -> pd.DataFrame:
    """Test at every learning rate whether the variant that is worse when tuned is ahead.

    Tested are the pairs that are distinguishable when tuned, at all rates that both tried with two seeds or more: by
    Welch's t with the noise of the rate and of those beside it, one-sided, with Holm's correction over all of them.

    Returns:
        One row a task, model, distinguishable pair and learning rate: `better` and `worse` (tuned), `learning_rate`,
        `difference` (of `worse` less `better` there, fraction), `low` and `high` (its 95% interval, for this pair and
        rate alone), `num_seeds` (the fewer), `p` (one-sided, that `worse` is not the better one there; NaN: not
        tested), `flips` (whether that is refuted over the whole family).
    """
    compared = comparisons(summary)
    pairs = _turned(compared[compared["distinguishable"]], summary.metric.sign)
    cells, values = summary.cells, cell_values(summary)
    keys = tuples_in(cells[[*GROUP, "variant"]])
    at = {key: index for index, key in enumerate(keys)}
    ones, others = (
        np.array([at[key] for key in tuples_in(pairs[[*GROUP, name]])], int)
        for name in ("worse", "better")
    )
    rates = sorted({float(rate) for cell in values for rate in cell.rates})
    tested = [
        _at(rate, sampled(values, [rate] * len(values)), pairs, ones, others, summary.metric)
        for rate in rates
    ]
    found = pd.concat(tested, ignore_index=True)
    return found.assign(flips=shaffer(found["p"].to_numpy(float), range(len(found))) < LEVEL)


def _turned(compared: pd.DataFrame, sign: int) -> pd.DataFrame:
    ahead = sign * compared["difference"] > 0
    names = ("variant", "other")
    better, worse = (
        compared[name].where(ahead, compared[other]) for name, other in (names, names[::-1])
    )
    return compared[GROUP].assign(better=better, worse=worse)


def _at(
    rate: float, here: Sampled, pairs: pd.DataFrame, ones: Ints, others: Ints, metric: Metric
) -> pd.DataFrame:
    counts = np.minimum(here.counts[ones], here.counts[others]).astype(int)
    difference = here.means[ones] - here.means[others]
    with undefined_is_nan():
        sem, dof = welch(here.noise, here.counts, ones, others)
        p = stdtr(dof, -metric.sign * difference / sem)
    half = stdtrit(dof, (1 + CONFIDENCE) / 2) * sem
    ends = {"difference": difference, "low": difference - half, "high": difference + half}
    return pairs.assign(learning_rate=rate, **ends, num_seeds=counts, p=p)[counts > 0]


@lru_cache(maxsize=2)
def orders(summary: StudySummary) -> pd.DataFrame:
    """Order the variants by mean test accuracy, tuned and at every learning rate that was tried.

    Returns:
        One row a task, model and learning rate, rising, the tuned conclusion first:

        - `task`, `model`, `learning_rate` (NaN: tuned, each variant at its own);
        - `means`: mean test accuracy (fraction) by variant, of those with a value, best first;
        - `order`: an `Order` of these;
        - `incomplete`: for each variant with runs there that are not complete, how many have each other status, and
          `num_lacking`;
        - `kind`: a `Kind`;
        - `sure`: whether that is the tuned conclusion, or a flip is behind it: of the tuned winner, for another winner.
          A tuned winner whose runs all diverged there needs no test;
        - `flips`: the `Flip`s there.
    """
    keys, tested = [*GROUP, "learning_rate"], flips(summary)
    flipped = {
        key: tuple(Flip(*row) for row in tuples_in(found[list(Flip._fields)]))
        for key, found in tested[tested["flips"]].groupby(keys)
    }
    counted = [*OUTCOMES[1:], *(["num_lacking"] if summary.winners is None else [])]
    rows: list[dict[str, Any]] = []
    for labels, group in summary.groups():
        tuned = order_of(ranked_means(group.cells, summary.metric))
        at_rates = group.learning_rates.groupby("learning_rate")
        for rate, found in [
            (math.nan, group.cells),
            *((float(str(rate)), each) for rate, each in at_rates),
        ]:
            means, incomplete = (
                ranked_means(found, summary.metric),
                _incomplete(found[["variant", *counted]]),
            )
            order, turned = (
                order_of(means),
                flipped.get((labels["task"], labels["model"], rate), ()),
            )
            kind = "same" if math.isnan(rate) else kind_of(order, tuned, incomplete)
            here = {
                "learning_rate": rate,
                "means": means,
                "order": order,
                "incomplete": incomplete,
                "kind": kind,
            }
            rows.append(
                labels | here | {"sure": _is_sure(kind, order, tuned, turned), "flips": turned}
            )
    return pd.DataFrame(rows)


def ranked_means(rows: pd.DataFrame, metric: Metric) -> dict[str, float]:
    """Return the mean test accuracy of each variant with a value, best first; equal ones in the study's order.

    Means are rounded, so that equal ones are equal.
    """
    means = zip(rows["variant"], rounded(rows["test_mean"].to_numpy(float)).tolist(), strict=True)
    known = {str(variant): mean for variant, mean in means if not math.isnan(mean)}
    return dict(sorted(known.items(), key=lambda item: -metric.sign * item[1]))


def order_of(means: Mapping[str, float]) -> Order:
    """Return the order of variants whose means are ranked, those of one mean by name."""
    return tuple(
        tuple(sorted(level)) for _, level in groupby(means, key=lambda variant: means[variant])
    )


def kind_of(order: Order, tuned: Order, incomplete: Mapping[str, Mapping[str, int]]) -> Kind:
    """Compare the conclusion at one learning rate with the tuned order; a variant without both values does not count.

    A tuned winner that diverged at this rate has lost there; one whose runs are missing or failed is not known to.
    """
    if not order or not tuned:
        return "unknown"
    here, there, winners = _among(order, tuned), _among(tuned, order), tuned[0]
    if not set(winners) & set(chain(*order)):
        lost = all(_only_diverged(incomplete.get(variant, {})) for variant in winners)
        return "winner" if lost else "unknown"
    if not set(here[0]) & set(winners):
        return "winner"
    return "same" if here == there else "order"


def _among(order: Order, other: Order) -> Order:
    """Return the order of the variants that another one has, too."""
    known = set(chain(*other))
    levels = (tuple(variant for variant in level if variant in known) for level in order)
    return tuple(filter(None, levels))


def _is_sure(kind: Kind, order: Order, tuned: Order, flips: Sequence[Flip]) -> bool:
    if kind == "winner":
        no_value = not set(tuned[0]) & set(chain(*order))
        return no_value or any(flip.better in tuned[0] for flip in flips)
    return kind != "order" or bool(flips)


def _only_diverged(counts: Mapping[str, int]) -> bool:
    return bool(counts.get("diverged")) and not any(
        number for name, number in counts.items() if name != "diverged"
    )


def _incomplete(rows: pd.DataFrame) -> dict[str, dict[Any, int]]:
    counts = rows.set_index("variant").to_dict("index")
    return {str(variant): dict(found) for variant, found in counts.items() if any(found.values())}
