"""The peak of a sweep between the grid's learning rates: what a finer grid would bring, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from lr_sweep.analysis.statistics.uncertainty import Floats


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


def fitted_gain(log_rates: Floats, means: Floats, sems: Floats, num_values: Floats, best: int) -> Gain:
    """Fit a parabola through the best rate, its neighbours and the next rate beyond the better one; read its peak.

    Least squares with equal weights: standard errors of few seeds are too noisy to weight by, so their mean square
    over these rates is the noise of each. A fourth rate shows whether a parabola fits; if it misses by more than the
    noise, as beside a cliff, the miss is the noise. Of three rates nothing shows it. The uncertainty of the peak's
    height is by the delta method.

    Args:
        log_rates: log10 of the learning rates that have a value, rising.
        means: of the seeds, one a rate; more is better.
        sems: their standard errors; NaN: one seed, counted as exact.
        num_values: number of seeds of each.
        best: index of the chosen rate; neither the first nor the last.
    """
    assert 0 < best < len(means) - 1, f"got rate {best} of {len(means)}, want one inside"
    window = _window(means, best)
    x, y = log_rates[window] - log_rates[best], means[window]
    design = np.stack([np.ones(len(x)), x, x**2], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    _, slope, bend = coefficients = inverse @ design.T @ y
    if bend >= 0:  # no peak between these rates
        return Gain(size=0.0, sem=0.0, dof=1, at=float(log_rates[best]), fit_seen=len(x) > 3)
    noise = float(np.mean(np.nan_to_num(sems[window]) ** 2))
    if len(x) > 3:
        noise = max(noise, float(np.sum((y - design @ coefficients) ** 2)) / (len(x) - 3))
    gradient = np.array([0.0, -slope / (2 * bend), slope**2 / (4 * bend**2)])
    return Gain(
        size=float(-(slope**2) / (4 * bend)),
        sem=math.sqrt(noise * float(gradient @ inverse @ gradient)),
        dof=max(1, int(np.sum(num_values[window] - 1))),
        at=float(log_rates[best] - slope / (2 * bend)),
        fit_seen=len(x) > 3,
    )


def _window(means: Floats, best: int) -> slice:
    """Return the best rate, its neighbours, and one more, beyond the better neighbour where there is one."""
    first = best - 2 if means[best - 1] >= means[best + 1] else best - 1
    first = max(0, min(first, len(means) - 4))
    return slice(first, first + 4)
