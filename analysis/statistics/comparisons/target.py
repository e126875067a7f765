"""Steps to a target, compared: a study whose values are the logarithms of the steps at which runs reach a value.

So the rate that reaches the target first is chosen, and variants are compared as for accuracies: by Welch's t test,
less the luck of the choice, corrected over all pairs. How often this is right: `benchmarks/target_simulation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.comparisons.correction import pairs_within
from lr_sweep.analysis.statistics.comparisons.noise import (
    NO_SPREAD,
    at_chosen,
    undefined_is_nan,
    welch,
)
from lr_sweep.analysis.statistics.comparisons.pairs import LEVEL, comparisons
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    Bools,
    Floats,
    Ints,
    best_learning_rates,
    tuples_in,
)
from lr_sweep.analysis.statistics.selection.summary import (
    GROUP,
    StudySummary,
    per_cell,
    per_learning_rate,
    points_within_budget,
)

RATE, PAIR = [*CELL, "learning_rate"], [*CELL, "other"]
LOG_STEPS = Metric(name="log steps", higher_is_better=False, is_fraction=False)
LOCAL, LEAST_FITTED = 0.2, 6
"""Logarithm of steps to each side of a crossing that a curve is fitted to, and evaluations of a fit at least."""
AFTER_BEST = 2
"""Evaluations behind the best one that still count: a curve may worsen later."""
FLAT = 1e-6
"""Slope of a curve that does not rise, as a share of its values in a unit of log steps."""
SLOPE_NOISE = 2.0
"""Squared relative errors of the slope, 1 at most, added to the variance of crossings; chosen by simulation."""
SIZES = ["ratio", "ratio_low", "ratio_high", "saved", "saved_low", "saved_high"]
CHOSEN_LAST = 100.0
"""Added to the values that choose a rate if the rate does not reach the target."""
NOT_KNOWN: dict[str, Any] = {"p": math.nan, "corrected_p": math.nan, "distinguishable": False}
NOT_KNOWN |= {
    "further_seeds": math.nan,
    "note": "the faster one does not reach the target with all its runs",
}
"""Columns of a pair whose faster variant is short."""
UPPER, ONE_SIDED = 1 - LEVEL / 2, 1 - LEVEL
"""Quantiles of the ends of an interval, and of an interval with one end."""


class StepsCompared(NamedTuple):
    """How variants reach a target; where several rates were tried, also at one rate for all (`shared_` columns)."""

    cells: pd.DataFrame
    """A row a variant, the fastest first: `learning_rate` (that reaches the target first), `num_runs`, `num_reached`,
    `short` (does not reach it), `steps` (then its budget) with a 95% interval, `certain_step` (first in `means`)."""
    pairs: pd.DataFrame
    """A row a pair: what `speedups` returns, and columns of `comparisons`, where the faster one is not short."""
    means: pd.DataFrame
    """See `_means_at_steps`."""


def compare_steps(
    summary: StudySummary, curves: pd.DataFrame, per_step: pd.Series[float] | None = None
) -> StepsCompared | None:
    """Compare the steps to the summary's targets; None: there are none, or no run has ended with two evaluations.

    `curves`: `run_id`, `step` and `validation_accuracy`; `per_step`: by run id, what a step takes of the unit that is
    counted, as seconds; None: steps are counted.
    """
    ended = summary.runs["status"].isin(["complete", "diverged"]) & summary.runs["task"].isin(
        summary.targets
    )
    if not summary.metric.chosen_on or not ended.any() or not curves["run_id"].duplicated().any():
        return None
    steps = _summary(_with_crossings(summary, summary.runs[ended], curves, per_step))
    means = _means_at_steps(steps, curves, summary.targets, summary.metric.sign)
    cells, pairs = _compared(steps)
    cells.insert(4, "target", cells["task"].map(summary.targets))
    cells = cells.join(
        means[means["certain"]].groupby(CELL)["step"].min().rename("certain_step"), on=CELL
    )
    shared = _at_shared_rate(steps)
    if len(shared) and steps.runs.groupby(CELL)["learning_rate"].nunique().max() > 1:
        there, pairs_there = _compared(_summary(shared, steps.cells))
        cells = cells.join(there.set_index(CELL).add_prefix("shared_"), on=CELL)
        pairs = pairs.join(pairs_there.set_index(PAIR).add_prefix("shared_"), on=PAIR)
    return StepsCompared(cells, pairs, means)


def _with_crossings(
    summary: StudySummary,
    runs: pd.DataFrame,
    curves: pd.DataFrame,
    per_step: pd.Series[float] | None,
) -> pd.DataFrame:
    """Return runs with `budget`, `reached`, `short`, and as values the logarithms of their steps to the target."""
    points = points_within_budget(runs, curves, ["validation_accuracy"]).merge(
        runs[["run_id", "status"]]
    )
    target = points["task"].map(summary.targets)
    points["gap"] = (
        summary.metric.sign * (points["validation_accuracy"] - target) + NO_SPREAD * target.abs()
    )
    rates = [_of_rate(rows) for _, rows in points[points["step"] > 0].groupby(RATE, sort=False)]
    none = pd.DataFrame(columns=["run_id", "log_steps", "short"])
    runs = runs.merge(pd.concat(rates or [none]), on="run_id", how="left")
    unit = 0.0 if per_step is None else np.log(per_step.reindex(runs["run_id"]).to_numpy(float))
    budget, when = runs["num_steps"].map(math.log), runs["log_steps"].astype(float)
    short, value = runs["short"].eq(True) | when.isna(), when.fillna(budget) + unit
    runs = runs.assign(budget=budget + unit, reached=when <= budget, short=short)
    return runs.assign(validation_accuracy=value + CHOSEN_LAST * short, test_accuracy=value)


def _summary(runs: pd.DataFrame, order: pd.DataFrame | None = None) -> StudySummary:
    """Summarise runs; the cells are ordered as in a frame, by default in each task and model the fastest first."""
    rates = per_learning_rate(runs)
    cells = per_cell(
        runs, rates, best_learning_rates(runs.drop(columns="test_accuracy"), LOG_STEPS)
    )
    fastest = cells.assign(group=cells.groupby(GROUP, sort=False).ngroup()).sort_values(
        ["group", "validation_mean"]
    )
    cells = (fastest if order is None else order)[CELL].merge(cells, on=CELL)
    return StudySummary(runs=runs, learning_rates=rates, cells=cells, metric=LOG_STEPS)


def _at_shared_rate(steps: StudySummary) -> pd.DataFrame:
    """Return the runs at one rate for each task and model: of those tried by all variants the fastest on average."""
    rates = steps.learning_rates.dropna(subset=["validation_mean"])
    found = (
        rates.groupby([*GROUP, "learning_rate"])["validation_mean"]
        .agg(["mean", "size"])
        .reset_index()
    )
    found = found.join(steps.cells.groupby(GROUP).size().rename("all"), on=GROUP)
    found = (
        found[found["size"] == found["all"]]
        .sort_values(["mean", "learning_rate"])
        .drop_duplicates(GROUP)
    )
    return steps.runs.merge(found[[*GROUP, "learning_rate"]], on=[*GROUP, "learning_rate"])


def _of_rate(points: pd.DataFrame) -> pd.DataFrame:
    """Return the crossings of the runs of a rate, from their gaps; between evaluations these are interpolated."""
    gaps = points.pivot(index="step", columns="run_id", values="gap").interpolate(
        "index", limit_area="inside"
    )
    complete = gaps.columns.isin(points.loc[points["status"] == "complete", "run_id"])
    gaps, budget = (
        gaps[gaps.loc[:, complete].notna().all(axis=1)],
        math.log(points["num_steps"].max()),
    )
    found, short = np.full(len(complete), math.nan), True
    if complete.any() and len(gaps):
        found, short = crossings(
            np.log(gaps.index.to_numpy(float)), gaps.to_numpy(float), complete, budget
        )
    return pd.DataFrame({"run_id": gaps.columns, "log_steps": found, "short": short})


def crossings(
    log_steps: Floats, gaps: Floats, complete: Bools, budget: float
) -> tuple[Floats, bool]:
    """Return when the runs of a rate reach the target, by fits around the place where their mean curve does.

    A run is there earlier than the mean by what its fit is above the target there, divided by the mean's slope. So
    noise moves it to both sides alike, and runs that end just short have a crossing. Noise of the slope widens both.

    Args:
        log_steps, budget: logarithms of the steps of evaluations, rising, and of the runs.
        gaps: evaluations x runs: by how much a run is better than the target; NaN: no evaluation.
        complete: the runs that the mean curve is of.

    Returns the logarithm of each run's steps, extrapolated behind the budget (NaN: it has no evaluation there), and
    whether the rate does not reach the target, as the mean curve ends before, or such a run is there.
    """
    mean = gaps[:, complete].mean(1)
    window, centre, degree = _window(log_steps, mean)
    fits = np.zeros((3, len(complete)))
    fits[: degree + 1] = np.polyfit(
        log_steps[window] - centre, np.nan_to_num(gaps[window]), degree
    )[::-1]
    there, slope = _crossing(fits[:, complete].mean(1))
    slope = max(slope, FLAT * np.abs(mean[window]).max())
    slopes = np.array([0.0, 1.0, 2 * there]) @ fits[:, complete] / slope
    apart = math.sqrt(1 + SLOPE_NOISE * min(slopes.var() / max(len(slopes) - 1, 1), 1.0))
    ahead = np.array([1.0, there, there**2]) @ fits / slope
    ahead += (apart - 1) * (ahead - ahead[complete].mean())
    never = np.isnan(gaps[window]).any(0)
    found = np.where(never, math.nan, np.maximum(centre + there - ahead, log_steps[0]))
    return found, bool(never.any() or found.mean() > budget)


def _window(log_steps: Floats, mean: Floats) -> tuple[Ints, float, int]:
    """Return which evaluations to fit, the middle of the crossing, and the degree of the fit.

    As many evaluations are before the middle as are short of the target: noise puts as many too early as too late.
    """
    until = log_steps[: mean.argmax() + 1 + AFTER_BEST]
    number = int((mean[: len(until)] < 0).sum())
    centre = float(until[max(number - 1, 0) : number + 1].mean())
    away = np.abs(until - centre)
    window = np.argsort(away, kind="stable")[: max(LEAST_FITTED, int((away < LOCAL).sum()))]
    return window, centre, min(len(window) - 1, 2 if number < len(until) else 1)


def _crossing(fit: Floats) -> tuple[float, float]:
    """Return where a parabola, its constant first, rises through 0, and its slope there; nowhere: at 0."""
    constant, slope, bend = fit.tolist()
    if bend == 0 or slope <= 0 or (square := slope**2 - 4 * bend * constant) <= 0:
        return 0.0, slope
    return -2 * constant / (slope + math.sqrt(square)), math.sqrt(square)


def _compared(steps: StudySummary) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of cells, and of pairs. Tests have the noise of three rates, intervals that of the chosen one."""
    runs, counts = (
        steps.chosen_runs,
        {"num_runs": ("reached", "size"), "num_reached": ("reached", "sum")},
    )
    ended = runs.groupby(CELL, sort=False).agg(
        **counts, short=("short", "any"), budget=("budget", "max")
    )
    cells, at = (
        steps.cells[RATE].join(ended, on=CELL).reset_index(drop=True),
        at_chosen(replace(steps, runs=runs)),
    )
    limits, squares = (
        cells.pop("budget").where(cells["short"], math.inf).to_numpy(),
        at.noise.variance / at.counts,
    )
    half = stdtrit(at.noise.dof, UPPER) * np.sqrt(squares)
    low, high = (
        np.minimum(at.means - half, limits),
        np.where(cells["short"], math.inf, at.means + half),
    )
    cells = cells.assign(
        steps=np.exp(np.minimum(at.means, limits)), low=np.exp(low), high=np.exp(high)
    )
    pairs = first, second = pairs_within(list(tuples_in(cells[GROUP])))
    sem, dof = welch(at.noise, at.counts, first, second)
    tested, sizes = comparisons(steps), speedups(at.means, limits, squares, sem, dof, pairs)
    unknown = np.isfinite(limits)[np.where(at.means[first] < at.means[second], first, second)]
    known = {name: tested[name].mask(unknown, value) for name, value in NOT_KNOWN.items()}
    return cells, tested[[*PAIR, "num_seeds", "num_other_seeds"]].assign(**sizes, **known)


