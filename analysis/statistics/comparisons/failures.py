"""Runs that failed: those far below the others of their cell, as where training collapsed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import comb, stdtrit

from lr_sweep.analysis.statistics.comparisons.choice import choices
from lr_sweep.analysis.statistics.selection.best import (
    Bools,
    Cell,
    Floats,
    Ints,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary

FAILED = 8.0
"""Median absolute deviations below the median of its cell from which a run counts as failed."""
LEAST_LOSS = 0.02
"""Least loss of a failed run, in the metric's unit; of a metric that is no fraction, times the cell's median."""
FEWEST_RUNS = 4
"""Runs of a cell that show which of them failed; fewer have no deviation to speak of."""
OUTLIER = 0.01
"""Share of cells with normal noise in which some run counts as an unexplained failure."""


ROUNDING = 1e-9
"""Relative difference of two probabilities that are equal."""


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
    found = {}
    for cell, chosen, rates, values, chose in choices(summary):
        at_chosen = values[rates == chosen]
        unit = 1.0 if summary.metric.is_fraction else abs(at_chosen.mean())
        failures = failures_among(rates[chose], values[chose], at_chosen, LEAST_LOSS * unit)
        if failures.num_failed:
            found[cell] = failures
    return found


def failures_among(rates: Floats, values: Floats, at_chosen: Floats, least: float) -> Failures:
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
    """Return how far below another run the worst of some runs lies by noise, but in 1% of cells."""
    quantile = float(stdtrit(len(at_chosen) - 1, 1 - OUTLIER / num_runs))
    return math.sqrt(2) * float(at_chosen.std(ddof=1)) * quantile


def failed_runs(values: Floats, is_fraction: bool) -> Bools:
    """Return which runs lie far below the others of their cell.

    `values`: ... x cells x runs, more is better; NaN: none. `is_fraction`: of the metric.
    """
    if values.shape[-1] < FEWEST_RUNS:
        return np.zeros(values.shape, bool)
    counts = (~np.isnan(values)).sum(-1, keepdims=True)
    middle = np.maximum(counts - 1, 0) // 2
    medians = np.take_along_axis(np.sort(values), middle, -1)  # NaN last
    deviations = np.take_along_axis(np.sort(np.abs(values - medians)), middle, -1)
    unit = 1.0 if is_fraction else np.abs(medians)
    loss = np.maximum(FAILED * deviations, LEAST_LOSS * unit)
    return (values < medians - loss) & (counts >= FEWEST_RUNS)


def num_failed(values: Floats, is_fraction: bool) -> Ints:
    """Count the failed runs of each cell; arguments as of `failed_runs`."""
    counts: Ints = failed_runs(values, is_fraction).sum(-1)
    return counts


def fisher_p(failed: int, other_failed: int, runs: int, other_runs: int) -> float:
    """Return the two-sided p value of Fisher's exact test that two variants fail alike often."""
    total = failed + other_failed
    first = np.arange(max(0, total - other_runs), min(runs, total) + 1)
    ways = comb(runs, first) * comb(other_runs, total - first)
    as_unlikely = ways <= ways[first == failed] * (1 + ROUNDING)
    return float(ways[as_unlikely].sum() / ways.sum())
