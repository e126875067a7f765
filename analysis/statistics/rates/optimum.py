"""The best learning rate of a cell between those that were tried, with its interval, and what missing it costs.

All of it reads validation data. The curve is taken to be two half parabolas in log rate, with a bend of its own on each
side of the optimum, as a cliff on one side is the rule. What this was measured to do: docs/laws.md.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtri, stdtrit

from lr_sweep.analysis.statistics.rates.refinement import MEASURED, Curve, vertex
from lr_sweep.analysis.statistics.selection.best import (
    CONFIDENCE,
    Floats,
    arrays_by_cell,
    labels_of,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary

SHARE_OFF = 0.15
"""Standard deviation of a half parabola's error, as a share of the fall: rates far below the best count for less."""
REACH = 1.5
"""Decades on both sides of the best rate that the fit uses; it uses two rates on each side in any case."""
NOISE_REACH = 1.0
"""Decades around the best rate whose runs say how large noise is; the rates beside it do in any case."""
NOISIER = 100.0
"""Ratio of two variances that equal noise exceeds in 1% of pairs of rates with three seeds."""
STEEPEST = 9.0
"""A rate lies beyond a cliff, and is left out, if it falls behind by so many times what the rate before it did."""
LOPSIDED = 3.0
"""A side that falls by more than so many times what the other one does has a cliff, or nearly: the optimum is
somewhere between the rates that are clearly worse."""
MISFIT = 0.95
"""Quantile of the F distribution above which a misfit is no noise: the half parabolas do not fit."""
LIMIT_SHARE = 0.4
"""Share of Student's t squared by which the misfit may grow; 96 to 98% of simulated intervals then hold."""
TIED = 2.0
"""Standard errors of a difference: an interval has the rates beside the best that are behind by no more."""
ERROR_SHARE, CUT_ERROR_SHARE = 0.24, 0.37
"""Standard error of an optimum, as a share of its interval's longer side; the second where the interval reaches
an end of the grid, which cuts it off. With `laws.OWN_DOF`, 96 to 98% of simulated intervals of slopes hold."""
PARAMETERS = 4
"""A height, two bends and a place: so many rates of one seed cannot show any noise."""
LEAST_NOISE = 1e-12
"""Smallest variance of a mean in a fit, where the means span 1."""
STEPS = 10
"""Candidates for the optimum between two rates."""
MOST_CANDIDATES = 200
CLEAR = 0.99
"""Confidence, two-sided, of a rate being worse than the best one."""
OFF = 3.0
"""Factor by which a rate is off whose cost is reported."""
FEW_RATES = "too few rates to show that the fit holds"
MISFITS = "the fit does not hold: between worse rates"


class Optimum(NamedTuple):
    """log10 of a learning rate, its 95% interval and its standard error; NaN: not known."""

    at: float = math.nan
    low: float = math.nan
    high: float = math.nan
    error: float = math.nan
    note: str = ""
    """Why there is no number, or what weakens it."""


def optimum(curve: Curve) -> Optimum:
    """Estimate the learning rate of the highest point of a curve.

    Candidates are profiled: the interval has those whose best fit is worse than the best of all by no more than noise
    explains, and the rates beside the best that are within `TIED` standard errors of it. It never passes a rate that is
    clearly worse than the best one, and is all between such rates where the fit does not hold. With one seed and few
    rates, the parabola through the best three gives the number.
    """
    if np.isfinite(curve.means).sum() < 3:
        return Optimum(note="fewer than three learning rates with a value")
    if curve.best in (0, len(curve.means) - 1):
        return Optimum(note="the best learning rate is at the edge of those tried")
    curve = _scaled(curve)
    kept = _kept(curve)
    variance, dof = _noise(curve)
    if dof == 0 and kept.stop - kept.start <= PARAMETERS:
        note = "one seed, too few rates: no interval"
        return Optimum(vertex(curve), error=_within_a_step(curve), note=note)
    fitted = _fitted(curve, kept, variance, dof)
    return fitted if dof else fitted._replace(error=_within_a_step(curve))


