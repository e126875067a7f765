"""How much the learning rate matters: a number per cell, and what trying fewer of them would have found.

Both read validation accuracy only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.aggregate import StudySummary
from lr_sweep.analysis.statistics.selection import CELL, arrays_by_cell, rows_by_cell
from lr_sweep.analysis.statistics.uncertainty import Floats


def mean_shortfall(rates: Floats, accuracies: Floats) -> float:
    """Return how far accuracy lies below its best, on average over the logarithm of the learning rate.

    Learning-rate sensitivity of Wortsman et al. 2023 ("Small-scale proxies for large-scale Transformer training
    instabilities", section 2.2) with accuracy in place of loss: there the mean over the sweep of
    min(loss, loss at initialisation) less the best loss. Between learning rates accuracy is taken as linear in their
    logarithm, so unevenly spaced ones are weighted by the range they cover.

    `rates` rise; fewer than two give NaN. `accuracies` are fractions, one a learning rate; more is better.
    """
    if len(rates) < 2:
        return math.nan
    log_rates = np.log(rates)
    shortfall = accuracies.max() - accuracies
    return float(np.trapezoid(shortfall, log_rates) / (log_rates[-1] - log_rates[0]))


def expected_best(accuracies: Floats, num_tried: int) -> tuple[float, float]:
    """Return the expected highest accuracy of so many learning rates, picked at random from those that were swept.

    Args:
        accuracies: validation accuracies, one a learning rate; n of them; more is better.
        num_tried: k, from 1 to n.

    Returns:
        First the expectation over all subsets of k different ones, which is unbiased (Tang et al. 2020, "Showing Your
        Work Doesn't Always Work") and the noisier of the two (Dodge et al. 2021, "Expected Validation Performance and
        Estimation of a Random Variable's Maximum"); then that of k draws with replacement (Dodge et al. 2019, "Show
        Your Work"), which is too low, the more so as k nears n. Both are fractions, equal at k = 1.
    """
    n = len(accuracies)
    assert 1 <= num_tried <= n, f"got {num_tried} learning rates tried of {n}"
    rising = np.sort(accuracies)
    # The share of subsets whose best has index i, C(i, k - 1) / C(n, k), from the highest index down: each is the
    # last one times (i - k + 1) / i. The binomials themselves have hundreds of digits.
    indices = np.arange(n - 1, 0, -1)
    factors = ((indices - num_tried + 1) / indices).clip(min=0.0)
    without = np.cumprod([num_tried / n, *factors])[::-1]
    below = (np.arange(n + 1) / n) ** num_tried
    return float(rising @ without), float(rising @ np.diff(below))


def sensitivities(summary: StudySummary) -> pd.DataFrame:
    """Measure every cell by `mean_shortfall`.

    Where every run of a learning rate diverged before its first evaluation there is no accuracy; it counts as the
    lowest mean of the task, which approximates chance, as a loss would be cut at that of an untrained model. Learning
    rates with missing or failed runs only are left out.

    Returns:
        One row a cell: the cell's columns, `sensitivity` (fraction; NaN: fewer than two learning rates), `low` and
        `high` (the learning rates it is measured between), `num_rates`, `num_floored` (without an accuracy),
        `num_fewer` (with fewer seeds than others) and `num_lost` (runs of the cell that are missing or failed).
    """
    sign = summary.metric.sign
    scores = summary.learning_rates.assign(score=sign * summary.learning_rates["validation_mean"])
    lowest = scores.groupby("task")["score"].min().to_dict()
    rows = [
        dict(zip(CELL, cell, strict=True)) | _sensitivity(rates, lowest[cell[0]])
        for cell, rates in rows_by_cell(scores).items()
    ]
    return pd.DataFrame(rows)


def expected_bests(summary: StudySummary) -> pd.DataFrame:
    """Return every cell's expected best validation accuracy against the number of learning rates tried.

    Returns:
        One row a cell and number: the cell's columns, `num_tried`, `num_rates` (with a value) and `expected`
        (unbiased) and `expected_with_replacement` (fractions; see `expected_best`).
    """
    rows, sign = [], summary.metric.sign
    for cell, (means,) in arrays_by_cell(summary.learning_rates, "validation_mean").items():
        means = means[~np.isnan(means)]
        for num_tried in range(1, len(means) + 1):
            expected = (sign * best for best in expected_best(sign * means, num_tried))
            rows.append((*cell, num_tried, len(means), *expected))
    columns = [*CELL, "num_tried", "num_rates", "expected", "expected_with_replacement"]
    return pd.DataFrame(rows, columns=columns)


def _sensitivity(rates: list[Row], lowest: float) -> dict[str, Any]:
    floored = [] if math.isnan(lowest) else [row for row in rates if not row["num_values"] and row["diverged"]]
    means = {row["learning_rate"]: row["score"] for row in rates if row["num_values"]}
    means |= {row["learning_rate"]: lowest for row in floored}
    swept = sorted(means)
    return {
        "sensitivity": mean_shortfall(np.array(swept), np.array([means[rate] for rate in swept])),
        "low": min(swept, default=math.nan),
        "high": max(swept, default=math.nan),
        "num_rates": len(swept),
        "num_floored": len(floored),
        "num_fewer": sum(row["num_values"] > 0 and not row["eligible"] for row in rates),
        "num_lost": sum(row["missing"] + row["failed"] for row in rates),
    }
