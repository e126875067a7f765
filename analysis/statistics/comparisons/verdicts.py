"""The verdict on each task and model: what is best when tuned, and what one rate alone would have shown.

The point of Rothermel et al. 2021 (sections 3 and 4): at 1e-3 the variants ranked in another order
than at their own best learning rates. Test values are read here; nothing is chosen by them. A higher
mean at one of nine rates is no conclusion: of equal variants, the one that is worse when tuned is
ahead at some rate in nearly every study. So each rate is tested, with one error rate for all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, product
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.comparisons.choice import choice_costs
from lr_sweep.analysis.statistics.comparisons.correction import levels_of, pairs_within
from lr_sweep.analysis.statistics.comparisons.failures import unexplained_failures
from lr_sweep.analysis.statistics.comparisons.noise import cell_values, sampled
from lr_sweep.analysis.statistics.comparisons.pair_tests import PairTests, at_once
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons, numbers_of
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, rounded, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, OUTCOMES, StudySummary

LU2021_LEARNING_RATE = 1e-3
"""The one learning rate of Lu et al. 2021 (all tasks but homology), the dashed line of Rothermel et al., Figure 1."""

Order = tuple[tuple[str, ...], ...]
"""Variants from best to worst; those in one inner tuple are equal."""
Kind = Literal["same", "order", "winner", "unknown"]
"""Conclusion at a learning rate: the tuned order, another order, another winner, or not comparable."""

Conditions = Mapping[Cell, str]
"""By cell, why it may yet be better than its number, as the checks say (`CheckFinding.condition`)."""
NO_CONDITIONS: Conditions = MappingProxyType({})


FIELDS = (
    *("difference", "low", "high", "corrected_p", "distinguishable", "equal", "findable"),
    *("condition", "working_difference"),
)
"""Fields of a lead that are columns of `comparisons`."""


class Lead(NamedTuple):
    """By how much a variant's mean is above another's, as in `comparisons`; NaN: not known."""

    over: str
    difference: float
    low: float
    high: float
    corrected_p: float
    distinguishable: bool
    equal: bool
    """Whether the difference is certainly within `StudySummary.equal_within`."""
    num_seeds: int
    """Seeds of the variant that has fewer."""
    findable: float
    """The difference that this comparison would find in 80% of studies."""
    condition: str = ""
    """Why the other variant may yet be better; empty: nothing says so."""
    failed: tuple[int, int] = (0, 0)
    """Failed runs of the variant and of the other one."""
    num_runs: tuple[int, int] = (0, 0)
    """Runs of the two with a value."""
    working_difference: float = math.nan
    """The difference without failed runs."""

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


class OneRate(NamedTuple):
    """Another winner that single learning rates would have named, by a significant lead."""

    winner: str
    over: str
    """The leader after tuning."""
    is_opposite: bool
    """Whether `over` certainly beats `winner` after tuning; else neither does."""
    rates: tuple[float, ...]
    differences: tuple[float, float]
    """The smallest and the largest lead at these rates."""


def verdicts(summary: StudySummary, conditions: Conditions = NO_CONDITIONS) -> pd.DataFrame:
    """Say for each task and model which variant is best, and which rates alone would have misled.

    Returns:
        One row a task and model. Differences are of mean test values (fractions, or in the metric's
        unit; of a metric to minimise the better variant's is negative); NaN: not known.

        - `task`, `model`;
        - `best`: variants from best to worst tuned mean: the leader, and those that do not differ
          significantly from it; empty if no variant has a value;
        - `leads`: a `Lead` over each other variant with a value, from the second best on;
        - `certain`: the `Certain` statement; None: nothing is certain;
        - `one_rate`: an `OneRate` for each pair that single rates would have shown otherwise.
    """
    at_rate = defaultdict[tuple[str, str], list[dict[Any, Any]]](list)
    for row in orders(summary).dropna(subset=["learning_rate"]).to_dict("records"):
        at_rate[row["task"], row["model"]].append(row)
    rows = []
    for labels, best, leads, certain in ranked(summary, conditions):
        tried = at_rate[labels["task"], labels["model"]]
        misleading = list(_misleading(best, leads, tried))
        rows.append(
            labels | {"best": best, "leads": leads, "certain": certain, "one_rate": misleading}
        )
    return pd.DataFrame(rows)


def ranked(
    summary: StudySummary, conditions: Conditions = NO_CONDITIONS
) -> Iterator[tuple[dict[str, str], tuple[str, ...], tuple[Lead, ...], Certain | None]]:
    """Yield each task and model with `best`, `leads` and `certain` of `verdicts`."""
    compared = with_conditions(summary, conditions)
    by_group = dict(list(compared.groupby(GROUP, sort=False)))
    for labels, group in summary.groups():
        tuned = tuple(ranked_means(group.cells, group.metric))
        pairs = _leads(by_group.get(tuple(labels.values()), compared.head(0)))
        leads = tuple(pairs[tuned[0], other] for other in tuned[1:])
        best = (*tuned[:1], *(lead.over for lead in leads if not lead.distinguishable))
        yield labels, best, leads, _largest_certain(tuned, pairs) if tuned else None


def with_conditions(summary: StudySummary, conditions: Conditions = NO_CONDITIONS) -> pd.DataFrame:
    """Return `comparisons` with the column `condition`: why the worse variant may yet be better.

    Two variants are equal only if both are tuned.
    """
    compared, rows = comparisons(summary), []
    reasons = _fresh_conditions(summary)
    for row in compared.to_dict("records"):
        pair = [(row["task"], row["model"], row[side]) for side in ("variant", "other")]
        worse, better = pair if summary.metric.sign * row["difference"] < 0 else pair[::-1]
        condition = conditions.get(worse, "")
        if row["equal"]:
            condition = condition or conditions.get(better, "")
        elif row["distinguishable"]:
            condition = condition or reasons(better, worse, abs(row["difference"]))
        rows.append((row["equal"] and not condition, condition))
    columns = pd.DataFrame(rows, compared.index, ["equal", "condition"])
    return compared.assign(equal=columns["equal"].astype(bool), condition=columns["condition"])


def _fresh_conditions(summary: StudySummary) -> Callable[[Cell, Cell, float], str]:
    """Return what says why a significant lead on fresh seeds is not certain; empty: it is."""
    if summary.fresh_runs is None:
        return lambda better, worse, lead: ""
    costs, failures = choice_costs(summary), unexplained_failures(summary)

    def condition(better: Cell, worse: Cell, lead: float) -> str:
        if lead <= (cost := costs.get(worse, 0.0)):
            limit = summary.metric.amount_text(cost, cost)
            return (
                f"if {worse[2]} has its best learning rate: another may be better by up to {limit}"
            )
        if failed := failures.get(better):
            runs = f"{failed.num_failed} of {failed.num_runs} runs of {better[2]}"
            return f"among the runs that work: {runs} failed while its learning rate was chosen"
        return ""

    return condition


def _largest_certain(
    tuned: tuple[str, ...], pairs: Mapping[tuple[str, str], Lead]
) -> Certain | None:
    """Choose how many of the best variants to name as winners, for the most certain pairs.

    No winner certainly beats another one. `tuned`: variants, the best first.
    """
    beaten = [pairs[tuned[0], other].certain for other in tuned[1:]]
    most = 1 + next(iter(np.flatnonzero(beaten)), 0)
    splits = []
    for n in range(1, most + 1):
        winners = tuned[:n]
        losers = [x for x in tuned[n:] if all(pairs[winner, x].certain for winner in winners)]
        splits.append((winners, tuple(losers)))
    winners, beaten_by_all = max(splits, key=lambda split: len(split[0]) * len(split[1]))
    if not beaten_by_all:
        return None
    sizes = [pairs[pair].difference for pair in product(winners, beaten_by_all)]
    return Certain(winners, beaten_by_all, (min(sizes, key=abs), max(sizes, key=abs)))


def _leads(compared: pd.DataFrame) -> dict[tuple[str, str], Lead]:
    """Return the lead of each variant over each other one, in both directions."""
    leads = {}
    for row in compared.to_dict("records"):
        counts = row["num_seeds"], row["num_other_seeds"]
        failed = row["num_failed"], row["num_other_failed"]
        lead = Lead(
            over=row["other"],
            num_seeds=min(counts),
            failed=failed,
            num_runs=counts,
            **{name: row[name] for name in FIELDS},
        )
        turned = lead._replace(
            over=row["variant"],
            difference=-lead.difference,
            low=-lead.high,
            high=-lead.low,
            failed=failed[::-1],
            num_runs=counts[::-1],
            working_difference=-lead.working_difference,
        )
        leads[row["variant"], row["other"]] = lead
        leads[row["other"], row["variant"]] = turned
    return leads


def _misleading(
    best: Sequence[str], leads: Sequence[Lead], tried: Sequence[Mapping[Any, Any]]
) -> Iterator[OneRate]:
    """Yield the other winners that single rates would have named; `tried`: rows of `orders`."""
    leader = next(iter(best), "")
    beaten = {lead.over for lead in leads if lead.certain}
    at_rates = defaultdict[str, list[tuple[float, float]]](list)
    for row in tried:
        winner = next(iter(row["means"]), "")
        if (winner, leader) in row["significant"]:
            lead = row["significant"][winner, leader]
            at_rates[winner].append((row["learning_rate"], lead))
    for winner, found in at_rates.items():
        rates, differences = zip(*found, strict=True)
        ends = (min(differences, key=abs), max(differences, key=abs))
        yield OneRate(winner, leader, winner in beaten, rates, ends)


@lru_cache(maxsize=2)
def comparisons_at_rates(summary: StudySummary) -> pd.DataFrame:
    """Compare every two variants at every learning rate that both tried, by their own seeds.

    Returns:
        One row a pair and learning rate: `task`, `model`, `variant`, `other`, `learning_rate`,
        `num_seeds` (the fewer), and as of `comparisons` `difference` to `distinguishable`, corrected
        over all pairs and rates of the study.
    """
    cells, values = summary.cells, cell_values(summary)
    first, second = pairs_within(list(tuples_in(cells[GROUP])))
    names = cells.iloc[first][CELL].assign(other=cells["variant"].to_numpy()[second])
    rates = sorted({float(rate) for cell in values for rate in cell.rates})
    tests = [at_once(sampled(values, [rate] * len(values)), first, second, None) for rate in rates]
    tested = PairTests(*map(np.concatenate, zip(*tests, strict=True)))
    tested = tested._replace(level=levels_of(tested.p))
    frame = pd.concat([names] * len(rates), ignore_index=True).assign(
        learning_rate=np.repeat(rates, len(names)),
        num_seeds=tested.num_seeds,
        **numbers_of(tested),
    )
    return frame[frame["num_seeds"] > 0].reset_index(drop=True)


@lru_cache(maxsize=2)
def orders(summary: StudySummary) -> pd.DataFrame:
    """Order the variants by mean test value, tuned and at every learning rate that was tried.

    Returns:
        One row a task, model and learning rate, rising, the tuned conclusion first:

        - `task`, `model`, `learning_rate` (NaN: tuned, each variant at its own);
        - `means`: mean test value by variant, of those with a value, best first;
        - `order`: an `Order` of these;
        - `incomplete`: for each variant with runs there that are not complete, how many have each
          other status, and `num_lacking`;
        - `kind`: a `Kind`;
        - `sure`: whether that is the tuned conclusion, or a significant lead is behind it. A tuned
          winner whose runs all diverged there needs no test;
        - `significant`: the differences of the pairs that differ significantly there, both ways.
    """
    keys = [*GROUP, "learning_rate"]
    tested = comparisons_at_rates(summary)
    significant = defaultdict[tuple[Any, ...], dict[tuple[str, str], float]](dict)
    for row in tested[tested["distinguishable"]].to_dict("records"):
        at_rate = significant[tuple(row[key] for key in keys)]
        at_rate[row["variant"], row["other"]] = row["difference"]
        at_rate[row["other"], row["variant"]] = -row["difference"]
    counted = [*OUTCOMES[1:], *(["num_lacking"] if summary.winners is None else [])]
    rows: list[dict[str, Any]] = []
    for labels, group in summary.groups():
        tuned = order_of(ranked_means(group.cells, summary.metric))
        at_rates = group.learning_rates.groupby("learning_rate")
        shown = [(math.nan, group.cells), *((float(str(rate)), at) for rate, at in at_rates)]
        for rate, cells in shown:
            means = ranked_means(cells, summary.metric)
            incomplete = _incomplete(cells[["variant", *counted]])
            order, pairs = order_of(means), significant[(*labels.values(), rate)]
            kind = "same" if math.isnan(rate) else kind_of(order, tuned, incomplete)
            sure = _is_sure(kind, order, tuned, pairs, summary.metric.sign)
            here = {"learning_rate": rate, "means": means, "order": order, "kind": kind}
            here |= {"incomplete": incomplete, "sure": sure, "significant": pairs}
            rows.append(labels | here)
    return pd.DataFrame(rows)


def ranked_means(rows: pd.DataFrame, metric: Metric) -> dict[str, float]:
    """Return the mean test value of each variant with one, best first; equal ones in the study's order.

    Means are rounded, so that equal ones are equal.
    """
    means = zip(rows["variant"], rounded(rows["test_mean"].to_numpy(float)).tolist(), strict=True)
    known = {str(variant): mean for variant, mean in means if not math.isnan(mean)}
    return dict(sorted(known.items(), key=lambda item: -metric.sign * item[1]))


def order_of(means: Mapping[str, float]) -> Order:
    """Return the order of variants whose means are ranked, those of one mean by name."""
    levels = groupby(means, key=lambda variant: means[variant])
    return tuple(tuple(sorted(level)) for _, level in levels)


def kind_of(order: Order, tuned: Order, incomplete: Mapping[str, Mapping[str, int]]) -> Kind:
    """Compare the conclusion at one learning rate with the tuned order.

    A variant without both values does not count. A tuned winner that diverged at this rate has lost
    there; of one whose runs are missing or failed that is not known.
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
    """Return the order of the variants that another order has, too."""
    known = set(chain(*other))
    levels = (tuple(variant for variant in level if variant in known) for level in order)
    return tuple(filter(None, levels))


def _is_sure(
    kind: Kind, order: Order, tuned: Order, significant: Mapping[tuple[str, str], float], sign: int
) -> bool:
    """Return whether a conclusion is the tuned one, or rests on a significant lead at the rate."""
    if kind in ("same", "unknown"):
        return True
    place = {variant: level for level, variants in enumerate(tuned) for variant in variants}
    reversed_pairs = [
        (better, worse)
        for (better, worse), difference in significant.items()
        if sign * difference > 0 and place.get(better, -1) > place.get(worse, len(place))
    ]
    if kind == "order":
        return bool(reversed_pairs)
    winner_has_value = set(tuned[0]) & set(chain(*order))
    return not winner_has_value or any(worse in tuned[0] for _, worse in reversed_pairs)


def _only_diverged(counts: Mapping[str, int]) -> bool:
    others = sum(number for status, number in counts.items() if status != "diverged")
    return bool(counts.get("diverged")) and not others


def _incomplete(rows: pd.DataFrame) -> dict[str, dict[Any, int]]:
    counts = rows.set_index("variant").to_dict("index")
    return {
        str(variant): dict(by_status)
        for variant, by_status in counts.items()
        if any(by_status.values())
    }
