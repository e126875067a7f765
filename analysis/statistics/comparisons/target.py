"""Steps to a target, compared by the logarithms of the steps at which runs reach a value.

Each variant is taken at the learning rate that reaches the target first. Variants are compared by Welch's t test,
corrected over all pairs. How often this is right: `benchmarks/target_simulation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.polynomial import polynomial
from scipy.special import stdtr, stdtrit

from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    RATE,
    UPPER,
    Bools,
    Floats,
    Ints,
    are_eligible,
    rounded,
    seeds_of,
    tuples_in,
)
from lr_sweep.analysis.statistics.selection.summary import (
    GROUP,
    StudySummary,
    points_within_budget,
)

from .correction import LEVEL, holm, pairs_within
from .noise import NO_SPREAD, Noise, welch
from .pair_tests import FEWEST_SEEDS

LOCAL = 0.2
"""Distance in log steps, on both sides of a crossing, within which a curve is fitted."""
LEAST_FITTED = 6
"""Smallest number of evaluations of a fit."""
AFTER_BEST = 2
"""Evaluations behind the best one that still count: a curve may worsen later."""
FLAT = 1e-6
"""Slope of a curve that does not rise, as a share of its values in a unit of log steps."""
FEW_RUNS = f"fewer than {FEWEST_SEEDS} runs of a variant: no p"
AT_FIRST = "the faster one reaches the target at its first evaluation: evaluate more often"
FASTER_IS_SHORT = "the faster one does not reach the target with all its runs"


class StepsCompared(NamedTuple):
    """How variants reach a target."""

    cells: pd.DataFrame
    """A row a variant, the fastest first: `learning_rate` (that reaches the target first), `target`, `num_runs`,
    `num_reached`, `short` (does not reach it), `at_first` (is there at its first evaluation, and perhaps earlier),
    `steps` (of a short one its budget), `low` and `high`: a 95% interval (NaN: `short`, `at_first` or one run)."""
    pairs: pd.DataFrame
    """A row a pair: how many times as fast the first variant is (`ratio`), `ratio_low` and `ratio_high`: a 95% interval
    for this pair alone (NaN: a cell lacks its own); `other_short` (`ratio` is then a bound); `p` of Welch's two-sided
    test of the extrapolated means and `corrected_p` over all pairs (NaN: a `note` says why), `distinguishable` (whether
    that is below `LEVEL`)."""


def compare_steps(summary: StudySummary, curves: pd.DataFrame) -> StepsCompared | None:
    """Compare the steps to the summary's targets; None: there are none, or no run has ended with two evaluations.

    `curves`: `run_id`, `step` and `validation`.
    """
    runs = summary.runs[summary.runs["task"].isin(summary.targets)]
    runs = runs[runs["status"].isin(["complete", "diverged"])]
    has_curves = curves["run_id"].duplicated().any()
    if not summary.metric.chosen_on or runs.empty or not has_curves:
        return None
    rates = _fastest_rates(_with_crossings(summary, runs, curves))
    cells = _cells(rates, summary.targets)
    return StepsCompared(cells, _pairs(rates, cells))


def _with_crossings(
    summary: StudySummary, runs: pd.DataFrame, curves: pd.DataFrame
) -> pd.DataFrame:
    """Add `log_steps` (to the target), `log_budget`, `reached`, `short` and `at_first`."""
    points = points_within_budget(runs, curves, ["validation"])
    points = points[points["step"] > 0]
    target = points["task"].map(summary.targets)
    rounding = NO_SPREAD * target.abs()
    gaps = summary.metric.sign * (points["validation"] - target) + rounding
    points = points.assign(gap=gaps)
    by_rate = runs.groupby(RATE, sort=False)
    return pd.concat([_crossings_of_rate(rows, points) for _, rows in by_rate])


def _crossings_of_rate(runs: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Add the columns of `_with_crossings` to the runs of a rate; between evaluations, gaps are interpolated."""
    of_rate = points[points["run_id"].isin(runs["run_id"])]
    gaps = of_rate.pivot(index="step", columns="run_id", values="gap")  # steps x runs
    gaps = gaps.reindex(columns=runs["run_id"]).interpolate("index", limit_area="inside")
    complete = runs["status"].eq("complete").to_numpy()
    gaps = gaps[gaps.loc[:, complete].notna().all(axis=1)]
    log_budget = np.log(runs["num_steps"].to_numpy(float))
    runs = runs.assign(log_budget=log_budget, log_steps=log_budget)
    if not complete.any() or gaps.empty:
        return runs.assign(reached=False, short=True, at_first=False)
    log_steps = np.log(gaps.index.to_numpy(float))
    values = gaps.to_numpy(float)
    crossing, is_short = crossings(log_steps, values, complete, log_budget.max())
    return runs.assign(
        log_steps=np.where(np.isnan(crossing), log_budget, crossing),
        reached=crossing <= log_budget,
        short=is_short,
        at_first=values[0, complete].mean() >= 0,
    )


