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
    CONFIDENCE,
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

LOCAL = 0.2
"""Logarithm of steps to each side of a crossing that a curve is fitted to."""
LEAST_FITTED = 6
"""Smallest number of evaluations of a fit."""
AFTER_BEST = 2
"""Evaluations behind the best one that still count: a curve may worsen later."""
FLAT = 1e-6
"""Slope of a curve that does not rise, as a share of its values in a unit of log steps."""
LEAST_RUNS = 3
"""Smallest number of runs of each variant that a p value needs."""
FEW_RUNS = f"fewer than {LEAST_RUNS} runs of a variant: no p"
AT_FIRST = "the faster one reaches the target at its first evaluation: evaluate more often"
FASTER_IS_SHORT = "the faster one does not reach the target with all its runs"


class StepsCompared(NamedTuple):
    """How variants reach a target."""

    cells: pd.DataFrame
    """A row a variant, the fastest first: `learning_rate` (that reaches the target first), `target`, `num_runs`,
    `num_reached`, `short` (does not reach it), `at_first` (is there at its first evaluation, and perhaps earlier),
    `steps` (of a short one its budget) with a 95% interval, `certain_step` (first in `means`)."""
    pairs: pd.DataFrame
    """A row a pair: what `speedups` returns, `corrected_p` over all pairs (NaN: the faster one is short, or there are
    too few runs), `distinguishable` (whether that is below `LEVEL`) and `note`."""
    means: pd.DataFrame
    """See `_means_at_steps`."""


def compare_steps(
    summary: StudySummary,
    curves: pd.DataFrame,
    per_step: pd.Series[float] | None = None,
) -> StepsCompared | None:
    """Compare the steps to the summary's targets; None: there are none, or no run has ended with two evaluations.

    `curves`: `run_id`, `step` and `validation`; `per_step`: by run id, what a step takes of the unit that is
    counted, as seconds; None: steps are counted.
    """
    runs = summary.runs[summary.runs["task"].isin(summary.targets)]
    runs = runs[runs["status"].isin(["complete", "diverged"])]
    has_curves = curves["run_id"].duplicated().any()
    if not summary.metric.chosen_on or runs.empty or not has_curves:
        return None
    runs = _with_crossings(summary, runs, curves, per_step)
    rates = _fastest_rates(runs)
    means = _means_at_steps(summary, runs.merge(rates[RATE], on=RATE), curves)
    certain = means[means["certain"]].groupby(CELL)["step"].min()
    cells = _cells(rates, summary.targets)
    cells = cells.join(certain.rename("certain_step"), on=CELL)
    return StepsCompared(cells, _pairs(rates), means)