def _scaled(curve: Curve) -> Curve:
    """Return the curve in a unit in which the means span 1, which moves no optimum."""
    span = float(np.nanmax(curve.means) - np.nanmin(curve.means)) or 1.0
    return curve._replace(means=curve.means / span, variances=curve.variances / span / span)


def _fitted(curve: Curve, kept: slice, variance: float, dof: int) -> Optimum:
    """Profile the candidates; `variance` of a mean is not known if its degrees of freedom are 0."""
    x, y = curve.log_rates[kept], (curve.means - curve.means[curve.best])[kept]
    candidates = _candidates(curve, kept)
    misfit_dof = max(1, len(x) - PARAMETERS)
    if dof == 0:  # what the half parabolas miss is all that is known of the noise
        unweighted = _misfits(x, y, np.ones_like(y), candidates)
        variance, dof = float(unweighted.min()) / misfit_dof, misfit_dof
    deviations = np.sqrt(max(variance, LEAST_NOISE) + (SHARE_OFF * y) ** 2)
    misfits = _misfits(x, y, 1 / deviations, candidates)
    low, high = _clearly_worse(curve, variance, dof)
    noise = float(misfits.min()) / misfit_dof
    is_few = len(x) <= PARAMETERS
    lopsided = is_lopsided(curve)
    if lopsided or (not is_few and noise > fdtri(misfit_dof, dof, MISFIT)):
        top = float(curve.log_rates[curve.best]) if lopsided else vertex(curve)
        found = _between(curve, float(np.clip(top, low, high)), low, high, MISFITS)
        return found._replace(error=max(found.error, _within_a_step(curve))) if lopsided else found
    between = (candidates >= low) & (candidates <= high)
    likely = np.where(between, np.exp((misfits.min() - misfits) / 2), 0.0)
    at = float(np.clip(vertex(curve), low, high) if is_few else candidates @ likely / likely.sum())
    limit = max(1.0, noise) * float(stdtrit(dof, (1 + CONFIDENCE) / 2)) ** 2
    limit *= 1.0 if is_few else LIMIT_SHARE
    inside = candidates[between & (misfits <= misfits.min() + limit)]
    step = candidates[1] - candidates[0]  # the interval ends between two candidates
    first, last = _tied(curve, variance)
    tied_low, tied_high = curve.log_rates[first], curve.log_rates[last]
    low = max(low, min(inside.min(initial=at) - step, tied_low))
    high = min(high, max(inside.max(initial=at) + step, tied_high))
    return _between(curve, at, low, high, FEW_RATES if is_few else "")


def _between(curve: Curve, at: float, low: float, high: float, note: str) -> Optimum:
    is_cut_off = low <= curve.log_rates[0] or high >= curve.log_rates[-1]
    share = CUT_ERROR_SHARE if is_cut_off else ERROR_SHARE
    return Optimum(at, low, high, share * max(high - at, at - low), note)


def _candidates(curve: Curve, kept: slice) -> Floats:
    """Return log rates between those kept, and up to the first rates that are not, as beyond a cliff."""
    reached = curve.log_rates[max(kept.start - 1, 0) : kept.stop + 1]
    num_steps = (reached[-1] - reached[0]) / np.diff(reached).min()
    return np.linspace(reached[0], reached[-1], min(round(STEPS * num_steps), MOST_CANDIDATES) + 1)


def _misfits(x: Floats, y: Floats, weights: Floats, candidates: Floats) -> Floats:
    """Return the least weighted sum of squares of each candidate, with bends that are not upwards."""
    from scipy.optimize import nnls  # slower to import than a small report to write

    height = np.ones_like(x)
    misfits = []
    for candidate in candidates:
        away = x - candidate
        left, right = np.minimum(away, 0) ** 2, np.maximum(away, 0) ** 2
        design = np.column_stack([height, -height, -left, -right])  # rates x parameters
        _, root = nnls(weights[:, None] * design, weights * y)
        misfits.append(root**2)
    return np.array(misfits)


