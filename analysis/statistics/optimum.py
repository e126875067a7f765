"""The best learning rate of a cell between those that were tried, with its interval, and what missing it costs.

All of it reads validation data. The curve near its top is taken as two half parabolas that meet at the optimum, one for
each side, as a cliff on one side is the rule. What this was measured to do: docs/laws.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtri, stdtrit

from lr_sweep.analysis.statistics.aggregate import StudySummary
from lr_sweep.analysis.statistics.noise import Ints
from lr_sweep.analysis.statistics.peak import Curve, vertex
from lr_sweep.analysis.statistics.selection import CELL, arrays_by_cell
from lr_sweep.analysis.statistics.uncertainty import CONFIDENCE, Floats

REACH = 1.25
"""Decades on both sides of the best rate that the fit may use; the rates beside it are used in any case."""
STEEPEST = 9.0
"""The fit ends before a rate that falls behind by this many times what the last one did, or the first one on the other
side, as beside a cliff."""
MISFIT = 0.8
"""A misfit larger than such a share of what noise gives is none of noise: the parabolas do not hold."""
PARAMETERS = 4
"""Of the two half parabolas: that many rates cannot show whether they hold."""
TINY = 1e-10
"""Keeps the fit solvable where one side has no rate."""
STEPS = 100
MOST_CANDIDATES = 1000
"""Candidates for the optimum between two rates, and of all."""
CLEAR = 0.99
"""Confidence, two-sided, of a rate being worse than the best one."""
NEAR = 0.01
"""Rates belong to the basin within a point of accuracy, or within this share of another metric's best mean."""


class Optimum(NamedTuple):
    """log10 of a learning rate, and its 95% interval; NaN: not known."""

    at: float
    low: float
    high: float
    note: str = ""
    """Why there is no number, or what weakens it."""


def optimum(curve: Curve) -> Optimum:
    """Estimate the learning rate of the highest point of a curve.

    Candidates are profiled: the interval has those whose best fit is worse than the best of all by no more than noise
    explains. It never passes a rate that is clearly worse than the best one. Where the fit does not hold, or too few
    rates could show it, that is all of the interval, and the parabola through the best three gives the number.
    """
    if np.isfinite(curve.means).sum() < 3:
        return Optimum(math.nan, math.nan, math.nan, "fewer than three learning rates with a value")
    if curve.best in (0, len(curve.means) - 1):
        return Optimum(math.nan, math.nan, math.nan, "the best learning rate is at the edge of those tried")
    kept = _kept(curve)
    variance, dof = _noise(curve, kept)
    if len(kept) > PARAMETERS:
        return _fitted(curve, kept, variance, dof)
    if dof == 0:
        return Optimum(vertex(curve), math.nan, math.nan, "one seed, too few rates: no interval")
    low, high = _unimodal(curve, variance, dof)
    return Optimum(float(np.clip(vertex(curve), low, high)), low, high, "too few rates for a fit: between worse rates")


def _fitted(curve: Curve, kept: Ints, variance: float, dof: int) -> Optimum:
    """Profile the candidates; `variance` of a mean is not known if its degrees of freedom are 0."""
    ends, x, y = _ends(curve, kept), curve.log_rates[kept], curve.means[kept]
    y = y - y.mean()
    number = STEPS * max(1, round(float((ends[1] - ends[0]) / np.diff(curve.log_rates).min())))
    candidates = np.linspace(*ends, min(number, MOST_CANDIDATES) + 1)
    misfits = _misfits(x, y, candidates)
    misfit, misfit_dof = float(misfits.min()), len(x) - PARAMETERS
    one_seed = dof == 0
    if one_seed:  # what the fit misses is all that is known of the noise
        variance, dof = misfit / misfit_dof, misfit_dof
    limit, (low, high) = _limit(misfit, misfit_dof, variance, dof), _unimodal(curve, variance, dof)
    held = math.isfinite(limit)
    # Four numbers fitted to single values follow their noise; the parabola through the best three does less.
    best = candidates[misfits.argmin()] if held and not one_seed else vertex(curve)
    at = float(np.clip(best, low, high))
    inside = candidates[(misfits <= misfit + limit) & (candidates >= low) & (candidates <= high)]
    note = "" if held else "parabolas do not hold: between worse rates"
    step = candidates[1] - candidates[0]  # none between two candidates is left out
    return Optimum(at, max(low, inside.min(initial=at) - step), min(high, inside.max(initial=at) + step), note)


@lru_cache(maxsize=2)
def optima(summary: StudySummary) -> pd.DataFrame:
    """Estimate the optimum of every cell.

    Returns:
        One row a cell: the cell's columns, `optimum`, `low` and `high` (learning rates; NaN: not known), `basin_low`
        and `basin_high` (between which the mean is within `NEAR` of the best; the ends of the grid at most), `cost_2x`
        and `cost_10x` (what the worse of twice and half that rate costs, and of 10 times and a tenth, in the unit of
        the metric; between rates the mean is taken as linear in their logarithm; NaN: outside those tried), `spacing`
        (decades between the best rate and its neighbours, the wider of both), `one_seed`, and `note`.
    """
    rows = []
    measured = ("learning_rate", "validation_mean", "validation_sem", "num_values")
    for cell, (rates, means, sems, counts) in arrays_by_cell(summary.learning_rates, *measured).items():
        curve = Curve(np.log10(rates), summary.metric.sign * means, counts * sems**2, counts)
        found = optimum(curve)
        ends = dict(zip(("optimum", "low", "high"), np.power(10.0, found[:3]).tolist(), strict=True))
        tried = {"spacing": _spacing(curve), "one_seed": curve.counts.max(initial=0) < 2, "note": found.note}
        rows.append(dict(zip(CELL, cell, strict=True)) | ends | _around(curve, summary.metric.is_fraction) | tried)
    return pd.DataFrame(rows)


