"""The question and the verdict in words: what is best in each task and model, and what one rate would have shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.comparisons.failures import fisher_p
from lr_sweep.analysis.statistics.comparisons.pair_tests import FEWEST_SEEDS, FIRST_LOOK
from lr_sweep.analysis.statistics.comparisons.verdicts import Certain, Lead, OneRate
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import counted, rate_text

from .cells import seeds_text
from .numbers import p_text, with_minus

MOST_NAMED = 3
"""Variants, or learning rates, that a sentence names; more are counted."""


def question(summary: StudySummary) -> str:
    """Ask for the best variant, or for the best learning rate of a single one."""
    metric = summary.metric
    variants, tasks = (list(summary.cells[name].unique()) for name in ("variant", "task"))
    where = f" on {listed(tasks) if len(tasks) <= MOST_NAMED + 1 else counted(len(tasks), 'task')}"
    value = f"the {metric.best} {metric.test}{where}"
    if len(variants) == 1:
        return f"At which learning rate does {variants[0]} have {value}?"
    named = listed(variants) if len(variants) <= MOST_NAMED + 1 else f"{len(variants)} variants"
    is_tuned = metric.chosen_on and not metric.untuned
    rates = ", each at its own learning rate" if is_tuned else ""
    return f"Which of {named} has {value}{rates}?"


def verdict_items(
    judgements: pd.DataFrame, summary: StudySummary
) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the name of each task and model, and the sentences on it.

    `judgements`: the result of `verdicts.verdicts`.
    """
    several_models = summary.cells["model"].nunique() > 1
    items = []
    for row in judgements.to_dict("records"):
        task, model = row["task"], row["model"]
        name = f"{task}, {model}" if several_models else task
        items.append((name, sentences_on(row, summary.of(task=task, model=model))))
    return items


def sentences_on(row: Row, summary: StudySummary) -> list[str]:
    """Return the sentences on a task and model: what is certain, what is open, what misleads.

    Args:
        row: of `verdicts.verdicts`.
        summary: of this task and model.
    """
    if row["best"]:
        return list(_Writer(row, summary).sentences())
    if summary.fresh is None:
        return ["No variant has a value."]
    chose = "The seeds that chose the learning rates do not compare the variants."
    return [f"No fresh seed has ended yet. {chose}"]


def amounts_text(differences: tuple[float, float], half_width: float, metric: Metric) -> str:
    """Write the smallest and the largest difference, with the digits that half an interval shows.

    The words say that these are differences of several pairs, and not the ends of an interval.
    """
    smallest, largest = sorted(map(abs, differences))
    least, most = metric.text(smallest, half_width), metric.amount_text(largest, half_width)
    return most if smallest == largest else f"at least {least} and at most {most}"


def listed(names: Sequence[str], word: str = "and") -> str:
    """Name all, or the first of many: `a, b, c and 4 others`."""
    if len(names) <= MOST_NAMED + 1:
        return _joined(names, word)
    others = f"{len(names) - MOST_NAMED} others"
    return _joined([*names[:MOST_NAMED], others], word)


