"""The check "unequal tuning": were the compared variants of a task and model given the same chances?

Learning rates, step budgets and seeds of the runs that are wanted are compared, whatever became of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from lr_sweep.analysis.statistics.aggregate import GROUP, StudySummary
from lr_sweep.analysis.statistics.finding import CheckFinding, Row, finding_of
from lr_sweep.common.text import rate_text

MOST_RATES = 12
"""More learning rates to add than this are counted, not listed."""
SAME_END = 1.5
"""Ends of two ranges of learning rates within this factor are equal, as those of random draws from one range are."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a variant was given."""

    rates: frozenset[float]
    num_runs: int
    num_seeds: int
    num_steps: int
    """The largest of its runs' step budgets."""
    num_short: int
    """Runs with a smaller budget than that."""


def unequal_tuning(summary: StudySummary) -> list[CheckFinding]:
    """Compare the variants of each task and model; a finding names what the lesser one lacks."""
    found: list[CheckFinding] = []
    for group, runs in summary.runs.groupby(GROUP, sort=False):
        same_range = summary.search is not None or summary.refinement is not None
        tunings = {str(variant): _tuning(rows) for variant, rows in runs.groupby("variant", sort=False)}
        for variant, tuning in tunings.items():
            cell = dict(zip(GROUP, group, strict=True)) | {"variant": variant}
            found += _findings(cell, tuning, tunings, same_range=same_range)
    return found


def _tuning(runs: pd.DataFrame) -> Tuning:
    most = int(runs["num_steps"].max())
    return Tuning(
        rates=frozenset(runs["learning_rate"]),
        num_runs=len(runs),
        num_seeds=int(runs.groupby("learning_rate").size().max()),
        num_steps=most,
        num_short=int(runs["num_steps"].lt(most).sum()),
    )


def _findings(cell: Row, mine: Tuning, tunings: dict[str, Tuning], *, same_range: bool) -> Iterator[CheckFinding]:
    yield from _fewer_rates(cell, mine, tunings, same_range=same_range)
    longest = max(tunings, key=lambda name: tunings[name].num_steps)
    if mine.num_steps < (steps := tunings[longest].num_steps):
        message = f"unequal tuning: trained for {mine.num_steps} steps, {longest} for {steps}"
        yield finding_of(cell, "unequal", "problem", message, "train both for the same number of steps")
    most_seeds = max(tunings, key=lambda name: tunings[name].num_seeds)
    if mine.num_seeds < (seeds := tunings[most_seeds].num_seeds):
        message = f"unequal tuning: {_counted(mine.num_seeds, 'seed')} per learning rate, {most_seeds} has {seeds}"
        yield finding_of(cell, "unequal-seeds", "note", message, f"add {_counted(seeds - mine.num_seeds, 'seed')}")
    if mine.num_short:
        message = f"{mine.num_short} of {mine.num_runs} runs end before step {mine.num_steps}, with the values they had"
        yield finding_of(cell, "short", "note", message, "make sure that they were stopped by a rule, not by a crash")


def _fewer_rates(cell: Row, mine: Tuning, tunings: dict[str, Tuning], *, same_range: bool) -> Iterator[CheckFinding]:
    """Report the variant that has most of what this one lacks: more learning rates, or a wider range of them.

    `same_range`: a search offered both the same range, or a refinement went where each needed it.
    """
    lacking = {name: other for name, other in tunings.items() if _lacks(mine.rates, other.rates, same_range)}
    if not lacking:
        return
    name, other = max(lacking.items(), key=lambda item: len(item[1].rates - mine.rates))
    message = f"unequal tuning: {_rates_text(mine.rates)}; {name} had {_rates_text(other.rates)}"
    grid = bool(mine.rates & other.rates)
    missing = tuple(sorted(other.rates - mine.rates)) if grid else ()
    if 0 < len(missing) <= MOST_RATES:
        yield finding_of(cell, "unequal", "problem", message, rates=missing)
    else:
        yield finding_of(cell, "unequal", "problem", message, f"try {_rates_text(other.rates)} for it, too")


def _lacks(mine: frozenset[float], theirs: frozenset[float], same_range: bool) -> bool:
    if same_range:
        return len(mine) < len(theirs)
    narrower = min(mine) > SAME_END * min(theirs) or SAME_END * max(mine) < max(theirs)
    return len(mine) < len(theirs) or narrower


def _rates_text(rates: frozenset[float]) -> str:
    low, high = rate_text(min(rates)), rate_text(max(rates))
    return f"1 learning rate, {low}" if len(rates) == 1 else f"{len(rates)} learning rates from {low} to {high}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
