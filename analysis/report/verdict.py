"""The verdict in words: of each task and model what is best when tuned, and what a fixed rate would have said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.report.blocks import Row, Verdict
from lr_sweep.analysis.report.handle import Kind, conclusion_kinds
from lr_sweep.analysis.report.tables import incomplete_text, seeds_text
from lr_sweep.analysis.statistics.aggregate import GROUP, StudySummary
from lr_sweep.analysis.statistics.grid_checks import not_eligible
from lr_sweep.analysis.statistics.verdicts import Lead
from lr_sweep.common.text import rate_text

MINUS = "\N{MINUS SIGN}"
MOST_NAMED = 3
"""Variants that a sentence names; more are counted."""
MOST_LOST = 6
"""Learning rates that could not be chosen; more are counted."""
CORRECTED = "corrected for all pairs of the study"
Few = Mapping[tuple[str, float], str]
"""By variant and learning rate, how few seeds a number rests on; empty: all."""


def verdict_block(found: pd.DataFrame, summary: StudySummary, orders: pd.DataFrame) -> Verdict:
    """Write the result of `verdicts.verdicts`, an item a task and model, each with the chosen learning rates.

    `orders` is the result of `orders.orders`.
    """
    orders_of = dict(list(orders.groupby(GROUP, sort=False)))
    several = summary.cells["model"].nunique() > 1
    items = []
    for row in found.to_dict("records"):
        of = summary.of(task=row["task"], model=row["model"])
        name = f"{row['task']}, {row['model']}" if several else row["task"]
        kinds = conclusion_kinds(orders_of[row["task"], row["model"]])
        rates = of.learning_rates.to_dict("records")
        few = {(rate["variant"], rate["learning_rate"]): seeds_text(rate) for rate in rates}
        items.append((name, _sentences(row, summary.metric, kinds, few), _chosen(of) + _not_eligible(of, rates)))
    return Verdict(items)


def _sentences(row: Row, metric: Metric, kinds: Sequence[Kind], few: Few) -> str:
    if not row["best"]:
        return "no variant has a value."
    tuned = "Tuned, " if len(kinds) > 1 else "At the one learning rate that was tried, "
    if not row["leads"]:
        return f"{tuned}{row['best'][0]} has a value, and nothing to compare it with."
    at_one = _fixed(row, metric, few) + _elsewhere(kinds, metric) if len(kinds) > 1 else ""
    first, *others = [_better(lead, metric) for lead in row["leads"]]
    return f"{tuned}{_tuned(row['best'][0], first, metric)}.{_unsure(others, metric)}{at_one}"


def _tuned(leader: str, lead: Lead, metric: Metric) -> str:
    """Say by how much the leader is above the second, and how sure that is."""
    by = f"by {_amount(lead, metric)} over {lead.over}"
    if lead.difference == 0:
        return f"{leader} and {lead.over} have the same mean"
    if math.isnan(lead.low):
        return f"{leader} leads {by}; without an interval the two cannot be distinguished"
    interval = f"95% interval {_interval(lead, metric)}"
    if lead.distinguishable:
        return f"{leader} wins {by} ({interval})"
    corrected = f", {CORRECTED}," if lead.low > 0 else ""
    return f"{leader} leads {by} ({interval}), which{corrected} cannot be distinguished from no difference"


def _unsure(leads: Sequence[Lead], metric: Metric) -> str:
    """Name the further variants that the leader cannot be distinguished from, each with its own difference."""
    unsure = [lead for lead in leads if not lead.distinguishable]
    if not unsure:
        return ""
    shown = [f"{_amount(lead, metric)} over {lead.over} ({_interval(lead, metric)})" for lead in unsure[:MOST_NAMED]]
    if further := len(unsure) - len(shown):
        shown.append(f"up to {_amount(unsure[-1], metric)} over {further} more")
    corrected = f", {CORRECTED}," if any(lead.low > 0 for lead in unsure) else ""
    lead_of = "lead of" if len(unsure) == 1 else "leads of"
    return f" The {lead_of} {_listed(shown)}{corrected} cannot be distinguished from no difference."


def _listed(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _fixed(row: Row, metric: Metric, few: Few) -> str:
    """Say what a comparison at the fixed rate alone would have concluded."""
    if not row["fixed_best"]:
        return ""
    leader, winner = (name + few.get((name, row["fixed_rate"]), "") for name in (row["best"][0], row["fixed_best"]))
    at = f" At {rate_text(row['fixed_rate'])} alone"
    if winner == leader:
        return f"{at}, {leader} leads, too."
    behind = -metric.sign * row["fixed_difference"]
    how = f"as {leader} has no value" if math.isnan(behind) else f"by {metric.amount_text(behind)} over {leader}"
    if row["flips"]:
        return f"{at} you would have concluded that {winner} wins, {how}."
    return f"{at}, {winner} leads {how}."


def _elsewhere(kinds: Sequence[Kind], metric: Metric) -> str:
    others = kinds.count("winner") or "none"
    return f" Another variant has the {metric.best} mean at {others} of the {len(kinds)} learning rates."


def _better(lead: Lead, metric: Metric) -> Lead:
    """Turn a lead and its interval so that more is better, whichever way the metric is."""
    low, high = sorted((metric.sign * lead.low, metric.sign * lead.high))
    return lead._replace(difference=metric.sign * lead.difference, low=low, high=high)


def _amount(lead: Lead, metric: Metric) -> str:
    return metric.amount_text(lead.difference, (lead.high - lead.low) / 2)


def _interval(lead: Lead, metric: Metric) -> str:
    if math.isnan(lead.low):
        return "no interval"
    ends = metric.ends_text(lead.low, lead.high)
    return " to ".join(MINUS + end[1:] if end.startswith("-") else end for end in ends)


def _chosen(group: StudySummary) -> str:
    known = group.cells.dropna(subset=["learning_rate"]).to_dict("records")
    chosen = ", ".join(f"{cell['variant']} {rate_text(cell['learning_rate'])}{seeds_text(cell)}" for cell in known)
    return f"Chosen on {group.metric.chosen_on}: {chosen}." if chosen else ""


def _not_eligible(group: StudySummary, rates: Sequence[dict[Any, Any]]) -> str:
    """Name the learning rates that have values and could not be chosen, and why."""
    lost = not_eligible(rates, group.winners)
    shown = [
        f"{row['variant']} {rate_text(row['learning_rate'])} ({row['num_values']} of {row['num_seeds']} seeds: "
        f"{incomplete_text(row)})"
        for row in lost[:MOST_LOST]
    ]
    if further := len(lost) - len(shown):
        shown.append(f"{further} more")
    return f" Not eligible, as seeds have no value: {', '.join(shown)}." if shown else ""