def _joined(names: Sequence[str], word: str = "and") -> str:
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class _Writer:
    """Writes the sentences on one task and model."""

    def __init__(self, row: Row, summary: StudySummary) -> None:
        self.summary, self.metric = summary, summary.metric
        self.is_fresh = summary.fresh is not None
        cells = summary.cells.to_dict("records")
        self.names = {cell["variant"]: cell["variant"] + seeds_text(cell) for cell in cells}
        self.best: str = row["best"][0]
        self.leader = self.names[self.best]
        self.leads: Sequence[Lead] = row["leads"]
        self.certain: Certain | None = row["certain"]
        self.one_rates: Sequence[OneRate] = row["one_rate"]

    def sentences(self) -> Iterator[str]:
        """Yield every sentence, the most certain first."""
        first, *rest = self.on_leads()
        yield f"{self.condition()}, {first}"
        yield from rest
        yield from self.failures()
        yield from map(self.one_rate, self.one_rates)

    def condition(self) -> str:
        """Say at which learning rates the variants are compared."""
        rates = self.summary.learning_rates
        if self.is_fresh:
            return "On fresh seeds, which chose no learning rate"
        if self.metric.untuned:
            return "Without a learning rate that was tuned"
        if rates["learning_rate"].nunique() == 1:
            return "At the one learning rate that was tried"
        is_tuned = rates["variant"].duplicated().any()
        return "After tuning" if is_tuned else "At one learning rate each"

    def on_leads(self) -> Iterator[str]:
        """Yield what is certain of the leader's leads, then what is not."""
        losers = self.certain.losers if self.certain else ()
        others = [lead for lead in self.leads if lead.over not in losers]
        settled = [lead for lead in others if lead.distinguishable or lead.equal]
        if self.certain:
            yield self.on_certain(self.certain)
        yield from map(self.lead, settled)
        if not self.certain and not settled:
            alone = f"{self.leader} has a value, and there is nothing to compare it with."
            yield "no difference is established." if self.leads else alone
        yield from self.on_open([lead for lead in others if lead not in settled])

    def on_certain(self, certain: Certain) -> str:
        """Say that each winner beats each loser; the numbers are of the leader's smallest lead."""
        closest = next(lead for lead in self.leads if lead.over in certain.losers)
        winners, losers = (listed([self.names[x] for x in side]) for side in certain[:2])
        num_named = len(certain.winners) + len(certain.losers)
        if num_named > max(len(self.leads), MOST_NAMED + 2):
            losers = f"all {len(certain.losers)} others"
        amount = amounts_text(certain.differences, (closest.high - closest.low) / 2, self.metric)
        if len(certain.winners) > 1:
            return f"{winners} beat {losers} by {amount} (p below 0.05 for each pair)."
        over = f"over {self.names[closest.over]}: " if len(certain.losers) > 1 else ""
        return f"{winners} beats {losers} by {amount}{self.numbers(closest, over)}."

    def lead(self, lead: Lead) -> str:
        """Say how far the leader is ahead of one variant."""
        over = self.names[lead.over]
        if not lead.difference:
            return f"{self.leader} and {over} have the same mean."
        amount = self.amount(lead) + self.numbers(lead)
        if lead.equal:
            within = self.metric.amount_text(self.summary.equal_within or math.nan)
            equal = f"{self.leader} and {over} are equal within {within}"
            return f"{equal}: {self.leader} leads by {amount}."
        verb = "beats" if lead.certain else "leads"
        doubt = "" if lead.distinguishable else ", which is not significant,"
        condition = f" {lead.condition}" if lead.condition else ""
        return f"{self.leader} {verb} {over} by {amount}{doubt}{condition}."

    def amount(self, lead: Lead) -> str:
        """Write a lead, turned so that more is better."""
        return self.metric.amount_text(
            self.metric.sign * lead.difference, abs(lead.high - lead.low) / 2
        )

    def numbers(self, lead: Lead, over: str = "") -> str:
        """Write interval and p of a lead in brackets; empty: it is not tested."""
        if not _is_tested(lead):
            return ""
        low, high = sorted((self.metric.sign * lead.low, self.metric.sign * lead.high))
        interval = "no spread between seeds"
        if not math.isnan(low):
            ends = map(with_minus, self.metric.ends_text(low, high))
            interval = f"95% interval {' to '.join(ends)}"
        return f" ({over}{interval}, p {p_text(lead.corrected_p)})"

    def on_open(self, leads: Sequence[Lead]) -> Iterator[str]:
        """Yield sentences on leads that are not significant; those without a condition share one."""
        shared = [lead for lead in leads if lead.difference and not lead.condition]
        yield from (self.lead(lead) for lead in leads if lead not in shared)
        if shared:
            yield self.shared(shared)
        if any(lead.difference and not _is_tested(lead) for lead in leads):
            is_sequential = self.summary.fresh is not None and self.summary.fresh.until_decided
            fewest = FIRST_LOOK if is_sequential else FEWEST_SEEDS
            yield f"Variants with fewer than {fewest} {self.fresh}seeds are not tested."
        if findable := [lead for lead in leads if not math.isnan(lead.findable)]:
            yield self.findable(max(findable, key=lambda lead: abs(lead.findable)))

    @property
    def fresh(self) -> str:
        """The word that stands before seeds which chose no learning rate."""
        return "fresh " if self.is_fresh else ""

    def shared(self, leads: Sequence[Lead]) -> str:
        """Name the leads that are not significant in one sentence."""
        named = [
            f"{self.names[lead.over]} by {self.amount(lead)}{self.numbers(lead)}"
            for lead in leads[:MOST_NAMED]
        ]
        if further := len(leads) - len(named):
            named.append(f"{counted(further, 'other')} by up to {self.amount(leads[-1])}")
        doubt = ""
        if any(map(_is_tested, leads)):
            several = "; none of these leads is significant"
            doubt = several if len(leads) > 1 else ", which is not significant"
        return f"{self.leader} leads {_joined(named)}{doubt}."

    def findable(self, lead: Lead) -> str:
        """Say which difference the seeds would have shown."""
        size = self.metric.amount_text(lead.findable, lead.findable)
        seeds = "these seeds"
        if self.summary.cells["num_tests"].eq(lead.num_seeds).all():
            seeds = f"{lead.num_seeds} {self.fresh}seeds of each variant"
        return f"With {seeds}, a difference of {size} would be found in 80% of studies."

    def failures(self) -> Iterator[str]:
        """Yield a sentence on each significant lead over a variant of which more runs failed."""
        for lead in self.leads:
            failed, other_failed = lead.failed
            if not lead.distinguishable or other_failed <= failed:
                continue
            size = self.metric.sign * lead.working_difference
            ahead = self.best if size > 0 else lead.over
            p = p_text(fisher_p(failed, other_failed, *lead.num_runs))
            yield (
                f"{other_failed} of the {lead.num_runs[1]} runs of {lead.over} failed, and "
                f"{failed or 'none'} of the {lead.num_runs[0]} runs of {self.best} "
                f"(Fisher's exact test, p {p}). Without failed runs, {ahead} leads by "
                f"{self.metric.amount_text(abs(size), size)}."
            )

    def one_rate(self, one_rate: OneRate) -> str:
        """Name the learning rates at which another variant would have been named the winner."""
        winner, over = one_rate.winner, one_rate.over
        largest = max(map(abs, one_rate.differences))
        amount = amounts_text(one_rate.differences, largest, self.metric)
        rates = listed([*map(rate_text, one_rate.rates)], "or")
        alone = f"At {rates} alone, you would have concluded that {winner} beats {over} by {amount}"
        tuned = "no difference between the two is established"
        if one_rate.is_opposite:
            tuned = f"{over} beats {winner}"
        return f"{alone}; after tuning, {tuned}."


def _is_tested(lead: Lead) -> bool:
    return not math.isnan(lead.corrected_p)
