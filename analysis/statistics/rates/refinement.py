"""The refinement of a grid: learning rates around the best one that are proposed in rounds, by validation data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.selection.best import (
    Cell,
    Floats,
    Ints,
    comparable,
    inner_rate,
    rounded,
    rows_by_cell,
)
from lr_sweep.analysis.statistics.selection.summary import (
    account,
    per_learning_rate,
    per_run,
)

from .further_rates import beyond, geometric_mean, neighbours

ROUND_SIZE = 2
"""Learning rates of a round: both midpoints beside the best, or two steps beyond an end."""
LARGEST = 10.0
"""Learning rates above it are not proposed, and no study accepts them."""
SMALLEST = 1e-20
EQUAL_STEPS = 1.2
"""Ratio of the logarithmic widths of two intervals up to which they count as equal: 1, 3, 10 step by 3 and 3.3."""
MEASURED = (
    "learning_rate",
    "validation_mean",
    "validation_sem",
    "num_values",
)
"""Columns of `StudySummary.learning_rates` that a curve is made of."""


class Observation(NamedTuple):
    """What is known of a learning rate of a cell once its runs have ended."""

    learning_rate: float
    outcome: Literal["measured", "diverged", "stopped", "lost"]
    """`measured`: every seed has a value; `diverged`: a seed diverged without one; `stopped`: a rule stopped it, behind
    others; `lost`: a seed failed or the user stopped it, which says nothing about the rate."""
    value: float | None
    """Mean over seeds of the runs' validation values; None unless measured."""


def observations(
    wanted: pd.DataFrame,
    runs: pd.DataFrame,
    curves: pd.DataFrame,
    metric: Metric,
) -> dict[Cell, list[Observation]]:
    """Return what is known of the rates of each cell, whose runs have all ended.

    Args:
        wanted: columns of `WANTED`, and `stopped_at_step` as of `account`.
        runs: columns of `RUNS` that `account` reads.
        curves: `run_id`, `step` and `validation`; no test columns.
        metric: of the study.
    """
    selected = per_run(account(wanted, runs), curves, metric)
    rates = per_learning_rate(selected.assign(test=math.nan))
    by_cell = rows_by_cell(rates)
    return {cell: [_observation(row) for row in rows] for cell, rows in by_cell.items()}


def _observation(row: Row) -> Observation:
    """Return what a row of `per_learning_rate` shows."""
    rate = row["learning_rate"]
    if row["num_values"] == row["num_wanted"]:
        return Observation(rate, "measured", row["validation_mean"])
    if row["diverged"]:
        return Observation(rate, "diverged", None)
    return Observation(rate, "stopped" if row["stopped"] else "lost", None)


def refined_rates(observed: Sequence[Observation], number: int, *, maximise: bool) -> list[float]:
    """Return the next learning rates of a cell, none that was tried; the one to prefer first.

    While the best rate is the smallest or largest tried (and none inside is as good), the grid's last step is taken
    again beyond it. Then the two intervals beside the best are halved on the logarithmic scale, the wider one first; of
    equally wide ones that with the better outer rate, on whose side the peak of a parabola lies. Where no rate has a
    value, smaller rates follow, if some diverged; nothing is proposed if all runs were lost.

    Args:
        observed: all rates tried in the cell, at least two, in any order.
        number: of rates, at most; `ROUND_SIZE` or less.
        maximise: whether higher values are better.
    """
    tried = sorted(observation.learning_rate for observation in observed)
    sign = 1 if maximise else -1
    values = {
        observation.learning_rate: comparable(sign * observation.value)
        for observation in observed
        if observation.value is not None
    }
    if not values:
        diverged = any(observation.outcome == "diverged" for observation in observed)
        return _beyond(tried, "low")[:number] if diverged else []
    top = max(values.values())
    best = inner_rate([rate for rate in values if values[rate] == top], tried)
    further = []
    if best in (tried[0], tried[-1]):
        further = _beyond(tried, "low" if best == tried[0] else "high")
    return (further or _beside(tried, values, best))[:number]


def _beyond(tried: list[float], end: str) -> list[float]:
    return [rate for rate in beyond(tried, end) if SMALLEST <= rate <= LARGEST]


def _beside(tried: list[float], values: dict[float, float], best: float) -> list[float]:
    outer = neighbours(tried, best)
    widths = {rate: abs(math.log(rate / best)) for rate in outer}
    if max(widths.values()) <= EQUAL_STEPS * min(widths.values()):
        outer.sort(key=lambda rate: values.get(rate, -math.inf), reverse=True)
    else:
        outer.sort(key=lambda rate: widths[rate], reverse=True)
    middles = [geometric_mean(best, rate) for rate in outer]
    return [middle for middle in middles if middle not in tried]


class Curve(NamedTuple):
    """Means over seeds at the learning rates of a cell; more is better."""

    log_rates: Floats
    """log10, rising."""
    means: Floats
    """NaN: no seed has a value."""
    variances: Floats
    """Of a run, over seeds; NaN: fewer than two."""
    counts: Ints
    """Seeds with a value."""

    @classmethod
    def of(
        cls,
        sign: int,
        rates: Floats,
        means: Floats,
        sems: Floats,
        counts: Ints,
    ) -> Curve:
        """Return the curve of columns `MEASURED`; `sign`: -1 if less is better."""
        return cls(np.log10(rates), sign * means, counts * sems**2, counts)

    @property
    def best(self) -> int:
        """The index of the best mean, the lowest rate of equals."""
        return int(np.nanargmax(rounded(self.means)))

    @property
    def falls(self) -> Floats:
        """By how much each mean is behind the best one."""
        return self.means[self.best] - self.means

    @property
    def away(self) -> Floats:
        """log10 of each rate, less that of the best one."""
        return self.log_rates - self.log_rates[self.best]

    def sides(self, values: Any) -> tuple[Any, Any]:
        """Return the values before and after that of the best rate, the nearest first."""
        return values[: self.best][::-1], values[self.best + 1 :]


def vertex(curve: Curve) -> float:
    """Return the top of the parabola through the best rate and its two neighbours, as log10 of a rate.

    If a neighbour has no value, it is the best rate itself.
    """
    best = curve.best
    x, y = curve.away, -curve.falls
    slope_before = y[best - 1] / x[best - 1]
    slope_after = y[best + 1] / x[best + 1]
    bend = (slope_after - slope_before) / (x[best + 1] - x[best - 1])
    slope = slope_before - bend * x[best - 1]  # at the best rate
    shift = -slope / (2 * bend) if bend < 0 else 0.0
    return float(curve.log_rates[best] + shift)
