"""Tuning curves: what trying k of a grid's learning rates brings, with bands that hold for every k at once.

Which k rates are tried is drawn at random from the grid, which is all there is: the expectation over that is exact.
What is not known is each rate's mean over seeds. The expected best rises with each of these means, so limits that hold
for all means of a cell at once are limits of its whole curve.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lr_sweep.analysis.statistics.comparisons.noise import (
    CellValues,
    spread,
    undefined_is_nan,
)
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    UPPER,
    Floats,
    arrays_by_cell,
    rounded,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary


def best_weights(number: int, num_tried: int) -> Floats:
    """Return how often each of some values, rising, is the highest of so many different ones, picked at random.

    The expectation by these weights is unbiased (Tang et al. 2020, "Showing Your Work Doesn't Always Work"), and noisy
    where few are tried (Dodge et al. 2021).
    """
    assert 1 <= num_tried <= number, f"got {num_tried} learning rates tried of {number}"
    # The share of subsets whose best has index i, C(i, k - 1) / C(n, k), from the highest index down: each is the
    # last one times (i - k + 1) / i. The binomials themselves have hundreds of digits.
    indices = np.arange(number - 1, 0, -1)
    factors = ((indices - num_tried + 1) / indices).clip(min=0.0)
    return np.cumprod([num_tried / number, *factors])[::-1]


def expected_bests(summary: StudySummary) -> pd.DataFrame:
    """Return every cell's expected best validation value against the number of learning rates tried.

    Each rate is tried with all of its seeds, and the best mean is kept. Rates without a value are left out.

    Returns:
        One row a cell and number: the cell's columns, `num_tried`, `num_rates` (with a value), `expected`, `low` and
        `high` (its 95% band, for all numbers at once; NaN: a rate has one seed) and `test` (the expected test value of
        the rate that validation chooses).
    """
    rows, sign = [], summary.metric.sign
    with_value = summary.runs.dropna(subset=["validation_accuracy"])
    runs = arrays_by_cell(with_value, "learning_rate", "seed", "validation_accuracy")
    of_rates = summary.learning_rates.dropna(subset=["validation_mean"])
    measured = arrays_by_cell(of_rates, "learning_rate", "validation_mean", "test_mean")
    for cell, (swept, validation, test) in measured.items():
        means, tests = sign * validation, sign * test  # more is better
        half = half_widths(CellValues.of(*runs[cell]))
        # Rising; of equal means the smaller rate is chosen, so it comes last.
        order = np.lexsort((-swept, rounded(means)))
        curves = np.array(
            [means[order], np.sort(means - half), np.sort(means + half), tests[order]]
        )
        if summary.metric.is_fraction:
            curves[1:3] = np.clip(curves[1:3], min(0, sign), max(0, sign))
        for num_tried in range(1, len(means) + 1):
            expected, least, most, at_chosen = sign * curves @ best_weights(len(means), num_tried)
            low, high = sorted((least, most))
            rows.append((*cell, num_tried, len(means), expected, low, high, at_chosen))
    columns = [*CELL, "num_tried", "num_rates", "expected", "low", "high", "test"]
    return pd.DataFrame(rows, columns=columns)


def half_widths(values: CellValues) -> Floats:
    """Return half the widths of 95% intervals of the means of a cell's rates, which hold at once (Bonferroni).

    The noise at each rate is pooled over it and the rates beside it, and is at least its own. NaN: a rate has one seed.
    """
    squares, dof = spread(values.values)
    with undefined_is_nan():
        pooled_dof = _with_neighbours(dof)
        variance = np.fmax(squares / dof, _with_neighbours(squares) / pooled_dof)
    level = (1 - UPPER) / len(values.rates)
    factor = stdtrit(np.where(dof > 0, pooled_dof, np.nan), 1 - level)
    return np.asarray(factor * np.sqrt(variance / (dof + 1)))


def _with_neighbours(sums: Floats) -> Floats:
    """Add to each rate what the rates beside it have."""
    return np.convolve(sums, np.ones(3))[1:-1]