def crossings(
    log_steps: Floats, gaps: Floats, complete: Bools, log_budget: float
) -> tuple[Floats, bool]:
    """Return when the runs of a rate reach the target, from a fit around the place where their mean curve does.

    A run is there earlier than the mean by what it is above the mean around this place, divided by the mean's slope. So
    noise moves it to both sides alike, and runs that end just short have a crossing.

    Args:
        log_steps: logarithms of the steps of evaluations, rising.
        gaps: evaluations x runs: by how much a run is better than the target; NaN: no evaluation.
        complete: the runs whose mean curve is fitted.
        log_budget: logarithm of the runs' steps.

    Returns the logarithm of each run's steps, extrapolated behind the budget (NaN: it has no evaluation there), and
    whether the rate does not reach the target, as the mean curve ends before, or such a run is there.
    """
    mean = gaps[:, complete].mean(1)
    until_best = slice(mean.argmax() + 1 + AFTER_BEST)
    log_steps = log_steps[until_best]
    num_short = int((mean[until_best] < 0).sum())
    # As many evaluations are before the centre as are short of the target: noise puts as many too early as too late.
    centre = log_steps[max(num_short - 1, 0) : num_short + 1].mean()
    away = np.abs(log_steps - centre)
    num_fitted = max(LEAST_FITTED, (away < LOCAL).sum())
    window = away.argsort(kind="stable")[:num_fitted]
    is_parabola = len(window) > 2 and num_short < len(away)  # beyond the end it would bend freely
    degree = 2 if is_parabola else min(len(window) - 1, 1)
    x = log_steps[window] - centre
    y = np.nan_to_num(gaps[window])
    fits = polynomial.polyfit(x, y, degree)  # coefficients x runs
    there, slope = _crossing(fits[:, complete].mean(1))
    above_mean = polynomial.polyval(there, fits)
    crossed = centre + there - above_mean / slope
    crossed = np.maximum(crossed, log_steps[0])
    is_lacking = np.isnan(gaps[window]).any(0)
    is_short = bool(is_lacking.any() or crossed.mean() > log_budget)
    return np.where(is_lacking, math.nan, crossed), is_short


def _crossing(fit: Floats) -> tuple[float, float]:
    """Return where a parabola rises through 0, and its slope there; `fit` has the constant first.

    For a line, and for a parabola that rises through 0 nowhere, the place is 0.
    """
    parabola = np.pad(fit, (0, 3 - len(fit)))
    constant, slope, bend = parabola.tolist()
    square = slope**2 - 4 * bend * constant
    if bend and slope > 0 and square > 0:
        return -2 * constant / (slope + math.sqrt(square)), math.sqrt(square)
    return 0.0, max(slope, FLAT * (abs(constant) or 1.0))