def _kept(curve: Curve) -> Ints:
    """Return the indices of the rates that the fit uses: the best one, and on both sides those before a cliff."""
    best, kept = curve.best, [curve.best]
    short = curve.means[best] - curve.means
    usual = 2 * math.sqrt(_noise(curve, np.arange(len(short)))[0])
    for step in (-1, 1):
        last, i = np.nan_to_num([usual, *short[best - step : best - step + 1]]).max(), best + step
        while 0 <= i < len(short) and np.isfinite(short[i]):
            far = abs(curve.log_rates[i] - curve.log_rates[best]) > REACH
            if i != best + step and (far or short[i] > STEEPEST * last):
                break
            kept.append(i)
            last, i = max(last, short[i]), i + step
    return np.sort(np.array(kept))


def _ends(curve: Curve, kept: Ints) -> tuple[float, float]:
    """Return between which rates candidates lie: those kept, and beside the best one a rate without a value."""
    first, last = kept[0] - (kept[0] == curve.best), kept[-1] + (kept[-1] == curve.best)
    return float(curve.log_rates[first]), float(curve.log_rates[last])


def _noise(curve: Curve, kept: Ints) -> tuple[float, int]:
    """Return the variance of a mean over seeds, pooled over some rates, and its degrees of freedom (0: one seed)."""
    counts = curve.counts[kept]
    several = counts > 1
    if not several.any():
        return 0.0, 0
    return float(np.mean(curve.variances[kept][several] / counts[several])), int((counts[several] - 1).sum())


def _unimodal(curve: Curve, variance: float, dof: int) -> tuple[float, float]:
    """Return the nearest rates on both sides that are clearly worse than the best: a single peak lies between them.

    Where none is, that is the end of those tried. By Welch's t of the two rates, or by t with the noise of the rates
    near the best: `variance` of a mean, also where one seed is all.
    """
    known = curve.counts > 1
    errors = np.where(known, curve.variances / np.maximum(curve.counts, 1), variance)
    each = np.where(known, curve.counts - 1, dof)
    both = errors[curve.best] + errors
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        dofs = both**2 / (errors[curve.best] ** 2 / each[curve.best] + errors**2 / each)
        least = stdtrit(np.where(both > 0, dofs, 1.0), (1 + CLEAR) / 2) * np.sqrt(both)
    least = np.fmin(least, stdtrit(dof, (1 + CLEAR) / 2) * math.sqrt(2 * variance))
    worse = ~(curve.means[curve.best] - curve.means <= least)  # a rate without a value, too
    before, after = curve.log_rates[: curve.best], curve.log_rates[curve.best + 1 :]
    low, high = before[worse[: curve.best]], after[worse[curve.best + 1 :]]
    return float([curve.log_rates[0], *low][-1]), float([*high, curve.log_rates[-1]][0])


def _misfits(x: Floats, y: Floats, candidates: Floats) -> Floats:
    """Return the least sum of squares of each candidate: a height and two bends, neither of them upwards."""
    squares = (x - candidates[:, None]) ** 2
    left, right = (np.where(side, -squares, 0.0) for side in (x < candidates[:, None], x >= candidates[:, None]))
    least, height = np.full(len(candidates), np.inf), np.ones_like(squares)
    for bends in ([], [left], [right], [left, right]):
        design = np.stack([height, *bends], axis=-1)
        across = np.swapaxes(design, 1, 2)
        normal = across @ design + TINY * np.eye(1 + len(bends))  # a side without a rate has no bend
        found = np.linalg.solve(normal, across @ y[:, None])
        misfit = ((y[:, None] - design @ found) ** 2).sum((1, 2))
        least = np.where((found[:, 1:, 0] >= 0).all(-1) & (misfit < least), misfit, least)
    return least


def _spacing(curve: Curve) -> float:
    if not np.isfinite(curve.means).any():
        return math.nan
    return float(np.diff(curve.log_rates[max(0, curve.best - 1) : curve.best + 2]).max(initial=0.0))


def _limit(misfit: float, misfit_dof: int, variance: float, dof: int) -> float:
    """Return by how much the misfit may grow within the interval; inf: the fit does not hold."""
    if misfit / misfit_dof > variance * float(fdtri(misfit_dof, dof, MISFIT)):
        return math.inf
    return max(variance, misfit / misfit_dof) * float(stdtrit(dof, (1 + CONFIDENCE) / 2)) ** 2


def _around(curve: Curve, is_fraction: bool) -> dict[str, Any]:
    """Return the basin of a curve and the costs of being off, with the columns of `optima`."""
    known = np.isfinite(curve.means)
    if not known.any():
        return dict.fromkeys(("basin_low", "basin_high", "cost_2x", "cost_10x"), math.nan)
    x, y = curve.log_rates[known], curve.means[known]
    fine = np.unique([*np.linspace(x[0], x[-1], STEPS * len(x)), *x])
    short, size = y.max() - np.interp(fine, x, y), NEAR if is_fraction else NEAR * abs(y.max())
    at = int(short.argmin())
    far = np.flatnonzero(short > size)
    low, high = far[far < at].max(initial=-1) + 1, far[far > at].min(initial=len(fine)) - 1
    costs = []
    for factor in (2, 10):
        both = fine[at] + np.array([-1, 1]) * math.log10(factor)
        costs.append(float(np.max(y.max() - np.interp(both, x, y, left=math.nan, right=math.nan))))
    basin = np.power(10.0, fine[[low, high]]).tolist()
    return dict(zip(("basin_low", "basin_high", "cost_2x", "cost_10x"), (*basin, *costs), strict=True))
