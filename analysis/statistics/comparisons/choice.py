"""The cost of choosing a learning rate: how much better another rate of the cell may be."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lr_sweep.analysis.statistics.comparisons.correction import LEVEL
from lr_sweep.analysis.statistics.comparisons.noise import num_known
from lr_sweep.analysis.statistics.selection.best import CELL, Floats, arrays_by_cell, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary


def choice_costs(summary: StudySummary) -> dict[tuple[str, str, str], float]:
    """Return by cell the largest gain that another of its rates may bring, in validation data.

    It is the upper limit of the mean at another rate less the mean at the chosen rate. The limits of
    all but one variant of a task and model hold together in 95% of studies. The noise is that of all
    runs at the chosen rate: the fresh ones, and those that chose. That of the other rates is taken
    to be no smaller. Cells with fewer than two values have no entry.
    """
    values = pd.concat([summary.runs, summary.fresh_runs]).dropna(subset=["validation_accuracy"])
    by_cell = arrays_by_cell(values, "learning_rate", "validation_accuracy")
    chosen = summary.cells.set_index(CELL)["learning_rate"]
    num_variants = Counter(tuples_in(summary.cells[GROUP]))
    costs = {}
    for cell, (rates, accuracies) in by_cell.items():
        at_chosen = rates == chosen[cell]
        if at_chosen.sum() > 1:
            better = summary.metric.sign * accuracies
            others = _means(rates[~at_chosen], better[~at_chosen])
            costs[cell] = float(choice_cost(better[at_chosen], *others, num_variants[cell[:2]]))
    return costs


def _means(rates: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the mean of each rate, and the number of its values."""
    _, index, counts = np.unique(rates, return_inverse=True, return_counts=True)
    means = np.bincount(index, values) / counts
    return means, counts.astype(float)


def choice_cost(at_chosen: Floats, means: Floats, counts: Floats, num_variants: int) -> Floats:
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
