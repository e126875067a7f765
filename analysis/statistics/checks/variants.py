"""Checks of a comparison: were its variants tuned alike, and is a significant difference of a kind that is often wrong?

"Unequal tuning" compares what the variants of a task and model were given, whatever became of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, finding_of
from lr_sweep.analysis.statistics.selection.best import (
    Floats,
    Ints,
    arrays_by_cell,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import counted, rate_text

MOST_RATES = 12
"""More learning rates to add than this are counted, not listed."""
SAME_END = 1.5
"""Ends of two ranges of learning rates within this factor are equal, as those of random draws from one range are."""
UNEQUAL = 3.0
"""Ratio of the standard deviations of two variants' runs from which a difference of the two gets a note."""
QUIETER = 0.1
"""Level of the F test of the noise at the chosen rates against that beside them."""


class Tuning(NamedTuple):
    """The tuning that a variant was given."""

    variant: str
    rates: frozenset[float]
    num_runs: int
    num_seeds: int
    num_steps: int
    """The largest of its runs' step budgets."""
    num_short: int
    """Runs with a smaller budget than that."""


def unequal_tuning(summary: StudySummary) -> Iterator[CheckFinding]:
    """Compare the variants of each task and model; a finding names what the lesser one lacks."""
    same_range = summary.search is not None or summary.refinement is not None
    for labels, group in summary.groups():
        by_cell = arrays_by_cell(group.runs, "learning_rate", "num_steps")
        tunings = [_tuning(variant, *runs) for (_, _, variant), runs in by_cell.items()]
        for mine in tunings:
            cell = labels | {"variant": mine.variant}
            yield from _fewer_rates(cell, mine, tunings, same_range=same_range)
            yield from _fewer_runs(cell, mine, tunings)


def _tuning(variant: str, rates: Floats, num_steps: Ints) -> Tuning:
    tried, num_seeds = np.unique(rates, return_counts=True)
    most = int(num_steps.max())
    short = int((num_steps < most).sum())
    return Tuning(variant, frozenset(tried.tolist()), len(rates), int(num_seeds.max()), most, short)


def _fewer_runs(cell: Row, mine: Tuning, tunings: list[Tuning]) -> Iterator[CheckFinding]:
    """Report fewer steps or seeds than another variant has, and runs that end before the others of the variant.

    Variants that are named by their budgets, as those of an axis of budgets are, differ in them on purpose.
    """
    longest = max(tunings, key=lambda each: each.num_steps)
    on_purpose = all(str(each.num_steps) in each.variant for each in tunings)
    if mine.num_steps < longest.num_steps and not on_purpose:
        other = f"{longest.variant} for {longest.num_steps}"
        message = f"unequal tuning: trained for {mine.num_steps} steps, {other}"
        yield finding_of(
            cell, "unequal", "problem", message, "train both for the same number of steps"
        )
    most = max(tunings, key=lambda each: each.num_seeds)
    if mine.num_seeds < most.num_seeds:
        seeds = counted(mine.num_seeds, "seed")
        message = f"unequal tuning: {seeds} per learning rate, {most.variant} has {most.num_seeds}"
        yield finding_of(
            cell,
            "unequal-seeds",
            "note",
            message,
            f"add {counted(most.num_seeds - mine.num_seeds, 'seed')}",
        )
    if mine.num_short:
        message = f"{mine.num_short} of {mine.num_runs} runs end before step {mine.num_steps}, with the values they had"
        yield finding_of(
            cell,
            "short",
            "note",
            message,
            "make sure that they were stopped by a rule, not by a crash",
        )


def _fewer_rates(
    cell: Row, mine: Tuning, tunings: list[Tuning], *, same_range: bool
) -> Iterator[CheckFinding]:
    """Report the variant that has most of what this one lacks: more learning rates, or a wider range of them.

    `same_range`: a search offered both the same range, or a refinement went where each needed it.
    """
    others = (other for other in tunings if other.rates != mine.rates)
    lacking = [other for other in others if _lacks(mine.rates, other.rates, same_range)]
    if not lacking:
        return
    other = max(lacking, key=lambda each: len(each.rates - mine.rates))
    message = (
        f"unequal tuning: {_rates_text(mine.rates)}; {other.variant} had {_rates_text(other.rates)}"
    )
    grid = bool(mine.rates & other.rates)
    missing = tuple(sorted(other.rates - mine.rates)) if grid else ()
    if 0 < len(missing) <= MOST_RATES:
        yield finding_of(cell, "unequal", "problem", message, rates=missing)
    else:
        yield finding_of(
            cell, "unequal", "problem", message, f"try {_rates_text(other.rates)} for it, too"
        )


def _lacks(mine: frozenset[float], theirs: frozenset[float], same_range: bool) -> bool:
    narrower = min(mine) > SAME_END * min(theirs) or SAME_END * max(mine) < max(theirs)
    return len(mine) < len(theirs) or (narrower and not same_range)


def _rates_text(rates: frozenset[float]) -> str:
    low, high = rate_text(min(rates)), rate_text(max(rates))
    return (
        f"1 learning rate, {low}"
        if len(rates) == 1
        else f"{len(rates)} learning rates from {low} to {high}"
    )
