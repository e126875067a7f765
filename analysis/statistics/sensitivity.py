"""How much the learning rate matters: a number per cell, of validation data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.aggregate import StudySummary
from lr_sweep.analysis.statistics.selection import CELL, rows_by_cell
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