def _with_crossings(
    summary: StudySummary,
    runs: pd.DataFrame,
    curves: pd.DataFrame,
    per_step: pd.Series[float] | None,
) -> pd.DataFrame:
    """Add `log_steps` (to the target), `log_budget`, `reached`, `short` and `at_first`."""
    points = points_within_budget(runs, curves, ["validation"])
    points = points.merge(runs[["run_id", "status"]])
    target = points["task"].map(summary.targets)
    rounding = NO_SPREAD * target.abs()
    points["gap"] = summary.metric.sign * (points["validation"] - target) + rounding
    by_rate = points[points["step"] > 0].groupby(RATE, sort=False)
    none = pd.DataFrame(columns=["run_id", "crossing", "short", "at_first"])
    crossed = pd.concat([none, *(_crossings_of_rate(rows) for _, rows in by_rate)])
    runs = runs.merge(crossed, on="run_id", how="left")
    crossing = runs["crossing"].astype(float)
    log_budget = pd.Series(np.log(runs["num_steps"].astype(float)), runs.index)
    unit = 0.0 if per_step is None else np.log(runs["run_id"].map(per_step))
    return runs.assign(
        log_steps=crossing.fillna(log_budget) + unit,
        log_budget=log_budget + unit,
        reached=crossing <= log_budget,
        short=runs["short"].eq(True) | crossing.isna(),
        at_first=runs["at_first"].eq(True),
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
    """Return where a parabola, its constant first, rises through 0, and its slope there; nowhere, or a line: at 0."""
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
    mean = rates["mean"]
    num_runs = rates["num_runs"]
    short = rates["short"]
    limits = rates["log_budget"].where(short, math.inf)
    half = stdtrit(num_runs - 1, UPPER) * np.sqrt(rates["variance"] / num_runs)
    cells = rates[[*RATE, "num_runs", "num_reached", "short", "at_first"]].assign(
        steps=np.exp(np.minimum(mean, limits)),
        low=np.exp(np.minimum(mean - half, limits)),
        high=np.exp((mean + half).mask(short, math.inf)),
    )
    cells.insert(len(RATE), "target", cells["task"].map(targets))
    cells.loc[cells["at_first"], ["low", "high"]] = math.nan
    return cells


class LogSteps(NamedTuple):
    """Logarithms of the steps to the target; one entry a cell in each."""

    means: Floats
    limits: Floats
    """Logarithm of the budget of a cell that does not reach the target; infinity: it does."""
    noise: Noise
    counts: Floats
    """Runs of each mean."""

    @classmethod
    def of(cls, rates: pd.DataFrame) -> LogSteps:
        """Return those of rows of `_fastest_rates`."""
        limits = rates["log_budget"].where(rates["short"], math.inf)
        counts = rates["num_runs"].to_numpy(float)
        noise = Noise(rates["variance"].to_numpy(float), counts - 1)
        return cls(
            rates["mean"].to_numpy(float),
            limits.to_numpy(float),
            noise,
            counts,
        )

    @property
    def is_short(self) -> Bools:
        """Whether a cell does not reach the target."""
        return np.isfinite(self.limits)

    def steps_of(self, cells: Ints, factor: Floats) -> tuple[Floats, Floats]:
        """Return the steps of some cells, at most their budgets, and half the widths of their logarithms' intervals.

        The noise of a short cell counts as far as it reaches below the budget. `factor`: quantile of t.
        """
        log_steps = np.minimum(self.means, self.limits)
        sems = np.sqrt(self.noise.variance / self.counts)
        beyond = self.means - log_steps
        half = factor * sems[..., cells] - beyond[..., cells]
        return np.exp(log_steps[..., cells]), np.maximum(half, 0.0)


def _pairs(rates: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of `StepsCompared`; `rates`: of `_fastest_rates`."""
    first, second = pairs_within(list(tuples_in(rates[GROUP])))
    steps = LogSteps.of(rates)
    pairs = rates.iloc[first][CELL].reset_index(drop=True)
    pairs["other"] = rates["variant"].to_numpy()[second]
    pairs = pairs.assign(**speedups(steps, first, second))
    is_faster = steps.means[first] < steps.means[second]
    faster = rates.iloc[np.where(is_faster, first, second)]
    reasons = {
        FASTER_IS_SHORT: faster["short"].to_numpy(),
        AT_FIRST: faster["at_first"].to_numpy(),
        FEW_RUNS: np.minimum(steps.counts[first], steps.counts[second]) < LEAST_RUNS,
    }
    note = np.select([*reasons.values()], [*reasons], "")
    p = pairs["p"].mask(note != "")
    corrected = holm(p.to_numpy())
    return pairs.assign(
        p=p,
        corrected_p=corrected,
        distinguishable=corrected < LEVEL,
        note=note,
    )


def speedups(steps: LogSteps, first: Ints, second: Ints) -> dict[str, Floats]:
    """Return how many times as fast the first of two cells is (`ratio`), the steps that it saves (`saved`), and `p`.

    The sizes have `_low` and `_high`, a 95% interval for this pair alone. It is open to the side of a cell that does
    not reach the target, which counts with its budget. Welch's two-sided p compares the extrapolated means.

    Args:
        steps: of cells, ... x cells.
        first: index of each pair's first cell.
        second: of its second cell.
    """
    sem, dof = welch(steps.noise, steps.counts, first, second)
    distance = np.abs(steps.means[..., first] - steps.means[..., second])
    first_short = steps.is_short[..., first]
    second_short = steps.is_short[..., second]
    factor = stdtrit(dof, np.where(first_short | second_short, CONFIDENCE, UPPER))
    first_steps, first_half = steps.steps_of(first, factor)
    second_steps, second_half = steps.steps_of(second, factor)
    ratio = second_steps / first_steps
    saved = second_steps - first_steps
    half_saved = np.hypot(first_steps * first_half, second_steps * second_half)
    with np.errstate(over="ignore"):
        scale = np.exp(np.hypot(first_half, second_half))
    return {
        "ratio": ratio,
        "ratio_low": np.where(first_short, 0.0, ratio / scale),
        "ratio_high": np.where(second_short, math.inf, ratio * scale),
        "saved": saved,
        "saved_low": np.where(first_short, -math.inf, saved - half_saved),
        "saved_high": np.where(second_short, math.inf, saved + half_saved),
        "p": 2 * stdtr(dof, -distance / sem),
    }


def _means_at_steps(
    summary: StudySummary, runs: pd.DataFrame, curves: pd.DataFrame
) -> pd.DataFrame:
    """Return the mean of each cell at every step that all its runs have, and whether it is `certain` to be there.

    One-sided t tests (`p`) go from the last step down, each at the level `LEVEL`, until one fails. In this fixed order
    the choice of the step needs no correction (Maurer, Hothorn and Lehmacher 1995). The mean has a 95% interval.
    """
    points = points_within_budget(runs, curves, ["validation"]).dropna()
    by_step = points.groupby([*CELL, "step"])["validation"]
    means = by_step.agg(mean="mean", sem="sem", num_runs="count").reset_index()
    all_runs = means.groupby(CELL)["num_runs"].transform("max")
    means = means[means["num_runs"] == all_runs]
    mean = means["mean"]
    sem = means.pop("sem")
    dof = means["num_runs"] - 1
    half = stdtrit(dof, UPPER) * sem
    behind = summary.metric.sign * (means["task"].map(summary.targets) - mean)
    p = stdtr(dof, behind / sem)
    means = means.assign(low=mean - half, high=mean + half, p=p)
    from_last = means[::-1].assign(certain=means["p"] < LEVEL)
    return means.assign(certain=from_last.groupby(CELL)["certain"].cummin())
