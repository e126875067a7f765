"""Runs that failed: those far below the others of their cell, as where training collapsed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from lr_sweep.analysis.statistics.selection.best import (
    Bools,
    Cell,
    Floats,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary

from .choice import choices
from .noise import num_known

FAILED = 8.0
"""Median absolute deviations below the median of its cell from which a run counts as failed."""
LEAST_LOSS = 0.02
"""Least loss of a failed run, in the metric's unit; of a metric that is no fraction, times the cell's median."""
FEWEST_RUNS = 4
"""Runs of a cell that show which of them failed; fewer have no deviation to speak of."""
OUTLIER = 0.01
"""Share of cells with normal noise in which some run counts as an unexplained failure."""


class Failures(NamedTuple):
    """Failed runs of a cell, among those at learning rates that compete for the choice."""

    num_failed: int
    num_runs: int


def unexplained_failures(summary: StudySummary) -> dict[Cell, Failures]:
    """Return the cells whose runs failed while rates were chosen, unlike those at the chosen rate.

    A rate competes if its best run is as good as the worst run at the chosen rate, fresh runs among
    these. A run has failed if it is so far below the best run of its rate that the noise at the
    chosen rate explains it in 1% of cells. If fresh seeds fail, too, that noise is large, the mean
    of the cell shows the failures, and nothing remains to be explained.
    """
    failures_of = {}
    for cell, chosen, rates, values, chose in choices(summary):
        at_chosen = values[rates == chosen]
        unit = 1.0 if summary.metric.is_fraction else abs(at_chosen.mean())
        failures = failures_among(rates[chose], values[chose], at_chosen, LEAST_LOSS * unit)
        if failures.num_failed:
            failures_of[cell] = failures
    return failures_of


def failures_among(
    rates: Floats,
    values: Floats,
    at_chosen: Floats,
    least: float,
) -> Failures:
    """Count the failed runs of a cell at the rates that compete, as `unexplained_failures` defines them.

    Args:
        rates: learning rate of each run that chose.
        values: validation value of each of these; more is better.
        at_chosen: values of all runs at the chosen rate.
        least: least loss of a failed run.
    """
    limit = max(_largest_gap(at_chosen, len(values)), least)
    num_failed = num_runs = 0
    for rate in np.unique(rates):
        at_rate = values[rates == rate]
        if at_rate.max() >= at_chosen.min():
            num_failed += int((at_rate < at_rate.max() - limit).sum())
            num_runs += len(at_rate)
    return Failures(num_failed, num_runs)


def _largest_gap(at_chosen: Floats, num_runs: int) -> float:
    """Return the gap below a good run that noise gives the worst of some runs in 1% of cells."""
    quantile = float(stdtrit(len(at_chosen) - 1, 1 - OUTLIER / num_runs))
    return math.sqrt(2) * float(at_chosen.std(ddof=1)) * quantile


def failed_runs(values: Floats, is_fraction: bool) -> Bools:
    """Return which runs lie far below the others of their cell.

    `values`: ... x cells x runs, more is better; NaN: no value. `is_fraction`: whether the metric is one.
    """
    medians = _lower_medians(values)
    deviations = _lower_medians(np.abs(values - medians))
    unit = 1.0 if is_fraction else np.abs(medians)
    loss = np.maximum(FAILED * deviations, LEAST_LOSS * unit)
    return (values < medians - loss) & (num_known(values)[..., None] >= FEWEST_RUNS)


def _lower_medians(values: Floats) -> Floats:
    """Return the lower median of each cell, ... x cells x 1; NaN: the cell has no value."""
    if values.shape[-1] == 0:
        return np.full((*values.shape[:-1], 1), np.nan)
    middle = np.maximum(num_known(values)[..., None] - 1, 0) // 2
    return np.take_along_axis(np.sort(values), middle, -1)  # NaN last


def fisher_p(failed: int, other_failed: int, runs: int, other_runs: int) -> float:
    """Return the two-sided p value of Fisher's exact test that two variants fail alike often."""
    # Imported late: that takes longer than to write a small report.
    from scipy.stats import fisher_exact

    working = [runs - failed, other_runs - other_failed]
    return float(fisher_exact([[failed, other_failed], working]).pvalue)
