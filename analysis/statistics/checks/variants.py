"""Checks of a comparison: were its variants tuned alike?

Compared are the steps that the variants of a task and model were given, and the learning rates that were tried: a rate
whose runs failed or are missing was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lr_sweep.analysis.statistics.checks.finding import CheckFinding, SweptCell, swept_cells
from lr_sweep.analysis.statistics.selection.best import arrays_by_cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import rate_text

SAME_END = 1.5
"""Ends of two ranges of learning rates within this factor are equal, as those of random draws from one range are."""


class Tuning(NamedTuple):
    """The tuning that a variant was given."""

    cell: SweptCell
    rates: frozenset[float]
    """Learning rates that were tried."""
    num_runs: int
    num_steps: int
    """The largest of its runs' step budgets."""
    num_short: int
    """Runs with a smaller budget than that."""

    @property
    def variant(self) -> str:
        """Its name."""
        return self.cell.key[2]


def unequal_tuning(summary: StudySummary) -> Iterator[CheckFinding]:
    """Compare the variants of each task and model; a finding names what the lesser one lacks."""
    for _, group in summary.groups():
        steps = {cell: found for cell, (found,) in arrays_by_cell(group.runs, "num_steps").items()}
        tunings = [_tuning(cell, steps[cell.key].tolist()) for cell in swept_cells(group)]
        for mine in tunings:
            yield from _fewer_rates(mine, tunings)
            yield from _fewer_steps(mine, tunings)
            yield from _ends_early(mine)


def _tuning(cell: SweptCell, num_steps: Sequence[int]) -> Tuning:
    rates = frozenset(row["learning_rate"] for row in cell.tried)
    most = max(num_steps)
    num_short = sum(steps < most for steps in num_steps)
    return Tuning(cell, rates, len(num_steps), most, num_short)


def _fewer_rates(mine: Tuning, tunings: Sequence[Tuning]) -> Iterator[CheckFinding]:
    """Report the variant that has most of what this one lacks: more learning rates, or a wider range of them."""
    study = mine.cell.study
    # A search offers all variants one range, and a refinement extends it where a variant needs that.
    same_range = study.search is not None or study.refinement is not None
    tried = [each for each in tunings if each.rates]
    lacking = [each for each in tried if _lacks(mine.rates, each.rates, same_range)]
    if not lacking:
        return
    other = max(lacking, key=lambda each: len(each.rates - mine.rates))
    theirs = _rates_text(other.rates)
    message = f"unequal tuning: {_rates_text(mine.rates)}; {other.variant} had {theirs}"
    if mine.rates & other.rates:  # of one grid
        missing = other.rates - mine.rates
        yield mine.cell.asking_for("unequal", "problem", message, missing)
    else:
        yield mine.cell.finding("unequal", "problem", message, f"try {theirs} for it, too")


def _lacks(mine: frozenset[float], theirs: frozenset[float], same_range: bool) -> bool:
    if not mine:  # the check `missing` reports its runs
        return False
    narrower = min(mine) > SAME_END * min(theirs) or SAME_END * max(mine) < max(theirs)
    return len(mine) < len(theirs) or (narrower and not same_range)


def _rates_text(rates: frozenset[float]) -> str:
    low, high = rate_text(min(rates)), rate_text(max(rates))
    if len(rates) == 1:
        return f"1 learning rate, {low}"
    return f"{len(rates)} learning rates from {low} to {high}"


def _fewer_steps(mine: Tuning, tunings: Sequence[Tuning]) -> Iterator[CheckFinding]:
    longest = max(tunings, key=lambda each: each.num_steps)
    # Variants that are named by their budgets, as those of an axis of budgets are, differ in them on purpose.
    on_purpose = all(str(each.num_steps) in each.variant for each in tunings)
    if mine.num_steps < longest.num_steps and not on_purpose:
        theirs = f"{longest.variant} for {longest.num_steps}"
        message = f"unequal tuning: trained for {mine.num_steps} steps, {theirs}"
        fix = "train both for the same number of steps"
        yield mine.cell.finding("unequal", "problem", message, fix)


def _ends_early(mine: Tuning) -> Iterator[CheckFinding]:
    if mine.num_short:
        runs = f"{mine.num_short} of {mine.num_runs} runs"
        message = f"{runs} end before step {mine.num_steps}, with the values they had"
        fix = "make sure that they were stopped by a rule, not by a crash"
        yield mine.cell.finding("short", "note", message, fix)
