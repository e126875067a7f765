"""Checks of a comparison: were its variants tuned alike?

Compared are the steps that the variants of a task and model were given, and the learning rates that were tried: a rate
whose runs failed or are missing was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lr_sweep.analysis.statistics.selection.best import (
    Ints,
    arrays_by_cell,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import rate_text

from .finding import CheckFinding, SweptCell, swept_cells

SAME_END = 1.5
"""Ends of two ranges of learning rates within this factor are equal, as those of random draws from one range are."""


class Tuning(NamedTuple):
    """The tuning that a variant was given."""

    cell: SweptCell
    rates: frozenset[float]
    """Learning rates that were tried."""
    budgets: Ints
    """Steps of each run."""

    @property
    def variant(self) -> str:
        """Its name."""
        return self.cell.key[2]

    @property
    def num_steps(self) -> int:
        """The largest of its runs' budgets."""
        return int(self.budgets.max())


def unequal_tuning(summary: StudySummary) -> Iterator[CheckFinding]:
    """Compare the variants of each task and model; a finding names what the lesser one lacks."""
    for _, group in summary.groups():
        budgets = arrays_by_cell(group.runs, "num_steps")
        tunings = []
        for cell in swept_cells(group):
            rates = frozenset(row["learning_rate"] for row in cell.tried)
            tunings.append(Tuning(cell, rates, budgets[cell.key][0]))
        for tuning in tunings:
            yield from _fewer_rates(tuning, tunings)
            yield from _fewer_steps(tuning, tunings)
            yield from _ends_early(tuning)


def _fewer_rates(tuning: Tuning, tunings: Sequence[Tuning]) -> Iterator[CheckFinding]:
    """Report the variant that has most of what this one lacks: more learning rates, or a wider range of them."""
    study, rates = tuning.cell.study, tuning.rates
    # A search offers all variants one range, and a refinement extends it where a variant needs that.
    same_range = study.search is not None or study.refinement is not None
    better = [rival for rival in tunings if _lacks(rates, rival.rates, same_range)]
    if not better:
        return
    rival = max(better, key=lambda rival: len(rival.rates - rates))
    rival_rates = _rates_text(rival.rates)
    message = f"unequal tuning: {_rates_text(rates)}; {rival.variant} had {rival_rates}"
    yield tuning.cell.finding("unequal", "problem", message, f"try {rival_rates} for it, too")


def _lacks(rates: frozenset[float], rival: frozenset[float], same_range: bool) -> bool:
    if not rates or not rival:  # the check `missing` reports its runs
        return False
    narrower = min(rates) > SAME_END * min(rival) or SAME_END * max(rates) < max(rival)
    return len(rates) < len(rival) or (narrower and not same_range)


def _rates_text(rates: frozenset[float]) -> str:
    low = rate_text(min(rates))
    high = rate_text(max(rates))
    if len(rates) == 1:
        return f"1 learning rate, {low}"
    return f"{len(rates)} learning rates from {low} to {high}"


def _fewer_steps(tuning: Tuning, tunings: Sequence[Tuning]) -> Iterator[CheckFinding]:
    longest = max(tunings, key=lambda rival: rival.num_steps)
    # Variants that are named by their budgets, as those of an axis of budgets are, differ in them on purpose.
    on_purpose = all(str(rival.num_steps) in rival.variant for rival in tunings)
    if tuning.num_steps < longest.num_steps and not on_purpose:
        steps = f"{tuning.num_steps} steps, {longest.variant} for {longest.num_steps}"
        fix = "train both for the same number of steps"
        message = f"unequal tuning: trained for {steps}"
        yield tuning.cell.finding("unequal", "problem", message, fix)


def _ends_early(tuning: Tuning) -> Iterator[CheckFinding]:
    num_short = int((tuning.budgets < tuning.num_steps).sum())
    if num_short:
        runs = f"{num_short} of {len(tuning.budgets)} runs"
        message = f"{runs} end before step {tuning.num_steps}, with the values they had"
        fix = "make sure that they were stopped by a rule, not by a crash"
        yield tuning.cell.finding("short", "note", message, fix)
