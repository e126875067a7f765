"""The verdict in words: for each task and model what is best, and what one rate alone would have shown."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Verdict
from lr_sweep.analysis.report.tables import incomplete_text, seeds_text
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.checks.grid import not_eligible
from lr_sweep.analysis.statistics.comparisons.correction import compared_pairs
from lr_sweep.analysis.statistics.comparisons.failures import fisher_p
from lr_sweep.analysis.statistics.comparisons.pair_tests import FEWEST_SEEDS, FIRST_LOOK
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.comparisons.verdicts import Certain, Lead, OneRate
from lr_sweep.analysis.statistics.selection.best import Cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import counted, rate_text

MINUS = "\N{MINUS SIGN}"
MOST_NAMED = 3
"""Variants, or learning rates, that a sentence names; more are counted."""
MOST_CHOSEN, MOST_LOST = 20, 6
"""Learning rates that were chosen, and that could not be chosen, which are named; more are counted."""


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
    num_untested = compared_pairs(summary.cells, summary.metric.sign).num_untested
    items = []
    for row in found.to_dict("records"):
        task, model = row["task"], row["model"]
        of = summary.of(task=task, model=model)
        name = f"{task}, {model}" if several else task
        behind = [lead.over for lead in row["leads"] if (task, model, lead.over) in improving]
        sentences = [*_sentences(row, of)]
        if behind:
            sentences.append(say("improving", several=len(behind) > 1, named=_listed(behind)))
        items.append((name, sentences, _rests_on(of, num_tested, num_untested)))
    return Verdict(items)


def _sentences(row: Row, summary: StudySummary) -> Iterator[str]:
    """Yield the sentences on a task and model: what is certain, what is open, what misleads."""
    if not row["best"]:
        yield say("nothing", fresh=summary.fresh is not None)
        return
    first, *rest = _on_leads(row, summary)
    rates = summary.learning_rates
    yield say(
        "opening",
        said=first,
        fresh=summary.fresh is not None,
        untuned=summary.metric.untuned,
        num_rates=rates["learning_rate"].nunique(),
        is_tuned=bool(rates["variant"].duplicated().any()),
    )
    yield from rest
    yield from (_one_rate(misleading, summary.metric) for misleading in row["one_rate"])


def _on_leads(row: Row, summary: StudySummary) -> Iterator[str]:
    """Yield what is certain of the leader's leads, then what is not."""
    certain, metric = row["certain"], summary.metric
    names = {
        cell["variant"]: cell["variant"] + seeds_text(cell)
        for cell in summary.cells.to_dict("records")
    }
    leader = names[row["best"][0]]
    leads = [_lead(lead, names, metric) for lead in row["leads"]]
    rest = [lead for lead in leads if certain is None or lead["variant"] not in certain.losers]
    settled = [lead for lead in rest if lead["distinguishable"] or lead["equal"]]
    others = [lead for lead in rest if lead not in settled]
    within = "" if summary.equal_within is None else metric.amount_text(summary.equal_within)
    if certain:
        yield _certain(certain, leads, names, metric)
    yield from (say("lead", leader=leader, within=within, **lead) for lead in settled)
    if not certain and not settled:
        yield say("not_established", alone=not leads, leader=leader)
    yield from _open(leader, others, summary)
    yield from _failures(row["best"][0], row["leads"], metric)


def _lead(lead: Lead, names: Mapping[str, str], metric: Metric) -> dict[str, Any]:
    """Return what sentences say of a lead, turned so that more is better."""
    low, high = sorted((metric.sign * lead.low, metric.sign * lead.high))
    ends = metric.ends_text(low, high)
    return lead._asdict() | {
        "variant": lead.over,
        "over": names[lead.over],
        "amount": metric.amount_text(metric.sign * lead.difference, (high - low) / 2),
        "interval": " to ".join(re.sub("^-", MINUS, end) for end in ends),
        "certain": lead.certain,
        "has_interval": not math.isnan(low),
        "is_tested": not math.isnan(lead.corrected_p),
    }


