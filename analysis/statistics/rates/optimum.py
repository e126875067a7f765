"""The best learning rate of a cell between those that were tried, with its interval.

All of it reads validation data. On each side of the optimum the curve is taken to fall as a power of the distance in
log rate, with a bend and an exponent of its own, as a cliff on one side is the rule. What this was measured to do:
docs/laws.md.
"""

from __future__ import annotations

import math
from itertools import permutations, product
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtri, stdtrit

from lr_sweep.analysis.statistics.comparisons.noise import (
    undefined_is_nan,
)
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    UPPER,
    Bools,
    Floats,
    arrays_by_cell,
)
from lr_sweep.analysis.statistics.selection.summary import (
    StudySummary,
    computed_once,
)

from .refinement import MEASURED, Curve, vertex

EXPONENTS = 2.0 ** (np.arange(-3, 5) / 3 + 1)
"""Exponents of the fall on a side. A smooth curve has 2 at its very top; plateaus have more, flat tails less."""
EXPONENT_SPREAD = 0.25
"""Standard deviation of an exponent's logarithm around that of 2: where the curves are known well, they overrule it."""
SHARE_OFF = 0.15
"""Standard deviation of the power's error, as a share of the fall: rates far below the best one count for less."""
REACH = 1.5
"""Decades on both sides of the best rate that the fit uses, and two rates on each side in any case: a curve has no
single power over more."""
NOISE_REACH = 1.0
"""Decades around the best rate whose runs say how large noise is; the rates beside it do in any case."""
NOISIER = 100.0
"""Ratio of two variances that equal noise exceeds in 1% of pairs of rates with three seeds."""
STEEPEST = 9.0
"""A rate lies beyond a cliff if it falls behind by this many times what the rate before it did. The first rate beside
the best is compared with those on the other side. Rates beyond a cliff are left out."""
LOPSIDED = 3.0
"""A side that falls by more than this many times what the other one does has a cliff, or nearly: the optimum is
somewhere between the rates that are clearly worse."""
MISFIT = 0.95
"""Quantile of the misfits that noise alone gives. Beyond it the powers do not hold."""
CALIBRATED = 0.2
"""Share of the limit of a misfit by Student's t that is used, as exponents that suit each candidate hide part of its
misfit. With `TIED`, 95 to 97% of simulated intervals hold. Where too few rates can show that a fit holds, the whole
limit is used."""
TIED = 2.0
"""Standard errors of a difference: an interval has the rates beside the best that are behind by no more."""
ERROR_SHARE, CUT_ERROR_SHARE = 0.24, 0.37
"""Standard error of an optimum, as a share of its interval's longer side; the second where the interval reaches
an end of the grid, which cuts it off. With `laws.OWN_DOF`, 96 to 98% of simulated intervals of slopes hold."""
PARAMETERS = 4
"""A height, two bends and a place: so many rates cannot show that the fit holds."""
TINY = 1e-12
"""Rounding of a square of means whose span is 1."""
NUM_CANDIDATES = 201
"""Candidates for the optimum: on half decades, 25 or more between two rates."""
CLEAR = 0.995
"""Quantile of t by which a rate is clearly worse than the best one: 99% confidence, two-sided."""


class Optimum(NamedTuple):
    """log10 of a learning rate, its 95% interval and its standard error; NaN: not known."""

    at: float = math.nan
    low: float = math.nan
    high: float = math.nan
    error: float = math.nan
    note: str = ""
    """Why there is no number, or what weakens it."""


@computed_once
def optima(summary: StudySummary) -> pd.DataFrame:
    """Estimate the optimum of every cell.

    Returns:
        One row a cell: the cell's columns, `optimum`, `low` and `high` (learning rates; NaN: not known), `error`
        (standard error of the optimum, in decades), and `note`.
    """
    rows = []
    for cell, measured in arrays_by_cell(summary.learning_rates, *MEASURED).items():
        curve = Curve.of(summary.metric.sign, *measured)
        best = optimum(curve)
        rates = 10**best.at, 10**best.low, 10**best.high
        rows.append((*cell, *rates, best.error, best.note))
    columns = [
        *CELL,
        "optimum",
        "low",
        "high",
        "error",
        "note",
    ]
    return pd.DataFrame(rows, columns=columns)


def optimum(curve: Curve) -> Optimum:
    """Estimate the learning rate of the highest point of a curve.

    Candidates are profiled: the interval has those whose best fit is worse than the best of all by no more than noise
    explains, and the rates beside the best that are within `TIED` standard errors of it. It never passes a rate that is
    clearly worse than the best one, and is all between such rates where the fit does not hold. With one seed, the
    parabola through the best three rates gives the number.
    """
    if np.isfinite(curve.means).sum() < 3:
        return Optimum(note="fewer than three learning rates with a value")
    best = curve.best
    if best in (0, len(curve.means) - 1):
        return Optimum(note="the best learning rate is at the edge of those tried")
    curve = _scaled(curve)
    widest_step = np.diff(curve.log_rates[best - 1 : best + 2]).max()
    uniform_error = float(widest_step) / math.sqrt(12)  # of an optimum anywhere within a step
    variance, dof = _noise(curve)
    if dof == 0:
        return Optimum(at=vertex(curve), error=uniform_error, note="one seed: no interval")
    is_cliff = is_lopsided(curve)
    profiled = _profiled(curve, variance, dof, is_cliff)
    error = _error(curve, profiled)
    return profiled._replace(error=max(error, uniform_error) if is_cliff else error)


