"""The verdict in words: of each task and model what is best when tuned, and what a fixed rate would have said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Verdict
from lr_sweep.analysis.report.tables import incomplete_text, seeds_text
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.checks.grid import not_eligible
from lr_sweep.analysis.statistics.comparisons.orders import Flip
from lr_sweep.analysis.statistics.comparisons.pairs import MOST_FURTHER
from lr_sweep.analysis.statistics.comparisons.verdicts import Lead
from lr_sweep.analysis.statistics.selection.best import Cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import rate_text

MINUS = "\N{MINUS SIGN}"
MOST_NAMED = 3
"""Variants that a sentence names; more are counted."""
MOST_LOST = 6
"""Learning rates that could not be chosen; more are counted."""
COUNTS = ("num_rates", "num_others", "num_sure")
"""Columns of `verdicts`."""
Few = Mapping[tuple[str, float], str]
"""By variant and learning rate, how few seeds a number rests on; empty: all."""


def verdict_block(
    found: pd.DataFrame,
    summary: StudySummary,
    device_s: Mapping[Cell, float] | None = None,
    decided: Mapping[tuple[str, str], str] | None = None,
) -> Verdict:
    """Write the result of `verdicts.verdicts`, an item a task and model, each with the chosen learning rates.

    Args:
        found: the result.
        summary: of the study.
        device_s: device seconds of a run at each cell's chosen rate; None: not known.
        decided: what fresh seeds say, by task and model; it comes first.
    """
    several = summary.cells["model"].nunique() > 1
    items = []
    for row in found.to_dict("records"):
        of = summary.of(task=row["task"], model=row["model"])
        name = f"{row['task']}, {row['model']}" if several else row["task"]
        rates = of.learning_rates.to_dict("records")
        few = {(rate["variant"], rate["learning_rate"]): seeds_text(rate) for rate in rates}
        fresh = (decided or {}).get((row["task"], row["model"]), "")
        cells = {cell: value for cell, value in (device_s or {}).items() if cell[:2] == (row["task"], row["model"])}
        seconds = {variant: value for (_, _, variant), value in cells.items()}
        opening = [fresh, "By the seeds that chose the rates:"] if fresh else []
        is_tuned = bool(of.learning_rates["variant"].duplicated().any())
        text = " ".join([*opening, *_sentences(row, summary, few, seconds, is_tuned=is_tuned)])
        items.append((name, text, _rests_on(of, rates)))
    return Verdict(items)


def _sentences(
    row: Row,
    summary: StudySummary,
    few: Few,
    device_s: Mapping[str, float],
    *,
    is_tuned: bool,
) -> Iterator[str]:
    """Yield what is said of a task and model; `is_tuned`: whether some variant has several learning rates."""
    if not row["best"]:
        yield "no variant has a value."
        return
    metric = summary.metric
    of_leader = device_s.get(row["best"][0], math.nan)
    leads = [_lead(lead, metric, of_leader + device_s.get(lead.over, math.nan)) for lead in row["leads"]]
    within = "" if summary.equal_within is None else metric.amount_text(summary.equal_within)
    first, counts = leads[0] if leads else None, {name: row[name] for name in COUNTS}
    yield say("verdict", leader=row["best"][0], first=first, is_tuned=is_tuned, within=within, **counts)
    if unsure := [lead for lead in leads[1:] if not lead["distinguishable"]]:
        yield say("not_sure", several=len(unsure) > 1, named=_named(unsure, within))
    if leads and is_tuned and row["num_rates"] > 1:
        if row["fixed_best"]:
            yield _at_fixed_rate(row, metric, few)
        if (flip := row["strongest"]) and (not row["flips"] or flip.learning_rate != row["fixed_rate"]):
            yield _strongest(flip, row["best"][0], metric)
        yield say("elsewhere", metric=metric, **counts)


def _lead(lead: Lead, metric: Metric, seed_s: float) -> dict[str, Any]:
    """Return what sentences say of a lead, turned so that more is better, whichever way the metric is.

    `seed_s`: device seconds of one more seed of both variants; NaN: not known.
    """
    more = lead.further_seeds
    hours = more * seed_s / 3600
    return lead._asdict() | {
        **sized(lead.difference, lead.low, lead.high, metric),
        "is_known": not math.isnan(lead.low),
        "cost": f"{hours:.2g} device hours" if math.isfinite(hours) else "",
        "more": "" if math.isnan(more) else f"over {MOST_FURTHER}" if math.isinf(more) else f"about {more:.0f}",
    }


def sized(difference: float, low: float, high: float, metric: Metric) -> dict[str, str]:
    """Write a difference and its interval."""
    low, high = sorted((metric.sign * low, metric.sign * high))
    ends = [MINUS + end[1:] if end.startswith("-") else end for end in metric.ends_text(low, high)]
    amount = metric.amount_text(metric.sign * difference, (high - low) / 2)
    return {"amount": amount, "interval": "no interval" if math.isnan(low) else " to ".join(ends)}


def _named(leads: Sequence[Mapping[str, Any]], within: str) -> str:
    """Name the variants that the leader cannot be distinguished from, each with its own difference."""
    shown = []
    for lead in leads[:MOST_NAMED]:
        more = f"; {lead['more']} more seeds" if lead["more"] else ""
        settled = f"; equal within {within}" if lead["equal"] else more
        shown.append(f"{lead['amount']} over {lead['over']} ({lead['interval']}{settled})")
    if further := len(leads) - len(shown):
        shown.append(f"up to {leads[-1]['amount']} over {further} more")
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _at_fixed_rate(row: Row, metric: Metric, few: Few) -> str:
    rate, names = row["fixed_rate"], (row["best"][0], row["fixed_best"])
    leader, winner = (name + few.get((name, rate), "") for name in names)
    behind = -metric.sign * row["fixed_difference"]
    how = f"as {leader} has no value" if math.isnan(behind) else f"by {metric.amount_text(behind)} over {leader}"
    open_ = names[1] in row["best"]
    same = {"tied": row["fixed_difference"] == 0, "leads": row["leads"][0].difference != 0}
    return say(
        "fixed", rate=rate_text(rate), leader=leader, winner=winner, flips=row["flips"], how=how, open=open_, **same
    )


def _strongest(flip: Flip, leader: str, metric: Metric) -> str:
    written = sized(flip.difference, flip.low, flip.high, metric)
    return say("strongest", rate=rate_text(flip.learning_rate), winner=flip.worse, leader=leader, **written)


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
