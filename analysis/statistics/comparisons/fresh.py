"""Which fresh seeds to train next, and how far the comparison of variants on fresh seeds is.

Fresh seeds chose no learning rate, so their means are not optimistic. Test values are read here:
they end the comparison of two variants, and choose no rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pandas as pd

from lr_sweep.analysis.statistics.comparisons.pair_tests import FIRST_LOOK
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary
from lr_sweep.common.text import counted


def next_seeds(summary: StudySummary) -> Mapping[Cell, int]:
    """Return how many fresh seeds each cell gets in the next round; empty: the comparison has ended.

    A lost run is not replaced: a cell gets `StudySummary.fresh.max` fresh seeds at most.
    """
    fresh = summary.fresh
    assert fresh is not None, "the study has fresh seeds"
    num_used = _num_used(summary)
    first = FIRST_LOOK if fresh.until_decided else fresh.max
    wanted = dict.fromkeys(num_used, first)
    for cell, target in _wanted_by_open_pairs(summary).items():
        wanted[cell] = max(wanted[cell], target)
    lacking = {cell: min(wanted[cell], fresh.max) - used for cell, used in num_used.items()}
    return {cell: number for cell, number in lacking.items() if number > 0}


def most_left(summary: StudySummary) -> Mapping[Cell, int]:
    """Return how many fresh seeds each cell may still get."""
    fresh = summary.fresh
    assert fresh is not None, "the study has fresh seeds"
    num_used, open_cells = _num_used(summary), _wanted_by_open_pairs(summary)
    least = FIRST_LOOK if fresh.until_decided else fresh.max
    most = {cell: fresh.max if cell in open_cells else least for cell in num_used}
    return {cell: max(0, most[cell] - used) for cell, used in num_used.items()}


def progress(summary: StudySummary) -> str:
    """Return `3 of 6 pairs decided on fresh seeds, at most 11 runs to go`."""
    compared, left = comparisons(summary), sum(most_left(summary).values())
    num_decided = int((compared["distinguishable"] | compared["equal"]).sum())
    to_go = f"at most {counted(left, 'run')} to go" if left else "no runs to go"
    return f"{num_decided} of {counted(len(compared), 'pair')} decided on fresh seeds, {to_go}"


def _num_used(summary: StudySummary) -> dict[Cell, int]:
    """Return how many fresh runs at its chosen rate have ended, for each cell that has chosen."""
    ended = summary.chosen_runs[summary.chosen_runs["status"].ne("missing")]
    counts = Counter(tuples_in(ended[CELL]))
    chosen = summary.cells.dropna(subset=["learning_rate"])
    return {cell: counts[cell] for cell in tuples_in(chosen[CELL])}


def _wanted_by_open_pairs(summary: StudySummary) -> dict[Cell, int]:
    """Return how many fresh runs the next test of an open pair needs, for each cell of such pairs.

    Both variants of a pair are to have one value more than the one that has fewer. Runs without a
    value are among the runs that a cell may have.
    """
    assert summary.fresh is not None
    wanted: dict[Cell, int] = {}
    if not summary.fresh.until_decided:
        return wanted
    num_used = _num_used(summary)
    num_values = dict(zip(tuples_in(summary.cells[CELL]), summary.cells["num_tests"], strict=True))
    for pair in _open_pairs(comparisons(summary)):
        if not set(pair) <= set(num_used):
            continue
        target = max(min(num_values[cell] for cell in pair) + 1, FIRST_LOOK)
        needed = {cell: num_used[cell] + max(0, target - num_values[cell]) for cell in pair}
        if max(needed.values()) <= summary.fresh.max:
            wanted |= {cell: max(number, wanted.get(cell, 0)) for cell, number in needed.items()}
    return wanted


def _open_pairs(compared: pd.DataFrame) -> list[tuple[Cell, Cell]]:
    rows = compared[~(compared["distinguishable"] | compared["equal"])]
    names = tuples_in(rows[[*GROUP, "variant", "other"]])
    return [((task, model, one), (task, model, other)) for task, model, one, other in names]