def _certain(
    certain: Certain, leads: Sequence[Row], names: Mapping[str, str], metric: Metric
) -> str:
    # The leader is one of the winners.
    closest = next(lead for lead in leads if lead["variant"] in certain.losers)
    half_width = (closest["high"] - closest["low"]) / 2
    winners, losers = (_listed([names[x] for x in side]) for side in certain[:2])
    if len(certain.winners) + len(certain.losers) > max(len(leads), MOST_NAMED + 2):
        losers = f"all {len(certain.losers)} others"
    numbers = {
        **closest,
        "amount": amounts_text(certain.differences, half_width, metric),
        "several": len(certain.winners) > 1,
        "is_pair": len(certain.winners) == len(certain.losers) == 1,
    }
    return say("certain", winners=winners, losers=losers, **numbers)


def amounts_text(differences: tuple[float, float], half_width: float, metric: Metric) -> str:
    """Write the smallest and the largest difference, with the digits that half an interval shows.

    The words say that these are differences of several pairs, and not the ends of an interval.
    """
    smallest, largest = sorted(map(abs, differences))
    least, most = metric.text(smallest, half_width), metric.amount_text(largest, half_width)
    return most if smallest == largest else f"at least {least} and at most {most}"


def _open(leader: str, leads: Sequence[Row], summary: StudySummary) -> Iterator[str]:
    """Yield sentences on leads that are not significant; those without a condition share one."""
    named = [lead for lead in leads if lead["difference"] and not lead["condition"]]
    yield from (say("lead", leader=leader, **lead) for lead in leads if lead not in named)
    if named:
        yield _shared(leader, named)
    is_fresh = summary.fresh is not None
    if any(lead["difference"] and not lead["is_tested"] for lead in leads):
        is_sequential = summary.fresh is not None and summary.fresh.until_decided
        yield say("untested", fewest=FIRST_LOOK if is_sequential else FEWEST_SEEDS, fresh=is_fresh)
    if findable := [lead for lead in leads if not math.isnan(lead["findable"])]:
        largest = max(findable, key=lambda lead: abs(lead["findable"]))
        number = largest["num_seeds"]
        is_even = bool(summary.cells["num_tests"].eq(number).all())
        amount = summary.metric.amount_text(largest["findable"], largest["findable"])
        yield say("findable", number=number, is_even=is_even, fresh=is_fresh, amount=amount)


def _shared(leader: str, leads: Sequence[Row]) -> str:
    named = [say("open_lead", **lead) for lead in leads[:MOST_NAMED]]
    if further := len(leads) - len(named):
        named.append(f"{counted(further, 'other')} by up to {leads[-1]['amount']}")
    is_tested = any(lead["is_tested"] for lead in leads)
    return say("open", leader=leader, named=_joined(named), number=len(leads), is_tested=is_tested)


def _failures(leader: str, leads: Sequence[Lead], metric: Metric) -> Iterator[str]:
    """Yield a sentence on each significant lead over a variant of which more runs failed."""
    for lead in leads:
        failed, other_failed = lead.failed
        if lead.distinguishable and other_failed > failed:
            size = metric.sign * lead.working_difference
            without = metric.amount_text(abs(size), size)
            ahead = leader if size > 0 else lead.over
            p = fisher_p(failed, other_failed, *lead.num_runs)
            named = {"leader": leader, "ahead": ahead, "without": without, "p": p}
            yield say("failures", **named, **lead._asdict())


def _listed(names: Sequence[str], word: str = "and") -> str:
    """Name all, or the first of many: `a, b, c and 4 others`."""
    if len(names) <= MOST_NAMED + 1:
        return _joined(names, word)
    return _joined([*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} others"], word)


def _joined(names: Sequence[str], word: str = "and") -> str:
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _one_rate(misleading: OneRate, metric: Metric) -> str:
    amount = amounts_text(misleading.differences, max(map(abs, misleading.differences)), metric)
    rates = _listed(list(map(rate_text, misleading.rates)), "or")
    return say("one_rate", **{**misleading._asdict(), "rates": rates, "amount": amount})


def _rests_on(group: StudySummary, num_tested: int, num_untested: int) -> str:
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
    for rates, most in ((chosen, MOST_CHOSEN), (lost, MOST_LOST)):
        if len(rates) > most:
            rates[most:] = [f"{len(rates) - most} more"]
    said = {"metric": group.metric, "chosen": chosen, "lost": lost}
    return say("rests_on", **said, num_tested=num_tested, num_untested=num_untested).lstrip()
