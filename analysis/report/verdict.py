"""The verdict in words: for each task and model what is best, and what one rate alone would have shown."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Verdict
from lr_sweep.analysis.report.tables import incomplete_text, seeds_text
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.checks.grid import not_eligible
from lr_sweep.analysis.statistics.comparisons.failures import fisher_p
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.comparisons.verdicts import Certain, Lead, OneRate
from lr_sweep.analysis.statistics.selection.best import Cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import counted, rate_text

MINUS = "\N{MINUS SIGN}"
MOST_NAMED = 3
"""Variants, or learning rates, that a sentence names; more are counted."""
MOST_LOST = 6
"""Learning rates that could not be chosen; more are counted."""


def verdict_block(
    found: pd.DataFrame, summary: StudySummary, improving: Collection[Cell] = ()
) -> Verdict:
    """Write the result of `verdicts.verdicts`, an item a task and model, each with its chosen rates.

    Args:
        found: the result.
        summary: of the study.
        improving: cells that still improve at the end of their step budget.
    """
    several = summary.cells["model"].nunique() > 1
    num_tested = int(comparisons(summary)["p"].count())
    items = []
    for row in found.to_dict("records"):
        task, model = row["task"], row["model"]
        of = summary.of(task=task, model=model)
        name = f"{task}, {model}" if several else task
        behind = [lead.over for lead in row["leads"] if (task, model, lead.over) in improving]
        sentences = [*_sentences(row, of)]
        if behind:
            sentences.append(say("improving", several=len(behind) > 1, named=_listed(behind)))
        items.append((name, sentences, _rests_on(of, num_tested)))
    return Verdict(items)


def _sentences(row: Row, summary: StudySummary) -> Iterator[str]:
    """Yield the sentences on a task and model: what is certain, what is open, what misleads."""
    if not row["best"]:
        yield say("nothing", fresh=summary.fresh is not None)
        return
    metric, leader, certain = summary.metric, row["best"][0], row["certain"]
    leads = [_lead(lead, metric) for lead in row["leads"]]
    within = "" if summary.equal_within is None else metric.amount_text(summary.equal_within)
    rest = [lead for lead in leads if certain is None or lead["over"] not in certain.losers]
    num_rates = summary.learning_rates["learning_rate"].nunique()
    is_tuned = bool(summary.learning_rates["variant"].duplicated().any())
    context = {"num_rates": num_rates, "is_tuned": is_tuned, "untuned": metric.untuned}
    first = _certain(certain, leads, metric) if certain else _nothing_certain(leader, leads)
    yield say("opening", said=first, fresh=summary.fresh is not None, **context)
    yield from _open(leader, rest, within)
    yield from _failures(leader, row["leads"], metric)
    yield from (_one_rate(misleading, metric) for misleading in row["one_rate"])


def _nothing_certain(leader: str, leads: Sequence[Row]) -> str:
    """Begin a verdict without a certain statement."""
    if not leads:
        return say("alone", leader=leader)
    return say("not_established", equal=all(lead["equal"] for lead in leads))


def _lead(lead: Lead, metric: Metric) -> dict[str, Any]:
    """Return what sentences say of a lead, turned so that more is better."""
    return lead._asdict() | {
        **_sized(lead.difference, lead.low, lead.high, metric),
        "certain": lead.certain,
        "is_known": not math.isnan(lead.low),
        "is_open": bool(lead.difference) and not (lead.certain or lead.equal or lead.condition),
        "findable_text": metric.amount_text(lead.findable, lead.findable),
    }


def _sized(difference: float, low: float, high: float, metric: Metric) -> dict[str, str]:
    low, high = sorted((metric.sign * low, metric.sign * high))
    amount = metric.amount_text(metric.sign * difference, (high - low) / 2)
    interval = "no interval" if math.isnan(low) else _span(low, high, metric)
    return {"amount": amount, "interval": interval}


def _span(low: float, high: float, metric: Metric) -> str:
    ends = metric.ends_text(low, high)
    return " to ".join(MINUS + end[1:] if end.startswith("-") else end for end in ends)


def _certain(certain: Certain, leads: Sequence[Row], metric: Metric) -> str:
    # The leader is one of the winners.
    closest = next(lead for lead in leads if lead["over"] in certain.losers)
    half_width = (closest["high"] - closest["low"]) / 2
    is_pair = len(certain.winners) == len(certain.losers) == 1
    winners, losers = _listed(certain.winners), _listed(certain.losers)
    if len(certain.winners) + len(certain.losers) > max(len(leads), MOST_NAMED + 2):
        losers = f"all {len(certain.losers)} others"
    amount = amounts_text(certain.differences, half_width, metric)
    numbers = {**closest, "amount": amount, "is_pair": is_pair}
    several = len(certain.winners) > 1
    return say("certain", winners=winners, losers=losers, several=several, **numbers)


def amounts_text(differences: tuple[float, float], half_width: float, metric: Metric) -> str:
    """Write the smallest and the largest difference, with the digits that half an interval shows.

    The words say that these are differences of several pairs, and not the ends of an interval.
    """
    least, most = (metric.amount_text(abs(size), half_width) for size in differences)
    return least if least == most else f"at least {least} and at most {most}"


def _open(leader: str, leads: Sequence[Row], within: str) -> Iterator[str]:
    """Yield a sentence on each lead that is not in the certain statement; open leads share one."""
    open_leads = [lead for lead in leads if lead["is_open"]]
    for lead in leads:
        if not lead["is_open"]:
            yield say("lead", leader=leader, within=within, **lead)
    if not open_leads:
        return
    named = [
        say("open_lead", first=not index, **lead)
        for index, lead in enumerate(open_leads[:MOST_NAMED])
    ]
    if further := len(open_leads) - len(named):
        named.append(f"{counted(further, 'other')} by up to {open_leads[-1]['amount']}")
    tested = [lead for lead in open_leads if lead["is_known"]]
    largest = max(tested, key=lambda lead: abs(lead["findable"]), default=None)
    yield say("open", leader=leader, named=_joined(named), largest=largest, several=len(named) > 1)


def _failures(leader: str, leads: Sequence[Lead], metric: Metric) -> Iterator[str]:
    """Yield a sentence on each significant lead over a variant of which more runs failed."""
    for lead in leads:
        failed, other_failed = lead.failed
        if lead.distinguishable and other_failed > failed:
            size = metric.sign * lead.working_difference
            without = metric.amount_text(size, lead.working_difference, sign="+")
            p = fisher_p(failed, other_failed, *lead.num_runs)
            yield say("failures", leader=leader, without=without, p=p, **lead._asdict())


def _listed(names: Sequence[str]) -> str:
    """Name all, or the first of many: `a, b, c and 4 others`."""
    if len(names) <= MOST_NAMED + 1:
        return _joined(names)
    return _joined([*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} others"])


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _one_rate(misleading: OneRate, metric: Metric) -> str:
    amount = amounts_text(misleading.differences, max(map(abs, misleading.differences)), metric)
    rates = _listed(list(map(rate_text, misleading.rates)))
    return say("one_rate", **{**misleading._asdict(), "rates": rates, "amount": amount})


def _rests_on(group: StudySummary, num_tested: int) -> str:
    """Name the chosen learning rates, and those with values that could not be chosen, and why."""
    known = group.cells.dropna(subset=["learning_rate"]).to_dict("records")
    chosen = [
        f"{cell['variant']} {rate_text(cell['learning_rate'])}{seeds_text(cell)}" for cell in known
    ]
    lost = [
        f"{row['variant']} {rate_text(row['learning_rate'])} "
        f"({row['num_values']} of {row['num_seeds']} seeds: {incomplete_text(row)})"
        for row in not_eligible(group.learning_rates.to_dict("records"), group.winners)
    ]
    if len(lost) > MOST_LOST:
        lost[MOST_LOST:] = [f"{len(lost) - MOST_LOST} more"]
    return say("rests_on", metric=group.metric, chosen=chosen, lost=lost, num_tested=num_tested)
