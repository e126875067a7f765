"""The refinement of a grid: what a finer one would bring, by a parabola at the peak of a cell's curve, and how sure.

Refinement proposes, in rounds, the learning rates that the checks `edge`, `cliff` and `narrow` ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.rates.further_rates import beyond, geometric_mean, neighbours
from lr_sweep.analysis.statistics.selection.best import (
    Cell,
    Floats,
    Ints,
    comparable,
    each_cell,
    inner_rate,
    rounded,
)
from lr_sweep.analysis.statistics.selection.summary import account, per_run

ROUND_SIZE = 2
"""Learning rates of a round: both midpoints beside the best, or two steps beyond an end, as the checks list them."""
LARGEST = 10.0
"""Learning rates above it are not proposed, and no study accepts them."""
SMALLEST = 1e-20
EQUAL_STEPS = 1.2
"""Ratio of the logarithmic widths of two intervals up to which they count as equal: 1, 3, 10 step by 3 and 3.3."""
MEASURED = ("learning_rate", "validation_mean", "validation_sem", "num_values")
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
    wanted: pd.DataFrame, runs: pd.DataFrame, curves: pd.DataFrame, metric: Metric
) -> dict[Cell, list[Observation]]:
    """Return what is known of the rates of each cell, whose runs have all ended.

    Args:
        wanted: columns of `WANTED`, and `stopped_at_step` as of `account`.
        runs: columns of `RUNS` that `account` reads.
        curves: `run_id`, `step` and `validation_accuracy`; no test columns.
        metric: of the study.
    """
    selected = per_run(account(wanted, runs), curves, metric)
    found: dict[Cell, list[Observation]] = {}
    for cell, of_cell in each_cell(selected):
        by_rate = of_cell.groupby("learning_rate", sort=False)
        found[cell] = [_observation(float(str(rate)), rows) for rate, rows in by_rate]
    return found


def _observation(rate: float, rows: pd.DataFrame) -> Observation:
    without = rows[rows["validation_accuracy"].isna()]
    if without.empty:
        return Observation(rate, "measured", float(rows["validation_accuracy"].mean()))
    if without["status"].eq("diverged").any():
        return Observation(rate, "diverged", None)
    if without["status"].eq("stopped").any():
        return Observation(rate, "stopped", None)
    return Observation(rate, "lost", None)


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
    tried = sorted(each.learning_rate for each in observed)
    sign = 1 if maximise else -1
    values = {each.learning_rate: sign * each.value for each in observed if each.value is not None}
    if not values:
        diverged = any(each.outcome == "diverged" for each in observed)
        return _beyond(tried, "low")[:number] if diverged else []
    compared = {rate: comparable(value) for rate, value in values.items()}
    best = inner_rate(
        [rate for rate, value in compared.items() if value == max(compared.values())], tried
    )
    end = {tried[0]: "low", tried[-1]: "high"}.get(best)
    found = _beyond(tried, end) if end else []
    return (found or _beside(tried, values, best))[:number]


def _beyond(tried: list[float], end: str) -> list[float]:
    return [rate for rate in beyond(tried, end) if SMALLEST <= rate <= LARGEST]


def _beside(tried: list[float], values: dict[float, float], best: float) -> list[float]:
    others = neighbours(tried, best)
    widths = {other: abs(math.log(other / best)) for other in others}
    are_equal = max(widths.values()) <= EQUAL_STEPS * min(widths.values())
    others.sort(key=lambda other: -values.get(other, -math.inf) if are_equal else -widths[other])
    middles = [geometric_mean(best, other) for other in others]
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
    def of(cls, sign: int, rates: Floats, means: Floats, sems: Floats, counts: Ints) -> Curve:
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


@dataclass(frozen=True, kw_only=True)
class Gain:
    """How far the fitted peak is above the best rate of the grid, in the unit of the means."""

    size: float
    sem: float
    dof: int
    at: float
    """log10 of the learning rate of the peak."""
    fit_seen: bool
    """Whether a fourth rate shows that a parabola fits."""

    def lower(self, confidence: float) -> float:
        """Return the one-sided lower limit."""
        return (
            self.size - float(stdtrit(self.dof, confidence)) * self.sem if self.sem else self.size
        )

    def upper(self, confidence: float) -> float:
        """Return the one-sided upper limit."""
        return 2 * self.size - self.lower(confidence)


def fitted_gain(curve: Curve, best: int) -> Gain:
    """Fit a parabola through the best rate, its neighbours and the next rate beyond the better one; read its peak.

    Least squares with equal weights: standard errors of few seeds are too noisy to weight by, so their mean square
    over these rates is the noise of each. A fourth rate shows whether a parabola fits; if it misses by more than the
    noise, as beside a cliff, the miss is the noise. Of three rates nothing shows it. The uncertainty of the peak's
    height is by the delta method.

    `best`: index of the chosen rate, neither the first nor the last; all rates have a value.
    """
    assert 0 < best < len(curve.means) - 1, (
        f"got rate {best} of {len(curve.means)}, want one inside"
    )
    window = _window(curve.means, best)
    fit = _fitted(curve, window, best)
    fit_seen = len(fit.residuals) > 3
    if fit.bend >= 0:  # no peak between these rates
        return Gain(size=0.0, sem=0.0, dof=1, at=float(curve.log_rates[best]), fit_seen=fit_seen)
    noise = math.sqrt(np.mean(np.nan_to_num(curve.variances[window] / curve.counts[window])))
    if fit_seen:
        noise = max(noise, math.hypot(*fit.residuals) / math.sqrt(len(fit.residuals) - 3))
    shift = fit.peak_shift
    gradient = np.array(
        [0.0, shift, shift * shift]
    )  # of the height, without squares of means: these may be 0
    return Gain(
        size=fit.slope * shift / 2,
        sem=noise * math.sqrt(gradient @ fit.inverse @ gradient),
        dof=max(1, int(np.sum(curve.counts[window] - 1))),
        at=float(curve.log_rates[best]) + shift,
        fit_seen=fit_seen,
    )


def vertex(curve: Curve) -> float:
    """Return where the parabola through the best rate and those beside it is highest; one has no value: the best."""
    fit = _fitted(curve, slice(curve.best - 1, curve.best + 2), curve.best)
    return float(curve.log_rates[curve.best]) + (fit.peak_shift if fit.bend < 0 else 0.0)


class _Parabola(NamedTuple):
    """Fitted by least squares with equal weights, around the best rate."""

    slope: float
    bend: float
    residuals: Floats
    inverse: Floats
    """Of the normal equations: height, slope and bend have these covariances, in units of the noise."""

    @property
    def peak_shift(self) -> float:
        return -self.slope / (2 * self.bend)


def _fitted(curve: Curve, window: slice, best: int) -> _Parabola:
    x, y = curve.log_rates[window] - curve.log_rates[best], curve.means[window] - curve.means[best]
    design = np.stack([np.ones(len(x)), x, x**2], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    _, slope, bend = found = inverse @ design.T @ y
    return _Parabola(float(slope), float(bend), y - design @ found, inverse)


def _window(means: Floats, best: int) -> slice:
    """Return the best rate, its neighbours, and one more, beyond the better neighbour where there is one."""
    first = best - 2 if means[best - 1] >= means[best + 1] else best - 1
    first = max(0, min(first, len(means) - 4))
    return slice(first, first + 4)
