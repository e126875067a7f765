"""Steps to a target, compared by the logarithms of the steps at which runs reach a value.

Each variant is taken at the learning rate that reaches the target first. Variants are compared by Welch's t test,
corrected over all pairs. How often this is right: `benchmarks/target_simulation.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.polynomial import polynomial
from scipy.special import stdtr, stdtrit

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.comparisons.correction import LEVEL, holm, pairs_within
from lr_sweep.analysis.statistics.comparisons.noise import (
    NO_SPREAD,
    Noise,
    welch,
)
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    CONFIDENCE,
    RATE,
    UPPER,
    Bools,
    Floats,
    Ints,
    best_learning_rates,
    tuples_in,
)
from lr_sweep.analysis.statistics.selection.summary import (
    GROUP,
    StudySummary,
    points_within_budget,
)

PAIR = [*CELL, "other"]
LOG_STEPS = Metric(name="log steps", higher_is_better=False, is_fraction=False)
LOCAL = 0.2
"""Logarithm of steps to each side of a crossing that a curve is fitted to."""
LEAST_FITTED = 6
"""Smallest number of evaluations of a fit."""
AFTER_BEST = 2
"""Evaluations behind the best one that still count: a curve may worsen later."""
FLAT = 1e-6
"""Slope of a curve that does not rise, as a share of its values in a unit of log steps."""
CHOSEN_LAST = 100.0
"""Added to the values that choose a rate if the rate does not reach the target."""
LEAST_RUNS = 3
"""Smallest number of runs of each variant that a p value needs."""
FEW_RUNS = f"fewer than {LEAST_RUNS} runs of a variant: no p"
AT_FIRST = "the faster one reaches the target at its first evaluation: evaluate more often"
FASTER_IS_SHORT = "the faster one does not reach the target with all its runs"


class StepsCompared(NamedTuple):
    """How variants reach a target; where several rates were tried, also at one rate for all (`shared_` columns)."""

    cells: pd.DataFrame
    """A row a variant, the fastest first: `learning_rate` (that reaches the target first), `num_runs`, `num_reached`,
    `short` (does not reach it), `at_first` (is there at its first evaluation, and perhaps earlier), `steps` (of a short
    one its budget) with a 95% interval, `certain_step` (first in `means`)."""
    pairs: pd.DataFrame
    """A row a pair: what `speedups` returns, `corrected_p` over all pairs (NaN: the faster one is short, or there are
    too few runs), `distinguishable` (whether that is below `LEVEL`) and `note`."""
    means: pd.DataFrame
    """See `_means_at_steps`."""


def compare_steps(
    summary: StudySummary, curves: pd.DataFrame, per_step: pd.Series[float] | None = None
) -> StepsCompared | None:
    """Compare the steps to the summary's targets; None: there are none, or no run has ended with two evaluations.

    `curves`: `run_id`, `step` and `validation_accuracy`; `per_step`: by run id, what a step takes of the unit that is
    counted, as seconds; None: steps are counted.
    """
    runs = summary.runs[summary.runs["task"].isin(summary.targets)]
    runs = runs[runs["status"].isin(["complete", "diverged"])]
    has_curves = curves["run_id"].duplicated().any()
    if not summary.metric.chosen_on or runs.empty or not has_curves:
        return None
    runs = _with_crossings(summary, runs, curves, per_step)
    fastest = _fastest_rates(runs)
    cells, pairs = _compared(runs, fastest)
    cells.insert(4, "target", cells["task"].map(summary.targets))
    means = _means_at_steps(summary, runs.merge(fastest, on=RATE), curves)
    certain = means[means["certain"]].groupby(CELL)["step"].min()
    cells = cells.join(certain.rename("certain_step"), on=CELL)
    shared = _shared_rates(runs, fastest)
    if len(shared) and runs.groupby(CELL)["learning_rate"].nunique().max() > 1:
        at_shared = _compared(runs, shared)
        cells, pairs = (
            frame.join(other.set_index(keys).add_prefix("shared_"), on=keys)
            for frame, other, keys in zip((cells, pairs), at_shared, (CELL, PAIR), strict=True)
        )
    return StepsCompared(cells, pairs, means)


def _with_crossings(
    summary: StudySummary,
    runs: pd.DataFrame,
    curves: pd.DataFrame,
    per_step: pd.Series[float] | None,
) -> pd.DataFrame:
    """Add `log_steps` (to the target), `log_budget`, `reached`, `short` and `validation_accuracy`, which chooses."""
    points = points_within_budget(runs, curves, ["validation_accuracy"])
    points = points.merge(runs[["run_id", "status"]])
    target = points["task"].map(summary.targets)
    rounding = NO_SPREAD * target.abs()
    points["gap"] = summary.metric.sign * (points["validation_accuracy"] - target) + rounding
    by_rate = points[points["step"] > 0].groupby(RATE, sort=False)
    crossed = [_crossings_of_rate(rows) for _, rows in by_rate]
    none = pd.DataFrame(columns=["run_id", "crossing", "short", "at_first"])
    runs = runs.merge(pd.concat([none, *crossed]), on="run_id", how="left")
    crossing = runs["crossing"].astype(float)
    budget = np.log(runs["num_steps"].astype(float))
    unit = 0.0 if per_step is None else np.log(runs["run_id"].map(per_step))
    short = runs["short"].eq(True) | crossing.isna()
    log_steps = crossing.fillna(pd.Series(budget, runs.index)) + unit
    return runs.assign(
        log_steps=log_steps,
        log_budget=budget + unit,
        reached=crossing <= budget,
        short=short,
        at_first=runs["at_first"].eq(True),
        validation_accuracy=log_steps + CHOSEN_LAST * short,
    )


def _crossings_of_rate(points: pd.DataFrame) -> pd.DataFrame:
    """Return the crossings of the runs of a rate, from their gaps; between evaluations these are interpolated."""
    gaps = points.pivot(index="step", columns="run_id", values="gap")  # steps x runs
    gaps = gaps.interpolate("index", limit_area="inside")
    ended = points.loc[points["status"] == "complete", "run_id"]
    complete = gaps.columns.isin(ended)
    gaps = gaps[gaps.loc[:, complete].notna().all(axis=1)]
    crossed = pd.DataFrame({"run_id": gaps.columns, "short": True, "at_first": False})
    if not complete.any() or gaps.empty:
        return crossed.assign(crossing=math.nan)
    log_steps = np.log(gaps.index.to_numpy(float))
    log_budget = math.log(points["num_steps"].max())
    values = gaps.to_numpy(float)
    crossing, short = crossings(log_steps, values, complete, log_budget)
    at_first = values[0, complete].mean() >= 0
    return crossed.assign(crossing=crossing, short=short, at_first=at_first)


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
    num_short = int((mean[until_best] < 0).sum())
    # As many evaluations are before the centre as are short of the target: noise puts as many too early as too late.
    centre = log_steps[until_best][max(num_short - 1, 0) : num_short + 1].mean()
    away = np.abs(log_steps[until_best] - centre)
    window = away.argsort(kind="stable")[: max(LEAST_FITTED, (away < LOCAL).sum())]
    is_parabola = len(window) > 2 and num_short < len(away)  # beyond the end it would bend freely
    degree = 2 if is_parabola else min(len(window) - 1, 1)
    x = log_steps[window] - centre
    fits = polynomial.polyfit(x, np.nan_to_num(gaps[window]), degree)  # coefficients x runs
    there, slope = _crossing(fits[:, complete].mean(1))
    crossed = centre + there - polynomial.polyval(there, fits) / slope
    crossed = np.maximum(crossed, log_steps[0])
    lacking = np.isnan(gaps[window]).any(0)
    is_short = bool(lacking.any() or crossed.mean() > log_budget)
    return np.where(lacking, math.nan, crossed), is_short


def _crossing(fit: Floats) -> tuple[float, float]:
    """Return where a parabola, its constant first, rises through 0, and its slope there; nowhere, or a line: at 0."""
    constant, slope, bend = np.pad(fit, (0, 3 - len(fit))).tolist()
    square = slope**2 - 4 * bend * constant
    if bend and slope > 0 and square > 0:
        return -2 * constant / (slope + math.sqrt(square)), math.sqrt(square)
    return 0.0, max(slope, FLAT * (abs(constant) or 1.0))


def _fastest_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Return `RATE` of the rate of each cell that reaches the target first, the fastest first."""
    rates = best_learning_rates(runs.drop(columns="test_accuracy"), LOG_STEPS)
    groups = rates.groupby(GROUP, sort=False).ngroup()
    ordered = rates.assign(group=groups).sort_values(["group", "validation_mean"])
    return ordered[RATE].reset_index(drop=True)


