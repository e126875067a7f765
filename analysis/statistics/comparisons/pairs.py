"""Variants compared, each at the learning rate that validation chose for it.

One error rate holds for the whole study: of studies whose variants are equal, at most 5% name any
pair different. How often that was right in simulations: docs/statistics.md.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.selection.best import CELL, Cell
from lr_sweep.analysis.statistics.selection.summary import (
    StudySummary,
    computed_once,
)

from .correction import LEVEL, compared_pairs
from .failures import failed_runs
from .noise import at_chosen
from .pair_tests import (
    FEWEST_SEEDS,
    PairTests,
    after_every_seed,
    at_once,
)
from .power import findable_difference


@computed_once
def comparisons(summary: StudySummary) -> pd.DataFrame:
    """Compare the mean test values of the variants of a task and model: `compared_pairs`.

    Returns:
        One row a task, model and pair. Values are fractions, or in the metric's unit; NaN: not known.

        - `task`, `model`, `variant`, `other`; `num_seeds` and `num_other_seeds`, with a value;
        - `difference`: mean of `variant` less that of `other`; `low` and `high`: its interval, at
          the level of the corrected test, so that it excludes 0 where the pair is different;
        - `p`: of Welch's t test, two-sided; of Fisher's exact test if neither variant has any
          spread; `corrected_p`: over all pairs of all tasks and models, and over the repetitions
          where seeds are added until a pair is decided;
        - `distinguishable`: whether the corrected p is below `LEVEL`;
        - `equal`: whether the difference is certainly within `StudySummary.equal_within`;
        - `findable`: the difference that this comparison would find in 80% of studies;
        - `num_failed` and `num_other_failed`: runs far below the others of their variant;
          `working_difference`: the difference of the means without these;
        - `note`.
    """
    cells = summary.cells
    values = at_chosen(summary)
    pairs = compared_pairs(cells, summary.metric.sign)
    within, fresh = summary.equal_within, summary.fresh
    if fresh is not None and fresh.until_decided:
        tested = after_every_seed(values.values, pairs, within, fresh.max)
    else:
        tested = at_once(values, pairs, within)
    first, second, _ = pairs
    frame = cells.iloc[first][CELL].reset_index(drop=True)
    counts = values.counts.astype(int)
    has_failed = failed_runs(summary.metric.sign * values.values, summary.metric.is_fraction)
    working = values._replace(values=np.where(has_failed, np.nan, values.values)).means
    num_failed = has_failed.sum(-1)
    return frame.assign(
        other=cells["variant"].to_numpy()[second],
        num_seeds=counts[first],
        num_other_seeds=counts[second],
        **numbers_of(tested),
        equal=tested.is_equal,
        findable=findable_difference(tested.sem, tested.dof, tested.level),
        num_failed=num_failed[first],
        num_other_failed=num_failed[second],
        working_difference=working[first] - working[second],
        note=list(map(_note, tested.num_seeds, tested.difference, tested.sem)),
    )


def cells_of(row: Row) -> tuple[Cell, Cell]:
    """Return the two cells of a row of `comparisons`."""
    group = row["task"], row["model"]
    return (*group, row["variant"]), (*group, row["other"])


def numbers_of(tested: PairTests) -> dict[str, np.ndarray]:
    """Return the columns of `comparisons` from `difference` to `distinguishable`."""
    half = tested.half_width
    return {
        "difference": tested.difference,
        "low": tested.difference - half,
        "high": tested.difference + half,
        "p": tested.p,
        "corrected_p": tested.corrected_p,
        "distinguishable": tested.corrected_p < LEVEL,
    }


def _note(num_seeds: int, difference: float, sem: float) -> str:
    if num_seeds == 0:
        return "a variant without a value"
    if num_seeds < FEWEST_SEEDS:
        return f"fewer than {FEWEST_SEEDS} seeds: not tested"
    if math.isnan(sem):
        return f"no spread between seeds: no interval, {'p by ranks' if difference else 'no p'}"
    return ""
