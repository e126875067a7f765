"""A cell's curve over its learning rates, and the parabola at its peak: what a finer grid would bring, and how sure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from lr_sweep.analysis.statistics.comparisons.noise import Ints
from lr_sweep.analysis.statistics.comparisons.uncertainty import Floats
from lr_sweep.analysis.statistics.selection.best import rounded

MEASURED = ("learning_rate", "validation_mean", "validation_sem", "num_values")
"""Columns of `StudySummary.learning_rates` that a curve is made of."""


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
        return self.size - float(stdtrit(self.dof, confidence)) * self.sem if self.sem else self.size

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
    assert 0 < best < len(curve.means) - 1, f"got rate {best} of {len(curve.means)}, want one inside"
    window = _window(curve.means, best)
    fit = _fitted(curve, window, best)
    fit_seen = len(fit.residuals) > 3
    if fit.bend >= 0:  # no peak between these rates
        return Gain(size=0.0, sem=0.0, dof=1, at=float(curve.log_rates[best]), fit_seen=fit_seen)
    noise = math.sqrt(np.mean(np.nan_to_num(curve.variances[window] / curve.counts[window])))
    if fit_seen:
        noise = max(noise, math.hypot(*fit.residuals) / math.sqrt(len(fit.residuals) - 3))
    shift = fit.peak_shift
    gradient = np.array([0.0, shift, shift * shift])  # of the height, without squares of means: these may be 0
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
    """At the best rate."""
    bend: float
    residuals: Floats
    inverse: Floats
    """Of the normal equations: height, slope and bend have these covariances, in units of the noise."""

    @property
    def peak_shift(self) -> float:
        """From the best rate to the peak."""
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
