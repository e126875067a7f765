"""Which fresh seeds to train next, and how far the comparison of variants on fresh seeds is.

Fresh seeds chose no learning rate, so their means are not optimistic. Test values are read here:
they end the comparison of two variants, and choose no rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

import pandas as pd

from lr_sweep.analysis.record.study import Fresh
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    Cell,
    tuples_in,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import counted

from .pair_tests import FIRST_LOOK
from .pairs import cells_of, comparisons


def next_seeds(summary: StudySummary) -> Mapping[Cell, int]:
    """Return how many fresh seeds each cell gets in the next round; empty: the comparison has ended.

    A lost run is not replaced: a cell gets `StudySummary.fresh.max` fresh seeds at most.
    """
    assert summary.fresh is not None, "the study has fresh seeds"
    num_used = _num_used(summary)
    first = _first_round(summary.fresh)
    lacking = {cell: first - used for cell, used in num_used.items() if used < first}
    if lacking:
        return lacking
    behind = chain.from_iterable(_open_pairs(summary))
    return dict.fromkeys(behind, 1)


def most_left(summary: StudySummary) -> Mapping[Cell, int]:
    """Return how many fresh seeds each cell may still get."""
    fresh = summary.fresh
    assert fresh is not None, "the study has fresh seeds"
    open_cells = set(chain.from_iterable(_open_pairs(summary)))
    left = {}
    for cell, used in _num_used(summary).items():
        most = fresh.max if cell in open_cells else _first_round(fresh)
        left[cell] = max(0, most - used)
    return left


def progress(summary: StudySummary) -> str:
    """Return `3 of 6 pairs decided on fresh seeds, at most 11 runs to go`."""
    compared = comparisons(summary)
    num_decided = int(_is_decided(compared).sum())
    num_pairs = counted(len(compared), "pair")
    left = sum(most_left(summary).values())
    to_go = f"at most {counted(left, 'run')} to go" if left else "no runs to go"
    return f"{num_decided} of {num_pairs} decided on fresh seeds, {to_go}"


def _first_round(fresh: Fresh) -> int:
    return FIRST_LOOK if fresh.until_decided else fresh.max


def _num_used(summary: StudySummary) -> dict[Cell, int]:
    """Return how many fresh runs at its chosen rate have ended, for each cell that has chosen."""
    runs = summary.chosen_runs
    ended = runs[runs["status"].ne("missing")]
    counts = Counter(tuples_in(ended[CELL]))
    chosen = summary.cells.dropna(subset=["learning_rate"])
    return {cell: counts[cell] for cell in tuples_in(chosen[CELL])}


def _open_pairs(summary: StudySummary) -> Iterator[list[Cell]]:
    """Yield the cells that the next test of each open pair waits for: those with fewer values.

    A pair ends without a decision once such a cell has had all of its seeds.
    """
    fresh = summary.fresh
    if fresh is None or not fresh.until_decided:
        return
    num_used = _num_used(summary)
    num_values = dict(
        zip(
            tuples_in(summary.cells[CELL]),
            summary.cells["num_tests"],
            strict=True,
        )
    )
    compared = comparisons(summary)
    for row in compared[~_is_decided(compared)].to_dict("records"):
        pair = cells_of(row)
        least = min(num_values[cell] for cell in pair)
        behind = [cell for cell in pair if num_values[cell] == least]
        if all(num_used.get(cell, fresh.max) < fresh.max for cell in behind):
            yield behind


def _is_decided(compared: pd.DataFrame) -> pd.Series[bool]:
    return compared["distinguishable"] | compared["equal"]