def speedups(
    means: Floats,
    limits: Floats,
    squares: Floats,
    sem: Floats,
    dof: Floats,
    pairs: tuple[Ints, Ints],
) -> dict[str, Floats]:
    """Return `ratio` and `saved`: how many times as fast the first of two cells is, and the steps that it saves.

    Each has `_low` and `_high`, its 95% interval for this pair alone. It is open to the side of a cell that does not
    reach the target: this cell counts with its budget, and with its noise as far as that reaches below the budget.

    Args:
        means, squares: logarithms of steps, and their squared standard errors, ... x cells.
        limits: logarithms of the budgets of cells that do not reach the target, else infinite.
        sem, dof: standard errors of the differences of means, and their degrees of freedom, ... x pairs.
        pairs: indices of the first and of the second cell of each pair.
    """
    limited, (open_low, open_high) = (
        np.minimum(means, limits),
        (np.isfinite(limits)[..., of] for of in pairs),
    )
    quantile = stdtrit(dof, np.where(open_low ^ open_high, ONE_SIDED, UPPER))
    one, other = (np.exp(limited[..., of]) for of in pairs)
    with undefined_is_nan():
        scale = quantile * sem / np.sqrt(squares[..., pairs[0]] + squares[..., pairs[1]])
        noise = [
            np.maximum(np.sqrt(squares[..., of]) - (means - limited)[..., of] / quantile, 0.0)
            for of in pairs
        ]

    def interval(size: Floats, half: Floats) -> list[Floats]:
        return [
            size,
            np.where(open_low, -math.inf, size - half),
            np.where(open_high, math.inf, size + half),
        ]

    saved = interval(other - one, scale * np.hypot(one * noise[0], other * noise[1]))
    with np.errstate(over="ignore"):
        ratio = np.exp(interval(np.log(other / one), scale * np.hypot(*noise)))
    return dict(zip(SIZES, [*ratio, *saved], strict=True))