def _fastest_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rate of each cell that reaches the target first, the fastest first, with what its runs show.

    `mean` and `variance`: of the runs' `log_steps`. A rate that does not reach the target counts behind those that do.
    """
    rates = runs.groupby(RATE, sort=False).agg(
        num_runs=("reached", "size"),
        num_reached=("reached", "sum"),
        short=("short", "any"),
        at_first=("at_first", "any"),
        mean=("log_steps", "mean"),
        variance=("log_steps", "var"),
        log_budget=("log_budget", "max"),
    )
    num_values = runs.groupby(RATE, sort=False)["log_steps"].count()
    rates = rates[are_eligible(num_values, seeds_of(runs), CELL)].reset_index()
    rates["group"] = rates.groupby(GROUP, sort=False).ngroup()
    rates["rounded_mean"] = rounded(rates["mean"].to_numpy(float))
    ordered = rates.sort_values(["group", "short", "rounded_mean", "learning_rate"])
    return ordered.drop_duplicates(CELL).reset_index(drop=True)


def _cells(rates: pd.DataFrame, targets: Mapping[str, float]) -> pd.DataFrame:
    """Return the cells of `StepsCompared`; `rates`: of `_fastest_rates`."""
    half = stdtrit(rates["num_runs"] - 1, UPPER) * np.sqrt(rates["variance"] / rates["num_runs"])
    cells = rates[[*RATE, "num_runs", "num_reached", "short", "at_first"]].assign(
        steps=np.exp(rates["mean"].mask(rates["short"], rates["log_budget"])),
        low=np.exp(rates["mean"] - half),
        high=np.exp(rates["mean"] + half),
    )
    cells.insert(len(RATE), "target", cells["task"].map(targets))
    cells.loc[cells["short"] | cells["at_first"], ["low", "high"]] = math.nan
    return cells


def _pairs(rates: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of `StepsCompared`; `rates`: of `_fastest_rates`; `cells`: of `_cells`."""
    first, second = pairs_within(list(tuples_in(rates[GROUP])))
    means = rates["mean"].to_numpy(float)
    counts = rates["num_runs"].to_numpy(float)
    noise = Noise(rates["variance"].to_numpy(float), counts - 1)
    half, p = log_ratios(means, noise, counts, first, second)
    steps = cells["steps"].to_numpy(float)
    short = cells["short"].to_numpy(bool)
    at_first = cells["at_first"].to_numpy(bool)
    is_bound = short | at_first
    half[is_bound[first] | is_bound[second]] = math.nan
    faster = np.where(means[first] < means[second], first, second)
    is_few = np.minimum(counts[first], counts[second]) < FEWEST_SEEDS
    reasons = [short[faster], at_first[faster], is_few]
    note = np.select(reasons, [FASTER_IS_SHORT, AT_FIRST, FEW_RUNS], "")
    p = np.where(note == "", p, math.nan)
    ratio = steps[second] / steps[first]
    corrected = holm(p)
    return (
        rates.iloc[first][CELL]
        .reset_index(drop=True)
        .assign(
            other=rates["variant"].to_numpy()[second],
            other_short=short[second],
            ratio=ratio,
            ratio_low=ratio / np.exp(half),
            ratio_high=ratio * np.exp(half),
            p=p,
            corrected_p=corrected,
            distinguishable=corrected < LEVEL,
            note=note,
        )
    )


def log_ratios(
    log_steps: Floats, noise: Noise, counts: Floats, first: Ints, second: Ints
) -> tuple[Floats, Floats]:
    """Return half the widths of the 95% intervals of log ratios of steps, and Welch's two-sided p values.

    Args:
        log_steps: mean logarithms of the steps of cells, ... x cells.
        noise: of the logarithm of a run's steps.
        counts: runs of each mean.
        first: index of each pair's first cell.
        second: index of its second cell.
    """
    sem, dof = welch(noise, counts, first, second)
    distance = np.abs(log_steps[..., first] - log_steps[..., second])
    return stdtrit(dof, UPPER) * sem, 2 * stdtr(dof, -distance / sem)
