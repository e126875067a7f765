"""The verdict on each task and model: what is best when tuned, and what one rate alone would have shown.

The point of Rothermel et al. 2021 (sections 3 and 4): at 1e-3 the variants ranked in another order
than at their own best learning rates. Test values are read here; nothing is chosen by them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import pandas as pd

from lr_sweep.analysis.statistics.selection.summary import (
    GROUP,
    StudySummary,
)

from .conditions import (
    NO_CONDITIONS,
    Conditions,
    with_conditions,
)
from .orders import orders, ranked_means

KEPT = (
    "corrected_p",
    "distinguishable",
    "equal",
    "findable",
    "condition",
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
    """Whether `over` certainly beats `winner` after tuning; if not, neither beats the other."""
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
    at_rates = dict(list(orders(summary).groupby(GROUP)))
    rows = []
    for labels, best, leads, certain in ranked(summary, conditions):
        tried = at_rates[tuple(labels.values())].to_dict("records")
        row: dict[str, Any] = {
            "best": best,
            "leads": leads,
            "certain": certain,
            "one_rate": list(_misleading(best, leads, tried)),
        }
        rows.append(labels | row)
    return pd.DataFrame(rows)


def ranked(
    summary: StudySummary, conditions: Conditions = NO_CONDITIONS
) -> Iterator[
    tuple[
        dict[str, str],
        tuple[str, ...],
        tuple[Lead, ...],
        Certain | None,
    ]
]:
    """Yield each task and model with `best`, `leads` and `certain` of `verdicts`."""
    compared = with_conditions(summary, conditions)
    for labels, group in summary.groups():
        tuned = tuple(ranked_means(group.cells.to_dict("records"), group.metric))
        is_of_group = compared[GROUP].eq([*labels.values()]).all(axis=1)
        pairs = dict(_leads(compared[is_of_group], tuned))
        leads = tuple(pairs[tuned[0], rival] for rival in tuned[1:])
        best = (
            *tuned[:1],
            *(lead.over for lead in leads if not lead.distinguishable),
        )
        yield labels, best, leads, _largest_certain(tuned, pairs)


def _largest_certain(
    tuned: tuple[str, ...], pairs: Mapping[tuple[str, str], Lead]
) -> Certain | None:
    """Choose how many of the best variants to name as winners, for the most certain pairs.

    No winner certainly beats another one, and pairs that are not compared are not certain. `tuned`:
    variants, the best first.
    """
    certain = {pair for pair, lead in pairs.items() if lead.certain}
    winners = tuned[:0]
    losers = tuned[:0]
    for number, runner_up in enumerate(tuned[1:], start=1):
        best = tuned[:number]
        rivals = tuned[number:]
        beaten = tuple(x for x in rivals if certain.issuperset(product(best, [x])))
        if len(best) * len(beaten) > len(winners) * len(losers):
            winners, losers = best, beaten
        if (tuned[0], runner_up) in certain:
            break
    if not losers:
        return None
    sizes = [pairs[pair].difference for pair in product(winners, losers)]
    return Certain(winners, losers, _ends(sizes))


def _ends(differences: Sequence[float]) -> tuple[float, float]:
    return min(differences, key=abs), max(differences, key=abs)


def _leads(compared: pd.DataFrame, tuned: Sequence[str]) -> Iterator[tuple[tuple[str, str], Lead]]:
    """Yield the lead of each variant over each worse one; `tuned`: variants, the best first."""
    ranks = {variant: rank for rank, variant in enumerate(tuned)}
    for row in compared.to_dict("records"):
        pair = row["variant"], row["other"]
        if not set(pair) <= ranks.keys():
            continue
        turn = 1 if ranks[pair[0]] < ranks[pair[1]] else -1
        better, worse = pair[::turn]
        low, high = (row["low"], row["high"])[::turn]
        num_runs = (row["num_seeds"], row["num_other_seeds"])[::turn]
        lead = Lead(
            over=worse,
            difference=turn * row["difference"],
            low=turn * low,
            high=turn * high,
            num_seeds=min(num_runs),
            failed=(row["num_failed"], row["num_other_failed"])[::turn],
            num_runs=num_runs,
            working_difference=turn * row["working_difference"],
            **{name: row[name] for name in KEPT},
        )
        yield (better, worse), lead


def _misleading(
    best: Sequence[str],
    leads: Sequence[Lead],
    tried: Sequence[Mapping[Any, Any]],
) -> Iterator[OneRate]:
    """Yield the other winners that single rates would have named; `tried`: rows of `orders`."""
    leader = next(iter(best), "")
    beaten = {lead.over for lead in leads if lead.certain}
    at_rates = defaultdict[str, dict[float, float]](dict)
    for row in tried:
        winner = next(iter(row["means"]), "")
        if (winner, leader) in row["significant"]:
            at_rates[winner][row["learning_rate"]] = row["significant"][winner, leader]
    for winner, lead_at in at_rates.items():
        ends = _ends(list(lead_at.values()))
        yield OneRate(winner, leader, winner in beaten, tuple(lead_at), ends)
