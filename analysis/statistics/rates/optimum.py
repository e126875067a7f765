"""The best learning rate of a cell between those that were tried, with its interval, and what missing it costs.

All of it reads validation data. On each side of the optimum the curve is taken to fall as a power of the distance in
log rate, with a bend and an exponent of its own, as a cliff on one side is the rule. What this was measured to do:
docs/laws.md.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtri, stdtrit

from lr_sweep.analysis.statistics.rates.refinement import MEASURED, Curve, vertex
from lr_sweep.analysis.statistics.selection.best import (
    CONFIDENCE,
    Floats,
    Ints,
    arrays_by_cell,
    labels_of,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary

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
"""A rate that falls behind by this many times what the last one did lies beyond a cliff, as does the first one beside
the best by what those on the other side did. It and those after it are left out."""
LOPSIDED = 3.0
"""A side that falls by more than this many times what the other one does has a cliff, or nearly: the optimum is
somewhere between the rates that are clearly worse."""
MISFIT = 0.95
"""A misfit larger than such a share of what noise gives is none of noise: the powers do not hold."""
CALIBRATED = 0.2
"""Share of the limit of a misfit by Student's t: exponents that suit each candidate hide part of its misfit. With
`TIED`, 95 to 97% of simulated intervals hold. All of the limit counts where too few rates can show that a fit holds."""
TIED = 2.0
"""Standard errors of a difference: an interval has the rates beside the best that are behind by no more."""
ERROR_SHARE, CUT_ERROR_SHARE = 0.24, 0.37
"""Standard error of an optimum, as a share of its interval's longer side; the second where the interval reaches
an end of the grid, which cuts it off. With `laws.OWN_DOF`, 96 to 98% of simulated intervals of slopes hold."""
PARAMETERS = 4
"""A height, two bends and a place: so many rates of one seed cannot show any noise."""
UNKNOWN = (math.nan,) * 4
"""A place, its interval and its error."""
TINY = 1e-12
USUAL = (1e-4, 1e4)
"""Usual distances of the least and the greatest mean: of others `TINY` would not be tiny, or more than rounding."""
STEPS = 20
MOST_CANDIDATES = 1000
"""Candidates for the optimum between two rates, and of all."""
CLEAR = 0.99
"""Confidence, two-sided, of a rate being worse than the best one."""
OFF = 3.0
"""Factor by which a rate is off whose cost is reported."""


class Optimum(NamedTuple):
    """log10 of a learning rate, its 95% interval and its standard error; NaN: not known."""

    at: float
    low: float
    high: float
    error: float
    note: str = ""
    """Why there is no number, or what weakens it."""


def optimum(curve: Curve) -> Optimum:
    """Estimate the learning rate of the highest point of a curve.

    Candidates are profiled: the interval has those whose best fit is worse than the best of all by no more than noise
    explains, and the rates beside the best that are within `TIED` standard errors of it. It never passes a rate that is
    clearly worse than the best one, and is all between such rates where the fit does not hold. With one seed and few
    rates, the parabola through the best three gives the number.
    """
    curve = _of_usual_size(curve)
    if np.isfinite(curve.means).sum() < 3:
        return Optimum(*UNKNOWN, "fewer than three learning rates with a value")
    if curve.best in (0, len(curve.means) - 1):
        return Optimum(*UNKNOWN, "the best learning rate is at the edge of those tried")
    kept = _kept(curve)
    variance, dof = _noise(curve)
    if dof == 0 and len(kept) <= PARAMETERS:
        return Optimum(
            vertex(curve),
            math.nan,
            math.nan,
            _within_a_step(curve),
            "one seed, too few rates: no interval",
        )
    found = _fitted(curve, kept, variance, dof)
    return found._replace(error=_within_a_step(curve)) if dof == 0 else found


def _of_usual_size(curve: Curve) -> Curve:
    """Multiply very small or very large means by a power of two, which moves no optimum."""
    span = float(np.nanmax(curve.means, initial=-np.inf) - np.nanmin(curve.means, initial=np.inf))
    if not 0 < span < math.inf or USUAL[0] <= span <= USUAL[1]:
        return curve
    _, exponent = math.frexp(span)
    means, variances = np.ldexp(curve.means, -exponent), np.ldexp(curve.variances, -2 * exponent)
    return curve._replace(means=means, variances=variances)


def _fitted(curve: Curve, kept: Ints, variance: float, dof: int) -> Optimum:
    """Profile the candidates; `variance` of a mean is not known if its degrees of freedom are 0."""
    x, y = curve.log_rates[kept], curve.means[kept] - curve.means[curve.best]
    candidates = _candidates(curve, kept)
    misfit_dof, few = max(1, len(x) - PARAMETERS), len(x) <= PARAMETERS
    if dof == 0:  # what two half parabolas miss is all that is known of the noise
        parabolas = _misfits(x, y, np.ones_like(y), candidates, np.array([2.0]))
        variance, dof = float(parabolas.min()) / misfit_dof, misfit_dof
    weights = 1 / (max(variance, TINY * max(1.0, float(np.ptp(y)) ** 2)) + (SHARE_OFF * y) ** 2)
    misfits = _misfits(x, y, weights, candidates, EXPONENTS)
    misfit, (low, high) = float(misfits.min()), _unimodal(curve, variance, dof)
    lopsided = is_lopsided(curve)
    limit = math.inf if lopsided else _limit(misfit, misfit_dof, dof) * (1 if few else CALIBRATED)
    between = (candidates >= low) & (candidates <= high)
    held = math.isfinite(limit)
    likely = np.where(between, np.exp((misfit - misfits) / 2), 0.0)
    top = float(curve.log_rates[curve.best]) if lopsided else vertex(curve)
    at = (
        float(candidates @ likely / likely.sum())
        if held and not few
        else float(np.clip(top, low, high))
    )
    inside = candidates[between & (misfits <= misfit + limit)]
    step = candidates[1] - candidates[0]  # none between two candidates is left out
    note = "too few rates to show that the fit holds" if few else ""
    note = note if held else "the fit does not hold: between worse rates"
    tied_low, tied_high = curve.log_rates[list(_tied(curve, variance))]
    first, last = (
        min(inside.min(initial=at) - step, tied_low),
        max(inside.max(initial=at) + step, tied_high),
    )
    low, high = max(low, first), min(high, last)
    is_cut_off = low <= curve.log_rates[0] or high >= curve.log_rates[-1]
    error = (CUT_ERROR_SHARE if is_cut_off else ERROR_SHARE) * max(high - at, at - low)
    return Optimum(at, low, high, max(error, _within_a_step(curve)) if lopsided else error, note)


def _candidates(curve: Curve, kept: Ints) -> Floats:
    """Return log rates between those kept, and up to the first rates that are not, as beyond a cliff."""
    low, high = curve.log_rates[[max(kept[0] - 1, 0), min(kept[-1] + 1, len(curve.means) - 1)]]
    number = STEPS * max(1, round(float((high - low) / np.diff(curve.log_rates).min())))
    return np.linspace(low, high, min(number, MOST_CANDIDATES) + 1)


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
    rows: list[dict[str, Any]] = []
    for cell, measured in arrays_by_cell(summary.learning_rates, *MEASURED).items():
        curve = Curve.of(summary.metric.sign, *measured)
        found = optimum(curve)
        rates = np.power(10.0, [*found[:3], *_near(curve)]).tolist()
        named = dict(zip(("optimum", "low", "high", "near_low", "near_high"), rates, strict=True))
        further = {"cost_3x": _cost(curve), "error": found.error, "note": found.note}
        rows.append(labels_of(cell) | named | further)
    return pd.DataFrame(rows)


def _kept(curve: Curve) -> Ints:
    """Return the indices of the rates that the fit uses: the best one, and those near it before a cliff."""
    best, kept = curve.best, [curve.best]
    short, away = curve.means[best] - curve.means, np.abs(curve.log_rates - curve.log_rates[best])
    usual = 2 * math.sqrt(_noise(curve)[0])
    for step in (-1, 1):
        across = [
            (best - step, 1),
            (best - 2 * step, 4),
        ]  # a parabola falls by 4 times as much twice as far away
        last = np.nanmax([usual, *(short[i] / size for i, size in across if 0 <= i < len(short))])
        i = best + step
        while (
            0 <= i < len(short)
            and short[i] <= STEEPEST * last
            and (away[i] <= REACH or abs(i - best) <= 2)
        ):
            kept.append(i)
            last, i = max(last, short[i]), i + step
    return np.sort(np.array(kept))


def _noise(curve: Curve) -> tuple[float, int]:
    """Return the variance of a mean over seeds, pooled over the rates near the best, and its degrees of freedom.

    Those are 0 where each has one seed. Rates far away are often noisier, and so are rates where runs explode: those
    whose variance is more than `NOISIER` times that of most are left out.
    """
    near = np.abs(curve.log_rates - curve.log_rates[curve.best]) <= NOISE_REACH
    near[max(0, curve.best - 1) : curve.best + 2] = True
    near &= curve.counts > 1
    if not near.any():
        return 0.0, 0
    usual = float(np.quantile(curve.variances[near], 0.5, method="lower"))
    near &= (curve.variances <= NOISIER * usual) | (usual == 0)
    return float(np.mean(curve.variances[near] / curve.counts[near])), int(
        (curve.counts[near] - 1).sum()
    )


def _tied(curve: Curve, variance: float) -> tuple[int, int]:
    """Return the indices of the outermost rates around the best that are within `TIED` standard errors of it."""
    behind = ~(
        curve.means[curve.best] - curve.means <= TIED * math.sqrt(2 * variance)
    )  # a rate without a value, too
    first = int(np.flatnonzero(behind[: curve.best]).max(initial=-1)) + 1
    last = (
        curve.best
        + int(np.flatnonzero(behind[curve.best :]).min(initial=len(behind) - curve.best))
        - 1
    )
    return first, last


def is_lopsided(curve: Curve) -> bool:
    """Return whether a curve falls far faster on one side, as to a cliff: no power then shows where it turns.

    The first two rates behind those that tie with the best one are compared with the rates one step further away on
    the other side, where a symmetric curve falls further, or with the last one there.
    """
    variance, _ = _noise(curve)
    (first, last), usual = _tied(curve, variance), TIED * math.sqrt(2 * variance)
    short = np.nan_to_num(curve.means[curve.best] - curve.means, nan=math.inf)
    sides = short[:first][::-1], short[last + 1 :]
    return any(
        fall > max(LOPSIDED * _fall(other, away), usual)
        for side, other in itertools.permutations(sides)
        for away, fall in enumerate(side[:2], start=2)
    )


def _fall(short: Floats, away: int) -> float:
    """Return how far the rate so many steps away is behind, or the last one; of a single one by a line; 0: all tie."""
    if len(short) < 2:
        return float(short.sum()) * away
    return float(short[min(away, len(short)) - 1])


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


def _misfits(
    x: Floats, y: Floats, weights: Floats, candidates: Floats, exponents: Floats
) -> Floats:
    """Return the least weighted sum of squares of each candidate, plus what the exponents are off 2, squared.

    Fitted are a height and, on each side, a bend, which is not upwards, times the distance to the power of an exponent.
    """
    before = x < candidates[:, None]
    sides = [
        _moments(x - candidates[:, None], y, weights * side, exponents)
        for side in (before, ~before)
    ]
    least = np.full((len(exponents), len(exponents), len(candidates)), np.inf)
    for bent in itertools.product((0, 1), repeat=2):
        left, right = (side[is_bent] for side, is_bent in zip(sides, bent, strict=True))
        number, total, squares = left[:, :, None] + right[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):  # one rate a side: any height will do
            height = total / number
            misfit = np.maximum(squares - total * height, 0.0)  # rounding may leave less
        allowed = [
            height * fall[0] >= fall[1] for fall in (sides[0][2][:, :, None], sides[1][2][:, None])
        ]
        possible = np.all(
            [ok for ok, is_bent in zip(allowed, bent, strict=True) if is_bent], axis=0
        )
        least = np.fmin(least, np.where(possible, misfit, np.inf))
    off = (np.log(exponents / 2) / EXPONENT_SPREAD) ** 2
    return (least + off[:, None, None] + off[:, None]).min((0, 1))


def _moments(
    distances: Floats, y: Floats, weights: Floats, exponents: Floats
) -> tuple[Floats, Floats, Floats]:
    """Sum over the rates of a side, for each exponent and candidate.

    Returns:
        The weights, and they times y and times y squared; the same of what a bend leaves of 1 and y; and the weights
        times the fall, and times fall and y.
    """
    falls = np.abs(distances) ** exponents[:, None, None]
    fall = np.stack([(weights * falls).sum(-1), (weights * falls * y).sum(-1)])
    flat = np.stack([weights.sum(-1), (weights * y).sum(-1), (weights * y**2).sum(-1)])[:, None]
    explained = np.stack([fall[0] ** 2, fall[0] * fall[1], fall[1] ** 2]) / (
        (weights * falls**2).sum(-1) + TINY
    )
    return np.broadcast_to(flat, explained.shape), flat - explained, fall


def _within_a_step(curve: Curve) -> float:
    """Return the standard error of an optimum that is anywhere within a step of the grid, the wider beside the best."""
    return float(np.diff(curve.log_rates[curve.best - 1 : curve.best + 2]).max()) / math.sqrt(12)


def _limit(misfit: float, misfit_dof: int, dof: int) -> float:
    """Return by how much the misfit may grow within the interval; inf: the fit does not hold."""
    each = misfit / misfit_dof
    if each > float(fdtri(misfit_dof, dof, MISFIT)):
        return math.inf
    return max(1.0, each) * float(stdtrit(dof, (1 + CONFIDENCE) / 2)) ** 2


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
