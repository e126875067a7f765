"""Steps to a target, compared: a study whose values are the logarithms of the steps at which runs reach a value.

The crossings of a study's runs make a `StudySummary` of their own (`steps_summary`). So the rate that reaches the
target first is chosen, and variants are compared, as for accuracies: with the noise of three rates, by seed, less the
luck of the choice, corrected over all pairs. How often this is right: `benchmarks/target_simulation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.comparisons.correction import pairs_within
from lr_sweep.analysis.statistics.comparisons.noise import at_chosen, undefined_is_nan
from lr_sweep.analysis.statistics.comparisons.pairs import LEVEL, comparisons
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    CONFIDENCE,
    Bools,
    Floats,
    Ints,
    best_learning_rates,
    places_of,
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
CHOSEN_LAST = 100.0
"""Added to the values that choose a rate if the rate does not reach the target."""
UPPER = (1 + CONFIDENCE) / 2


class StepsCompared(NamedTuple):
    """How variants reach a target; where several rates were tried, also at one rate for all (`shared_` columns)."""

    cells: pd.DataFrame
    """A row a variant, the fastest first: `learning_rate` (the one that reaches the target first), `num_runs`,
    `num_reached`, `short` (does not reach it: as of `crossings`), `steps` with `low` and `high` (95% interval; of a
    short one its budget), `certain_step` (the first that is, in `means`)."""
    pairs: pd.DataFrame
    """A row a pair: what `speedups` returns, and `p`, `corrected_p`, `distinguishable` (never in favour of a short
    one), `further_seeds` and `note` as of `comparisons`."""
    means: pd.DataFrame
    """See `means_at_steps`."""


def compare_steps(
    summary: StudySummary, curves: pd.DataFrame, per_step: pd.Series[float] | None = None
) -> StepsCompared | None:
    """Compare the steps to the summary's targets; None: there are none, or no run has ended with two evaluations.

    Args:
        summary: of runs with validation data.
        curves: `run_id`, `step` and `validation_accuracy`.
        per_step: by run id, what a step takes of the unit that is counted, as seconds; None: steps are counted.
    """
    ended = summary.runs["status"].isin(["complete", "diverged"]) & summary.runs["task"].isin(summary.targets)
    if not summary.metric.chosen_on or not ended.any() or not curves["run_id"].duplicated().any():
        return None
    steps = steps_summary(summary, summary.runs[ended], curves, per_step)
    means = means_at_steps(steps, curves, summary.targets, summary.metric.sign)
    certain = means[means["certain"]].groupby(CELL)["step"].min().rename("certain_step")
    cells = _cells(steps).join(certain, on=CELL)
    cells.insert(4, "target", cells["task"].map(summary.targets))
    pairs = _pairs(steps, cells)
    several = steps.runs.groupby(CELL)["learning_rate"].nunique().max() > 1
    if several and (shared := _at_shared_rate(steps)) is not None:
        at_one = _cells(shared)
        cells = cells.join(at_one.set_index(CELL).add_prefix("shared_"), on=CELL)
        pairs = pairs.join(_pairs(shared, at_one).set_index(PAIR).add_prefix("shared_"), on=PAIR)
    return StepsCompared(cells, pairs, means)


def steps_summary(
    summary: StudySummary, runs: pd.DataFrame, curves: pd.DataFrame, per_step: pd.Series[float] | None = None
) -> StudySummary:
    """Return the ended runs of a study, with the logarithms of their steps to the target as what chooses and compares.

    They also have `budget` (a logarithm), `reached` and `short`. Arguments as of `compare_steps`.
    """
    points = points_within_budget(runs, curves, ["validation_accuracy"]).merge(runs[["run_id", "status"]])
    target = points["task"].map(summary.targets)
    rounding = 0.5 * 10.0 ** -places_of(np.abs(target.to_numpy(float))).astype(float)
    points["gap"] = summary.metric.sign * (points["validation_accuracy"] - target) + rounding
    found = [_of_rate(rows) for _, rows in points[points["step"] > 0].groupby(RATE, sort=False)]
    none = [pd.DataFrame(columns=["run_id", "log_steps", "short"])]
    runs = runs.merge(pd.concat(found or none), on="run_id", how="left")
    unit = 0.0 if per_step is None else np.log(per_step.reindex(runs["run_id"]).to_numpy(float))
    budget, when = runs["num_steps"].map(math.log), runs["log_steps"].astype(float)
    short = runs["short"].eq(True) | when.isna()
    value = when.fillna(budget) + unit
    runs = runs.assign(budget=budget + unit, reached=when <= budget, short=short)
    return _summary(runs.assign(validation_accuracy=value + CHOSEN_LAST * short, test_accuracy=value), summary.paired)


def _summary(runs: pd.DataFrame, paired: bool, order: pd.DataFrame | None = None) -> StudySummary:
    """Summarise runs; the cells are ordered as in a frame, by default in each task and model the fastest first."""
    rates, chosen = per_learning_rate(runs), best_learning_rates(runs.drop(columns="test_accuracy"), LOG_STEPS)
    cells = per_cell(runs, rates, chosen)
    fastest = cells.assign(group=cells.groupby(GROUP, sort=False).ngroup()).sort_values(["group", "validation_mean"])
    cells = (fastest if order is None else order)[CELL].merge(cells, on=CELL)
    return StudySummary(runs=runs, learning_rates=rates, cells=cells, metric=LOG_STEPS, paired=paired)


def _at_shared_rate(steps: StudySummary) -> StudySummary | None:
    """Return the part at one rate for each task and model: of those tried by all variants the fastest on average."""
    rates = steps.learning_rates.dropna(subset=["validation_mean"])
    found = rates.groupby([*GROUP, "learning_rate"])["validation_mean"].agg(["mean", "size"]).reset_index()
    found = found.merge(steps.cells.groupby(GROUP).size().rename("all").reset_index(), on=GROUP)
    found = found[found["size"] == found["all"]].sort_values(["mean", "learning_rate"]).drop_duplicates(GROUP)
    runs = steps.runs.merge(found[[*GROUP, "learning_rate"]], on=[*GROUP, "learning_rate"])
    return None if runs.empty else _summary(runs, steps.paired, steps.cells)


def _of_rate(points: pd.DataFrame) -> pd.DataFrame:
    """Return the crossings of the runs of a rate, from their gaps; between evaluations these are interpolated."""
    gaps = points.pivot(index="step", columns="run_id", values="gap").interpolate("index", limit_area="inside")
    complete = gaps.columns.isin(points.loc[points["status"] == "complete", "run_id"])
    gaps, budget = gaps[gaps.loc[:, complete].notna().all(axis=1)], math.log(points["num_steps"].max())
    found, short = np.full(len(complete), math.nan), True
    if complete.any() and len(gaps):
        found, short = crossings(np.log(gaps.index.to_numpy(float)), gaps.to_numpy(float), complete, budget)
    return pd.DataFrame({"run_id": gaps.columns, "log_steps": found, "short": short})


def crossings(log_steps: Floats, gaps: Floats, complete: Bools, budget: float) -> tuple[Floats, bool]:
    """Return when the runs of a rate reach the target, by fits around the place where their mean curve does.

    A run is there earlier than the mean by what its fit is above the target there, divided by the mean's slope. So
    noise moves a crossing to both sides alike, and runs that end just short of the target have one, too.

    Args:
        log_steps: logarithms of the steps of evaluations, rising.
        gaps: evaluations x runs: by how much a run is better than the target; NaN: no evaluation.
        complete: the runs that the mean curve is of.
        budget: logarithm of the steps of a run.

    Returns:
        The logarithm of each run's steps, extrapolated behind the budget (NaN: the run has no evaluation there); and
        whether the rate does not reach the target, as the mean curve ends before, or such a run is there.
    """
    mean = gaps[:, complete].mean(1)
    window, centre, degree = _window(log_steps, mean)
    fits = np.zeros((3, len(complete)))
    fits[: degree + 1] = np.polyfit(log_steps[window] - centre, np.nan_to_num(gaps[window]), degree)[::-1]
    there, slope = _crossing(fits[:, complete].mean(1))
    found = centre + there - np.array([1.0, there, there**2]) @ fits / max(slope, FLAT * np.abs(mean[window]).max())
    never = np.isnan(gaps[window]).any(0)
    found = np.where(never, math.nan, np.maximum(found, log_steps[0]))
    return found, bool(never.any() or found.mean() > budget)


def _window(log_steps: Floats, mean: Floats) -> tuple[Ints, float, int]:
    """Return which evaluations to fit, the middle of the crossing, and the degree of the fit.

    As many evaluations are before the crossing as are short of the target: noise puts as many of them too early as too
    late. Without any beyond it, the middle is the last one.
    """
    until = log_steps[: mean.argmax() + 1 + AFTER_BEST]
    number = int((mean[: len(until)] < 0).sum())
    centre = float(until[max(number - 1, 0) : number + 1].mean())
    away = np.abs(until - centre)
    window = np.argsort(away, kind="stable")[: max(LEAST_FITTED, int((away < LOCAL).sum()))]
    return window, centre, min(len(window) - 1, 2 if number < len(until) else 1)


def _crossing(fit: Floats) -> tuple[float, float]:
    """Return where a parabola with these coefficients, the constant first, rises through 0, and its slope there.

    That is 0, if it rises nowhere near.
    """
    constant, slope, bend = fit.tolist()
    if bend == 0 or slope <= 0 or (square := slope**2 - 4 * bend * constant) <= 0:
        return 0.0, slope
    return -2 * constant / (slope + math.sqrt(square)), math.sqrt(square)


def _cells(steps: StudySummary) -> pd.DataFrame:
    counts = {"num_runs": ("reached", "size"), "num_reached": ("reached", "sum")}
    runs = steps.chosen_runs.groupby(CELL, sort=False).agg(**counts, short=("short", "any"), budget=("budget", "max"))
    found, at = steps.cells[RATE].join(runs, on=CELL).reset_index(drop=True), at_chosen(steps)
    short, budget = found.pop("short").to_numpy(bool), found.pop("budget").to_numpy()
    means = np.where(short, np.minimum(at.means, budget), at.means)
    half = stdtrit(at.noise.dof, UPPER) * np.sqrt(at.noise.variance / at.counts)
    high = np.where(short, math.inf, np.exp(means + half))
    return found.assign(short=short, steps=np.exp(means), low=np.exp(means - half * ~short), high=high)


def _pairs(steps: StudySummary, cells: pd.DataFrame) -> pd.DataFrame:
    found, at = comparisons(steps), at_chosen(steps)
    pairs = first, second = pairs_within(list(tuples_in(cells[GROUP])))
    half, short = (found["high"] - found["low"]).to_numpy() / 2, cells["short"].to_numpy()
    sizes = speedups(np.log(cells["steps"].to_numpy()), short, at.noise.variance / at.counts, half, pairs)
    unknown = np.where(at.means[first] < at.means[second], short[first], short[second])
    return found[[*PAIR, "num_seeds", "num_other_seeds"]].assign(
        **sizes,
        **{name: found[name].where(~unknown) for name in ("p", "corrected_p", "further_seeds")},
        distinguishable=found["distinguishable"] & ~unknown,
        note=found["note"].where(~unknown, "the faster one does not reach the target with all its runs"),
    )


def speedups(means: Floats, short: Bools, squares: Floats, half: Floats, pairs: tuple[Ints, Ints]) -> dict[str, Floats]:
    """Return `ratio` and `saved`: how many times as fast the first of two cells is, and the steps that it saves.

    Each has `_low` and `_high`, its 95% interval for this pair alone, open to the side of a cell that is short.

    Args:
        means: logarithms of steps, ... x cells.
        short: the cells whose means are lower limits, without noise.
        squares: squared standard errors of the means.
        half: half the widths of the intervals of the differences of means, ... x pairs, if no cell is short.
        pairs: indices of the first and of the second cell of each pair.
    """
    (one, other), (open_low, open_high) = ([each[..., of] for of in pairs] for each in (np.exp(means), short))
    both, known = (each[..., pairs[0]] + each[..., pairs[1]] for each in (squares, np.where(short, 0.0, squares)))
    with undefined_is_nan():
        half = half * np.sqrt(known / both)
    ratio, saved, wide = other / one, other - one, half * np.sqrt((one**2 + other**2) / 2)
    lows = {"ratio": (0.0, ratio * np.exp(-half)), "saved": (-math.inf, saved - wide)}
    highs = {"ratio": ratio * np.exp(half), "saved": saved + wide}
    return {
        **{"ratio": ratio, "saved": saved},
        **{f"{name}_low": np.where(open_low, *ends) for name, ends in lows.items()},
        **{f"{name}_high": np.where(open_high, math.inf, end) for name, end in highs.items()},
    }


def means_at_steps(steps: StudySummary, curves: pd.DataFrame, targets: Mapping[str, float], sign: int) -> pd.DataFrame:
    """Return the mean of each cell at every evaluation, and whether it has certainly reached the target by then.

    The steps are tested from the last one down, each at the level `LEVEL`, until one fails. In this fixed order the
    choice of the step needs no correction (Maurer, Hothorn and Lehmacher 1995).

    Returns:
        One row a cell and step that all its runs have: the cell's columns, `step`, `num_runs`, `mean`, `low` and `high`
        (its 95% interval), `p` (of a one-sided t test that the mean is not better than the target) and `certain`.
    """
    points = points_within_budget(steps.chosen_runs, curves, ["validation_accuracy"]).dropna()
    found = points.groupby([*CELL, "step"])["validation_accuracy"].agg(["mean", "sem", "count"]).reset_index()
    found = found[found["count"] == found.groupby(CELL)["count"].transform("max")].rename(columns={"count": "num_runs"})
    dof, half = found["num_runs"] - 1, stdtrit(found["num_runs"] - 1, UPPER) * found["sem"]
    found = found.assign(low=found["mean"] - half, high=found["mean"] + half)
    found["p"] = stdtr(dof, sign * (found["task"].map(targets) - found["mean"]) / found["sem"])
    found["certain"] = (found["p"] < LEVEL)[::-1].groupby([found[name] for name in CELL]).cummin()
    return found.drop(columns="sem")