def _means_at_steps(
    steps: StudySummary, curves: pd.DataFrame, targets: Mapping[str, float], sign: int
) -> pd.DataFrame:
    """Return the mean of each cell at every step that all its runs have, and whether it is `certain` to be there.

    One-sided t tests (`p`) go from the last step down, each at the level `LEVEL`, until one fails. In this fixed order
    the choice of the step needs no correction (Maurer, Hothorn and Lehmacher 1995). The mean has a 95% interval.
    """
    points = points_within_budget(steps.chosen_runs, curves, ["validation_accuracy"]).dropna()
    found = (
        points.groupby([*CELL, "step"])["validation_accuracy"]
        .agg(["mean", "sem", "count"])
        .reset_index()
    )
    found = found[found["count"] == found.groupby(CELL)["count"].transform("max")].rename(
        columns={"count": "num_runs"}
    )
    dof, half = found["num_runs"] - 1, stdtrit(found["num_runs"] - 1, UPPER) * found["sem"]
    found = found.assign(low=found["mean"] - half, high=found["mean"] + half)
    found["p"] = stdtr(dof, sign * (found["task"].map(targets) - found["mean"]) / found["sem"])
    found["certain"] = (found["p"] < LEVEL)[::-1].groupby([found[name] for name in CELL]).cummin()
    return found.drop(columns="sem")