def _shared_rates(runs: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return `RATE` of cells at one rate for each task and model: of those tried by all the fastest on average."""
    means = runs.groupby(RATE)["validation_accuracy"].mean()
    rates = means.groupby([*GROUP, "learning_rate"]).agg(["mean", "size"]).reset_index()
    num_variants = cells.groupby(GROUP).size().rename("num_variants")
    rates = rates.join(num_variants, on=GROUP)
    rates = rates[rates["size"] == rates["num_variants"]]
    fastest = rates.sort_values(["mean", "learning_rate"]).drop_duplicates(GROUP)
    return cells[CELL].merge(fastest[[*GROUP, "learning_rate"]], on=GROUP)


class LogSteps(NamedTuple):
    """Logarithms of the steps to the target; one entry a cell in each."""

    means: Floats
    limits: Floats
    """Logarithm of the budget of a cell that does not reach the target; infinity: it does."""
    noise: Noise
    counts: Floats
    """Runs of each mean."""


def _compared(runs: pd.DataFrame, rates: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of cells, at one rate each, and of their pairs."""
    numbers = runs.groupby(RATE).agg(
        num_runs=("reached", "size"),
        num_reached=("reached", "sum"),
        short=("short", "any"),
        at_first=("at_first", "any"),
        mean=("log_steps", "mean"),
        variance=("log_steps", "var"),
        log_budget=("log_budget", "max"),
    )
    cells = rates.join(numbers, on=RATE)
    mean, variance, log_budget = (cells.pop(name) for name in ("mean", "variance", "log_budget"))
    counts, short = cells["num_runs"], cells["short"]
    limits = log_budget.where(short, math.inf)
    half = stdtrit(counts - 1, UPPER) * np.sqrt(variance / counts)
    high = (mean + half).mask(short, math.inf)
    cells["steps"] = np.exp(np.minimum(mean, limits))
    cells["low"] = np.exp(np.minimum(mean - half, limits))
    cells["high"] = np.exp(high)
    cells.loc[cells["at_first"], ["low", "high"]] = math.nan
    columns = (mean, limits, variance, counts - 1, counts)
    means, ends, variances, dof, sizes = (column.to_numpy(float) for column in columns)
    return cells, _pairs(cells, LogSteps(means, ends, Noise(variances, dof), sizes))


def _pairs(cells: pd.DataFrame, steps: LogSteps) -> pd.DataFrame:
    first, second = pairs_within(list(tuples_in(cells[GROUP])))
    pairs = cells.iloc[first][CELL].reset_index(drop=True)
    pairs["other"] = cells["variant"].to_numpy()[second]
    pairs = pairs.assign(**speedups(steps, first, second))
    faster = cells.iloc[np.where(steps.means[first] < steps.means[second], first, second)]
    reasons = {
        FASTER_IS_SHORT: faster["short"].to_numpy(),
        AT_FIRST: faster["at_first"].to_numpy(),
        FEW_RUNS: np.minimum(steps.counts[first], steps.counts[second]) < LEAST_RUNS,
    }
    note = np.select([*reasons.values()], [*reasons], "")
    p = pairs["p"].mask(note != "")
    corrected = holm(p.to_numpy())
    return pairs.assign(p=p, corrected_p=corrected, distinguishable=corrected < LEVEL, note=note)


def speedups(steps: LogSteps, first: Ints, second: Ints) -> dict[str, Floats]:
    """Return how many times as fast the first of two cells is (`ratio`), the steps that it saves (`saved`), and `p`.

    The sizes have `_low` and `_high`, a 95% interval for this pair alone. It is open to the side of a cell that does
    not reach the target. This cell counts with its budget, and with its noise as far as that reaches below the budget.
    Welch's two-sided p compares the extrapolated means.

    Args:
        steps: of cells, ... x cells.
        first: index of each pair's first cell.
        second: of its second cell.
    """
    sem, dof = welch(steps.noise, steps.counts, first, second)
    away = np.abs(steps.means[..., first] - steps.means[..., second])
    is_short = np.isfinite(steps.limits)
    has_low, has_high = ~is_short[..., first], ~is_short[..., second]
    factor = stdtrit(dof, np.where(has_low & has_high, UPPER, CONFIDENCE))
    log_steps = np.minimum(steps.means, steps.limits)
    beyond = steps.means - log_steps
    num_steps, sems = np.exp(log_steps), np.sqrt(steps.noise.variance / steps.counts)
    half, other_half = (
        np.maximum(factor * sems[..., cell] - beyond[..., cell], 0.0) for cell in (first, second)
    )
    number, other_number = num_steps[..., first], num_steps[..., second]
    ratio, saved = other_number / number, other_number - number
    half_saved = np.hypot(number * half, other_number * other_half)
    with np.errstate(over="ignore"):
        scale = np.exp(np.hypot(half, other_half))
    return {
        "ratio": ratio,
        "ratio_low": np.where(has_low, ratio / scale, 0.0),
        "ratio_high": np.where(has_high, ratio * scale, math.inf),
        "saved": saved,
        "saved_low": np.where(has_low, saved - half_saved, -math.inf),
        "saved_high": np.where(has_high, saved + half_saved, math.inf),
        "p": 2 * stdtr(dof, -away / sem),
    }


def _means_at_steps(
    summary: StudySummary, runs: pd.DataFrame, curves: pd.DataFrame
) -> pd.DataFrame:
    """Return the mean of each cell at every step that all its runs have, and whether it is `certain` to be there.

    One-sided t tests (`p`) go from the last step down, each at the level `LEVEL`, until one fails. In this fixed order
    the choice of the step needs no correction (Maurer, Hothorn and Lehmacher 1995). The mean has a 95% interval.
    """
    points = points_within_budget(runs, curves, ["validation_accuracy"]).dropna()
    by_step = points.groupby([*CELL, "step"])["validation_accuracy"]
    means = by_step.agg(mean="mean", sem="sem", num_runs="count").reset_index()
    all_runs = means.groupby(CELL)["num_runs"].transform("max")
    means = means[means["num_runs"] == all_runs]
    mean, sem, dof = means["mean"], means.pop("sem"), means["num_runs"] - 1
    half = stdtrit(dof, UPPER) * sem
    behind = summary.metric.sign * (means["task"].map(summary.targets) - mean)
    means = means.assign(low=mean - half, high=mean + half, p=stdtr(dof, behind / sem))
    from_last = means[::-1].assign(certain=means["p"] < LEVEL)
    return means.assign(certain=from_last.groupby(CELL)["certain"].cummin())