def _error(curve: Curve, optimum: Optimum) -> float:
    """Return the standard error of an optimum, by its interval."""
    ends = curve.log_rates[[0, -1]]
    is_cut_off = optimum.low <= ends[0] or optimum.high >= ends[1]
    longer_side = max(optimum.high - optimum.at, optimum.at - optimum.low)
    return longer_side * (CUT_ERROR_SHARE if is_cut_off else ERROR_SHARE)


def _scaled(curve: Curve) -> Curve:
    """Return the means with a span of 1, which moves no optimum."""
    span = (np.nanmax(curve.means) - np.nanmin(curve.means)) or 1.0
    return curve._replace(
        means=curve.means / span,
        variances=curve.variances / span / span,
    )


def _profiled(curve: Curve, variance: float, dof: int, is_cliff: bool) -> Optimum:
    """Profile the candidates; `variance` is that of a mean, `dof` its degrees of freedom."""
    kept = _kept(curve, variance)
    low, high = _worse_rates(curve, variance, dof)
    candidates = _candidates(curve, kept)
    falls = curve.falls[kept]
    weights = 1 / (max(variance, TINY) + (SHARE_OFF * falls) ** 2)
    misfits = _misfits(curve, kept, weights)
    least = misfits.min()
    misfit_dof = max(1, len(falls) - PARAMETERS)
    misfit_share = least / misfit_dof
    limit = max(1.0, misfit_share) * stdtrit(dof, UPPER) ** 2
    is_between = (candidates >= low) & (candidates <= high)
    step = candidates[1] - candidates[0]  # none between two candidates is left out
    candidates = candidates[is_between]
    misfits = misfits[is_between]
    top = curve.log_rates[curve.best] if is_cliff else vertex(curve)
    at = np.clip(top, low, high)
    note = "too few rates to show that the fit holds"
    if is_cliff or misfit_share > fdtri(misfit_dof, dof, MISFIT):
        limit = math.inf
        note = "the fit does not hold: between worse rates"
    elif len(falls) > PARAMETERS:
        likelihoods = np.exp((misfits.min() - misfits) / 2)
        at = np.average(candidates, weights=likelihoods)
        limit = CALIBRATED * limit
        note = ""
    inside = candidates[misfits <= least + limit]
    num_before, num_after = _num_tied(curve, variance)
    first_tied = curve.log_rates[curve.best - num_before]
    last_tied = curve.log_rates[curve.best + num_after]
    first = min(inside.min(initial=at) - step, first_tied)
    last = max(inside.max(initial=at) + step, last_tied)
    low = max(low, first)
    high = min(high, last)
    return Optimum(float(at), float(low), float(high), note=note)


def _candidates(curve: Curve, kept: slice) -> Floats:
    """Return log rates between those kept, and up to the first rates that are not, as beyond a cliff."""
    x = curve.log_rates
    low = x[max(kept.start - 1, 0)]
    high = x[min(kept.stop, len(x) - 1)]
    return np.linspace(low, high, NUM_CANDIDATES)


def _num_leading(flags: Bools) -> int:
    """Count the entries before the first that is false."""
    return int(np.logical_and.accumulate(flags).sum())


def _kept(curve: Curve, variance: float) -> slice:
    """Return the rates that the fit uses: the best one, and those near it before a cliff."""
    falls = curve.sides(curve.falls)
    numbers = []
    for fall, opposite, away in zip(falls, falls[::-1], curve.sides(curve.away), strict=True):
        # A parabola falls by 4 times as much twice as far away.
        usual = [
            2 * math.sqrt(variance),
            *opposite[:1],
            *opposite[1:2] / 4,
        ]
        most = np.maximum.accumulate([np.nanmax(usual), *fall])[:-1]
        is_before_cliff = fall <= STEEPEST * most
        is_near = np.abs(away) <= REACH
        is_near[:2] = True
        numbers.append(_num_leading(is_before_cliff & is_near))
    return slice(curve.best - numbers[0], curve.best + numbers[1] + 1)