@lru_cache(maxsize=2)
def optima(summary: StudySummary) -> pd.DataFrame:
    """Estimate the optimum of every cell.

    Returns:
        One row a cell: the cell's columns, `optimum`, `low` and `high` (learning rates; NaN: not known), `near_low` and
        `near_high` (learning rates between which the mean is within one SEM of the best; the ends of the grid at most;
        NaN: the SEM is not known), `cost_3x` (what the worse of `OFF` times and the same part of the best rate tried
        costs, in the unit of the metric; NaN: outside those tried), `error` (standard error of the optimum, in
        decades), and `note`. Between the rates tried the mean is taken as linear in their logarithm.
    """
    rows = []
    for cell, measured in arrays_by_cell(summary.learning_rates, *MEASURED).items():
        curve = Curve.of(summary.metric.sign, *measured)
        found = optimum(curve)
        near_low, near_high = _near(curve)
        row = {
            **labels_of(cell),
            "optimum": 10.0**found.at,
            "low": 10.0**found.low,
            "high": 10.0**found.high,
            "near_low": 10.0**near_low,
            "near_high": 10.0**near_high,
            "cost_3x": _cost(curve),
            "error": found.error,
            "note": found.note,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _kept(curve: Curve) -> slice:
    """Return the rates that the fit uses: the best one, and those near it before a cliff."""
    short = curve.means[curve.best] - curve.means
    is_near = np.abs(curve.log_rates - curve.log_rates[curve.best]) <= REACH
    is_near[curve.best - 2 if curve.best > 1 else 0 : curve.best + 3] = True
    noise = 2 * math.sqrt(_noise(curve)[0])
    # Outwards from the best rate. A parabola falls by 4 times as much twice as far away.
    sides = short[: curve.best][::-1], short[curve.best + 1 :]
    nears = is_near[: curve.best][::-1], is_near[curve.best + 1 :]
    num_below, num_above = (
        _before_a_cliff(side[near], np.nanmax([noise, *other[:1], *other[1:2] / 4]))
        for side, near, other in zip(sides, nears, sides[::-1], strict=True)
    )
    return slice(curve.best - num_below, curve.best + num_above + 1)


def _before_a_cliff(short: Floats, usual: float) -> int:
    """Return how many rates, outwards from the best, are before a cliff; `usual`: a fall that is none."""
    largest = np.fmax.accumulate([usual, *short])[:-1]
    is_beyond = ~(short <= STEEPEST * largest)  # a rate without a value, too
    return int(np.flatnonzero(is_beyond).min(initial=len(short)))


def _noise(curve: Curve) -> tuple[float, int]:
    """Return the variance of a mean over seeds, pooled over the rates near the best, and its degrees of freedom.

    Those are 0 where each has one seed. Rates far away are often noisier, and so are rates where runs explode: those
    whose variance is more than `NOISIER` times that of most are left out.
    """
    near = np.abs(curve.log_rates - curve.log_rates[curve.best]) <= NOISE_REACH
    near[max(0, curve.best - 1) : curve.best + 2] = True
    near &= curve.counts > 1
    variances, counts = curve.variances[near], curve.counts[near]
    if not len(counts):
        return 0.0, 0
    usual = np.quantile(variances, 0.5, method="lower")
    is_calm = (variances <= NOISIER * usual) | (usual == 0)
    variance = np.mean((variances / counts)[is_calm])
    return float(variance), int((counts - 1)[is_calm].sum())


def _tied(curve: Curve, variance: float) -> tuple[int, int]:
    """Return the indices of the outermost rates around the best that are within `TIED` standard errors of it."""
    short = curve.means[curve.best] - curve.means
    is_behind = ~(short <= TIED * math.sqrt(2 * variance))  # a rate without a value, too
    below = np.flatnonzero(is_behind[: curve.best]).max(initial=-1)
    above = np.flatnonzero(is_behind[curve.best :]).min(initial=len(short) - curve.best)
    return int(below) + 1, curve.best + int(above) - 1


def is_lopsided(curve: Curve) -> bool:
    """Return whether a curve falls far faster on one side, as to a cliff: no parabola then shows where it turns.

    The first two rates behind those that tie with the best one are compared with the rates one step further away on
    the other side, where a symmetric curve falls further, or with the last one there.
    """
    variance, _ = _noise(curve)
    first, last = _tied(curve, variance)
    tied = TIED * math.sqrt(2 * variance)
    short = np.nan_to_num(curve.means[curve.best] - curve.means, nan=math.inf)
    sides = short[:first][::-1], short[last + 1 :]
    return any(
        fall > max(LOPSIDED * _fall(other, away), tied)
        for side, other in itertools.permutations(sides)
        for away, fall in enumerate(side[:2], start=2)
    )


def _fall(short: Floats, away: int) -> float:
    """Return how far the rate so many steps away is behind, or the last one; of a single one by a line; 0: all tie."""
    if len(short) < 2:
        return float(short.sum()) * away
    return float(short[min(away, len(short)) - 1])


def _clearly_worse(curve: Curve, variance: float, dof: int) -> tuple[float, float]:
    """Return the nearest rates on both sides that are clearly worse than the best: a single peak lies between them.

    Where none is, that is the end of those tried. The test is Student's t with the `variance` of a mean near the best.
    """
    least = stdtrit(dof, (1 + CLEAR) / 2) * math.sqrt(2 * variance)
    is_worse = ~(curve.means[curve.best] - curve.means <= least)  # a rate without a value, too
    is_worse[[0, -1]] = True
    worse = curve.log_rates[is_worse]
    best = curve.log_rates[curve.best]
    return float(worse[worse < best].max()), float(worse[worse > best].min())


def _within_a_step(curve: Curve) -> float:
    """Return the standard error of an optimum that is anywhere within a step of the grid, the wider beside the best."""
    beside = curve.log_rates[curve.best - 1 : curve.best + 2]
    return float(np.diff(beside).max()) / math.sqrt(12)


def _near(curve: Curve) -> tuple[float, float]:
    """Return the log10 rates between which a curve is within one SEM of its best mean; NaN: no SEM is known.

    The SEM is pooled over the rates near the best one.
    """
    variance, dof = _noise(curve) if np.isfinite(curve.means).any() else (0.0, 0)
    if dof == 0:
        return math.nan, math.nan
    known, size = np.isfinite(curve.means), math.sqrt(variance)
    x, short = curve.log_rates[known], (curve.means[curve.best] - curve.means)[known]
    at = int(known[: curve.best].sum())
    return _passed(x[at::-1], short[at::-1], size), _passed(x[at:], short[at:], size)


def _passed(x: Floats, short: Floats, size: float) -> float:
    """Return where a curve first falls behind its best mean, the first point, by a size; else the last point."""
    behind = np.flatnonzero(short > size)
    if not len(behind):
        return float(x[-1])
    end = slice(behind[0] - 1, behind[0] + 1)
    return float(np.interp(size, short[end], x[end]))


def _cost(curve: Curve) -> float:
    """Return how far the worse of two rates, `OFF` times the best one and the same part of it, is behind it."""
    known = np.isfinite(curve.means)
    if not known.any():
        return math.nan
    both = curve.log_rates[curve.best] + np.array([-1, 1]) * math.log10(OFF)
    means = np.interp(
        both, curve.log_rates[known], curve.means[known], left=math.nan, right=math.nan
    )
    return float(np.max(curve.means[curve.best] - means))
