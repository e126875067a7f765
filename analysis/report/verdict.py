"""The verdict in words: of each task and model what is best when tuned, and what a fixed rate would have said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Verdict
from lr_sweep.analysis.report.handle import Kind, conclusion_kinds
from lr_sweep.analysis.report.tables import incomplete_text, seeds_text
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.aggregate import GROUP, StudySummary
from lr_sweep.analysis.statistics.grid_checks import not_eligible
from lr_sweep.analysis.statistics.verdicts import Lead
from lr_sweep.common.text import rate_text

MINUS = "\N{MINUS SIGN}"
MOST_NAMED = 3
"""Variants that a sentence names; more are counted."""
MOST_LOST = 6
"""Learning rates that could not be chosen; more are counted."""
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
        text = " ".join(_sentences(row, summary.metric, kinds, few))
        items.append((name, text, _rests_on(of, rates)))
    return Verdict(items)


def _sentences(row: Row, metric: Metric, kinds: Sequence[Kind], few: Few) -> Iterator[str]:
    if not row["best"]:
        yield "no variant has a value."
        return
    leads = [_lead(lead, metric) for lead in row["leads"]]
    yield say("verdict", leader=row["best"][0], first=leads[0] if leads else None, num_rates=len(kinds))
    if unsure := [lead for lead in leads[1:] if not lead["distinguishable"]]:
        corrected = any(lead["low"] > 0 for lead in unsure)
        yield say("not_sure", several=len(unsure) > 1, named=_named(unsure), corrected=corrected)
    if leads and len(kinds) > 1:
        if row["fixed_best"]:
            yield _at_fixed_rate(row, metric, few)
        yield say("elsewhere", metric=metric, num_others=kinds.count("winner"), num_rates=len(kinds))


def _lead(lead: Lead, metric: Metric) -> dict[str, Any]:
    """Return what sentences say of a lead, turned so that more is better, whichever way the metric is."""
    low, high = sorted((metric.sign * lead.low, metric.sign * lead.high))
    is_known = not math.isnan(lead.low)
    ends = [MINUS + end[1:] if end.startswith("-") else end for end in metric.ends_text(low, high)]
    return lead._asdict() | {
        "low": low,
        "is_known": is_known,
        "amount": metric.amount_text(metric.sign * lead.difference, (high - low) / 2),
        "interval": " to ".join(ends) if is_known else "no interval",
    }


def _named(leads: Sequence[Mapping[str, Any]]) -> str:
    """Name the variants that the leader cannot be distinguished from, each with its own difference."""
    shown = [f"{lead['amount']} over {lead['over']} ({lead['interval']})" for lead in leads[:MOST_NAMED]]
    if further := len(leads) - len(shown):
        shown.append(f"up to {leads[-1]['amount']} over {further} more")
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _at_fixed_rate(row: Row, metric: Metric, few: Few) -> str:
    leader, winner = (name + few.get((name, row["fixed_rate"]), "") for name in (row["best"][0], row["fixed_best"]))
    behind = -metric.sign * row["fixed_difference"]
    how = f"as {leader} has no value" if math.isnan(behind) else f"by {metric.amount_text(behind)} over {leader}"
    rate = rate_text(row["fixed_rate"])
    return say("fixed", rate=rate, leader=leader, winner=winner, flips=row["flips"], how=how)


def _rests_on(group: StudySummary, rates: Sequence[dict[Any, Any]]) -> str:
    """Name the chosen learning rates, and those that have values and could not be chosen, with the reason."""
    known = group.cells.dropna(subset=["learning_rate"]).to_dict("records")
    chosen = [f"{cell['variant']} {rate_text(cell['learning_rate'])}{seeds_text(cell)}" for cell in known]
    lost = [
        f"{row['variant']} {rate_text(row['learning_rate'])} ({row['num_values']} of {row['num_seeds']} seeds: "
        f"{incomplete_text(row)})"
        for row in not_eligible(rates, group.winners)
    ]
    if len(lost) > MOST_LOST:
        lost[MOST_LOST:] = [f"{len(lost) - MOST_LOST} more"]
    return say("rests_on", metric=group.metric, chosen=chosen, lost=lost)