def _noise(curve: Curve) -> tuple[float, int]:
    """Return the variance of a mean over seeds, pooled over the rates near the best, and its degrees of freedom.

    Those are 0 where each has one seed. Rates far away are often noisier, and so are rates where runs explode: those
    whose variance is more than `NOISIER` times that of most are left out.
    """
    near = np.abs(curve.away) <= NOISE_REACH
    near[curve.best - 1 : curve.best + 2] = True
    near &= curve.counts > 1
    if not near.any():
        return 0.0, 0
    usual = np.quantile(curve.variances[near], 0.5, method="lower")
    near &= (curve.variances <= NOISIER * usual) | (usual == 0)
    counts = curve.counts[near]
    variance = np.mean(curve.variances[near] / counts)
    dof = (counts - 1).sum()
    return float(variance), int(dof)


def _num_tied(curve: Curve, variance: float) -> list[int]:
    """Return how many rates on each side are within `TIED` standard errors of the best, up to the first that is not."""
    is_tied = curve.falls <= TIED * math.sqrt(2 * variance)
    return [_num_leading(side) for side in curve.sides(is_tied)]


def is_lopsided(curve: Curve) -> bool:
    """Return whether a curve falls far faster on one side, as to a cliff: no power then shows where it turns.

    The first two rates behind those that tie with the best one are compared with the rates one step further away on
    the other side, where a symmetric curve falls further, or with the last one there.
    """
    variance, _ = _noise(curve)
    least = TIED * math.sqrt(2 * variance)
    falls = np.nan_to_num(curve.falls, nan=math.inf)
    sides = zip(curve.sides(falls), _num_tied(curve, variance), strict=True)
    behind = [side[num_tied:] for side, num_tied in sides]
    return any(
        fall > max(LOPSIDED * _fall(opposite, away), least)
        for side, opposite in permutations(behind)
        for away, fall in enumerate(side[:2], start=2)
    )


def _fall(falls: Floats, away: int) -> float:
    """Return how far behind a side is so many steps away: at its last rate, if it has fewer.

    With a single rate, the fall is taken to continue in a line. A side without rates does not fall.
    """
    if len(falls) < 2:
        return float(falls.sum()) * away
    return float(falls[min(away, len(falls)) - 1])


def _worse_rates(curve: Curve, variance: float, dof: int) -> tuple[float, float]:
    """Return the nearest rates on both sides that are clearly worse than the best: a single peak lies between them.

    On a side without such a rate, it is the last rate that was tried. Student's t decides, with the noise of the rates
    near the best; `variance` is that of a mean.
    """
    limit = stdtrit(dof, CLEAR) * math.sqrt(2 * variance)
    num_close = [_num_leading(side) for side in curve.sides(curve.falls <= limit)]
    low = max(curve.best - num_close[0] - 1, 0)
    high = min(curve.best + num_close[1] + 1, len(curve.means) - 1)
    return curve.log_rates[low], curve.log_rates[high]


def _misfits(curve: Curve, kept: slice, weights: Floats) -> Floats:
    """Return the least weighted sum of squares of each candidate, plus what the exponents are off 2, squared.

    Fitted are a height and, on each side, a bend, which is not upwards, times the distance to the power of an exponent.
    """
    distances = curve.log_rates[kept] - _candidates(curve, kept)[:, None]
    falls = np.abs(distances) ** EXPONENTS[:, None, None]  # exponents x candidates x rates
    y = -curve.falls[kept]
    is_left = distances < 0
    sides = [_moments(falls, y, weights * side) for side in (is_left, ~is_left)]
    misfits = []
    for left, right in product(*sides):
        left = left[:, :, None]  # moments x exponents x 1 x candidates
        right = right[:, None]  # moments x 1 x exponents x candidates
        number, total, squares, *_ = left + right
        with undefined_is_nan():  # one rate a side: any height will do
            height = total / number
            misfit = np.maximum(squares - total * height, 0.0)  # rounding may leave less
            falls_left = height * left[3] >= left[4]
            falls_right = height * right[3] >= right[4]
        misfits.append(np.where(falls_left & falls_right, misfit, np.inf))
    penalty = (np.log(EXPONENTS / 2) / EXPONENT_SPREAD) ** 2
    penalties = penalty[:, None] + penalty  # of the left and of the right exponent
    totals = np.min(misfits, 0) + penalties[..., None]
    return totals.min((0, 1))


def _moments(falls: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Sum over the rates of a side, without a bend and with one, for each exponent and candidate.

    Returns:
        Both have five sums: of the weights, of weights times y, and of weights times y squared, each less what the bend
        explains; then of weights times the fall of the bend, and of weights times that fall and y (0 without a bend).
    """
    fall = (weights * falls).sum(-1)
    fall_y = (weights * falls * y).sum(-1)
    none = np.zeros_like(fall)
    flat = np.stack([none + (weights * y**power).sum(-1) for power in range(3)])
    explained = np.stack([fall**2, fall * fall_y, fall_y**2])
    bent = flat - explained / ((weights * falls**2).sum(-1) + TINY)
    without_bend = np.stack([*flat, none, none])
    with_bend = np.stack([*bent, fall, fall_y])
    return without_bend, with_bend
