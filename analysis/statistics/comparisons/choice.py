"""The cost of choosing a learning rate: how much better another rate of the cell may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    Bools,
    Cell,
    Floats,
    arrays_by_cell,
    tuples_in,
)
from lr_sweep.analysis.statistics.selection.summary import (
    GROUP,
    StudySummary,
)

from .correction import LEVEL
from .noise import num_known


def choice_costs(summary: StudySummary) -> dict[Cell, float]:
    """Return by cell the largest gain that another of its rates may bring, in validation data.

    It is the upper limit of the mean at another rate less the mean at the chosen rate. The limits of
    all but one variant of a task and model hold together in 95% of studies. The noise is that of all
    runs at the chosen rate: the fresh ones, and those that chose. That of the other rates is taken
    to be no smaller. Cells with fewer than two values have no entry.
    """
    num_variants = Counter(tuples_in(summary.cells[GROUP]))
    costs = {}
    for cell, chosen, rates, values, _ in choices(summary):
        is_chosen = rates == chosen
        others = pd.Series(values[~is_chosen]).groupby(rates[~is_chosen])
        cost = choice_cost(
            values[is_chosen],
            others.mean().to_numpy(),
            np.asarray(others.size(), float),
            num_variants[cell[:2]],
        )
        costs[cell] = float(cost)
    return costs


def choices(
    summary: StudySummary,
) -> Iterator[tuple[Cell, float, Floats, Floats, Bools]]:
    """Yield each cell with two values or more at its chosen rate, the chosen rate, and its runs.

    A run has a learning rate, a validation value (more is better), and whether it chose, or is fresh.
    """
    runs = pd.concat([summary.runs, summary.fresh_runs]).dropna(subset=["validation"])
    runs["chose"] = runs["run_id"].isin(summary.runs["run_id"])
    columns = ("learning_rate", "validation", "chose")
    chosen = summary.cells.set_index(CELL)["learning_rate"]
    for cell, (rates, values, chose) in arrays_by_cell(runs, *columns).items():
        if (rates == chosen[cell]).sum() > 1:
            yield (
                cell,
                chosen[cell],
                rates,
                summary.metric.sign * values,
                chose,
            )


def choice_cost(
    at_chosen: Floats,
    means: Floats,
    counts: Floats,
    num_variants: int,
) -> Floats:
    """Return the largest gain that another rate may bring, at least 0, one entry a cell.

    Args:
        at_chosen: validation values at the chosen rate, ... x runs; NaN: none.
        means: mean validation values at the other rates, ... x rates.
        counts: how many values these are the means of.
        num_variants: variants that are compared; a winner rests on the choices of all others.
    """
    confidence = 1 - LEVEL / max(num_variants - 1, 1)
    number = num_known(at_chosen)[..., None]
    deviation = np.nanstd(at_chosen, -1, ddof=1, keepdims=True)
    sem = deviation * np.sqrt(1 / counts + 1 / number)
    gains = means - np.nanmean(at_chosen, -1, keepdims=True)
    limits: Floats = gains + stdtrit(number - 1, confidence) * sem
    return limits.max(-1, initial=0.0)
