"""Intervals for a cell's test accuracy, over seeds and through the choice of the learning rate, and over several tasks.

What the intervals of cells cover was simulated: `benchmarks/interval_coverage.py`, results in docs/statistics.md. Those
over tasks are of the mean rank and the interquartile mean, after rliable (Agarwal et al. 2021, "Deep Reinforcement
Learning at the Edge of the Statistical Precipice").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    CONFIDENCE,
    Floats,
    arrays_by_cell,
    rounded,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary

MAX_ENUMERATED_SEEDS = 5
"""Up to here every resample of the seeds is enumerated (126 different ones of 5); above, `NUM_DRAWS` are drawn."""
NUM_DRAWS = 2000
QUARTER = 0.25


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A confidence interval, in the unit of its values; NaN at both ends: there is none, and `note` says why."""

    low: float = math.nan
    high: float = math.nan
    note: str = ""


def t_factor(num_seeds: int) -> float:
    """Return how many standard errors a 95% t interval reaches to each side: 4.30 for 3 seeds."""
    assert num_seeds > 1, "a single value has no standard error"
    return float(stdtrit(num_seeds - 1, (1 + CONFIDENCE) / 2))


def t_interval(values: Floats) -> Interval:
    """Return mean ± t x SEM of values, one a seed, at a fixed learning rate; the choice of the rate is not in it."""
    if len(values) < 2:
        return Interval(note=_too_few(len(values)))
    half = t_factor(len(values)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    centre = float(np.mean(values))
    return Interval(low=centre - half, high=centre + half)


def resamples(num_seeds: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw seeds with replacement: each different outcome with its probability, or random ones for many seeds.

    Returns:
        How often each resample has each seed, resamples x seeds, and each resample's probability.
    """
    if num_seeds > MAX_ENUMERATED_SEEDS:
        drawn = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=NUM_DRAWS)
        return drawn.astype(float), np.full(NUM_DRAWS, 1 / NUM_DRAWS)
    outcomes = combinations_with_replacement(range(num_seeds), num_seeds)
    counts = np.array([np.bincount(outcome, minlength=num_seeds) for outcome in outcomes])
    ways = [
        math.factorial(num_seeds) / math.prod(map(math.factorial, row)) for row in counts.tolist()
    ]
    return counts.astype(float), np.array(ways) / num_seeds**num_seeds


def tuned_test_accuracy(validation: Floats, test: Floats, counts: Floats) -> Floats:
    """Choose the learning rate on each resample as `selection.best_learning_rates` does; read the test mean there.

    Args:
        validation: seeds x learning rates in ascending order, more is better; NaN: no value.
        test: the same shape; chooses nothing.
        counts: how often each resample has each seed, resamples x seeds.

    Returns:
        One mean a resample; NaN where none of its seeds has a value.
    """
    means, num_values = _means(validation, counts)
    eligible = (num_values == num_values.max(axis=1, keepdims=True)) & (num_values > 0)
    # argmax takes the first of equals: the smaller learning rate.
    chosen = np.where(eligible, rounded(means), -np.inf).argmax(axis=1)
    reported: Floats = _means(test, counts)[0][np.arange(len(counts)), chosen]
    return reported


def selection_interval(
    validation: Floats,
    test: Floats,
    rng: np.random.Generator,
    ends: tuple[float, float] = (0.0, 1.0),
) -> Interval:
    """Return an interval for what tuning on so many seeds reports on average, the choice of the rate included.

    Whole seeds are resampled through the selection. The centre is the mean over resamples ("bagged"), the standard
    error its infinitesimal jackknife (Efron 2014, "Estimation and accuracy after model selection", eq. 3.6, with the
    correction of Wager et al. 2014 for random draws), times sqrt(n / (n - 1)) and the t factor: where every resample
    chooses the same rate this is the t interval. A percentile interval of 3 seeds covers 72 to 87%, not 95%.

    Args:
        validation: seeds x learning rates in ascending order, more is better; NaN: no value.
        test: the same shape.
        rng: used for more than `MAX_ENUMERATED_SEEDS` seeds only.
        ends: the least and the greatest value that the test metric can have; by default those of a fraction.

    Returns:
        The interval, cut at `ends`, or none with fewer than two seeds at the chosen learning rate.
    """
    known = ~np.isnan(validation).all(axis=1)
    validation, test = validation[known], test[known]
    num_seeds = len(validation)
    at_chosen = int((~np.isnan(validation)).sum(axis=0).max(initial=0))
    if at_chosen < 2:
        return Interval(note=_too_few(at_chosen))
    counts, weights = resamples(num_seeds, rng)
    reported = tuned_test_accuracy(validation, test, counts)
    centre = float(weights @ reported)
    half = t_factor(at_chosen) * _smoothed_error(reported - centre, counts, weights)
    if math.isnan(half):  # some resample has no test value at its rate
        return Interval(note="seeds without a test value: no interval through selection")
    note = "" if half > 0 else "no spread between seeds"
    return Interval(low=max(ends[0], centre - half), high=min(ends[1], centre + half), note=note)


def intervals(
    summary: StudySummary, rng: np.random.Generator, candidates: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Compute each cell's intervals.

    `candidates`: the runs that were chosen among where more than the learning rate was tuned, with a column `settings`;
    default: those of the summary.

    Returns:
        One row a cell: the cell's columns, `learning_rate`, `num_seeds`, `num_values`, `num_tests`, `test_mean`,
        `test_sem`, `low` and `high` (through the selection), `t_low` and `t_high` (at the chosen rate as if it had been
        fixed; all fractions, NaN: none) and `note`, why there is none or what weakens it.
    """
    runs = arrays_by_cell(summary.runs, "learning_rate", "test_accuracy")
    among = summary.runs.assign(choice=summary.runs["learning_rate"])
    if candidates is not None:
        among = candidates.assign(choice=candidates.groupby(["learning_rate", "settings"]).ngroup())
    tried = arrays_by_cell(among, "seed", "choice", "validation_accuracy", "test_accuracy")
    rows = []
    for cell in summary.cells.to_dict("records"):
        key = cell["task"], cell["model"], cell["variant"]
        rates, tests = runs[key]
        at_chosen = tests[(rates == cell["learning_rate"]) & ~np.isnan(tests)]
        rows.append(_cell(cell, at_chosen, tried[key], rng, summary.metric))
    return pd.DataFrame(rows)


def _means(values: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Average over each resample's seeds with a value; also return their number."""
    num_values = counts @ ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return counts @ np.nan_to_num(values) / num_values, num_values


def _smoothed_error(deviations: Floats, counts: Floats, weights: Floats) -> float:
    """Return the infinitesimal jackknife's standard error of the mean over resamples."""
    num_seeds = counts.shape[1]
    by_seed = (weights * deviations) @ (counts - 1)
    variance = float(by_seed @ by_seed)
    if num_seeds > MAX_ENUMERATED_SEEDS:  # the noise of finitely many draws adds to every square
        variance -= (num_seeds - 1) / len(counts) * float(weights @ deviations**2)
    return math.sqrt(max(variance, 0.0) * num_seeds / (num_seeds - 1))


def _cell(
    cell: dict[Any, Any],
    at_chosen: Floats,
    tried: Sequence[Floats],
    rng: np.random.Generator,
    metric: Metric,
) -> dict[str, Any]:
    """Compute the intervals of a cell; `tried`: seed, choice, validation and test value of each run."""
    (seeds, i), (choices, j) = (np.unique(each, return_inverse=True) for each in tried[:2])
    validation, test = np.full((2, len(seeds), len(choices)), math.nan)
    validation[i, j], test[i, j] = tried[2:]
    through = selection_interval(metric.sign * validation, test, rng, metric.ends)
    fixed = t_interval(at_chosen)
    kept = [*CELL, "learning_rate", "num_seeds", "num_values", "num_tests", "test_mean", "test_sem"]
    ends = {"low": through.low, "high": through.high, "t_low": fixed.low, "t_high": fixed.high}
    notes = [through.note]
    if cell["missing"] + cell["short"] + cell["failed"]:
        notes.append("runs missing or failed, all of this may change")
    if cell["num_diverged"]:
        notes.append(f"{cell['num_diverged']} of {cell['num_seeds']} runs at it diverged")
    if cell["at_edge"]:
        notes.append("at the edge of the grid: learning rates outside it are not in the interval")
    return {**{key: cell[key] for key in kept}, **ends, "note": "; ".join(filter(None, notes))}


def _too_few(num_values: int) -> str:
    return "one seed: no interval" if num_values == 1 else "no value: no interval"


def overall(summary: StudySummary, rng: np.random.Generator) -> pd.DataFrame:
    """Rate each variant over the tasks of a model, at its chosen learning rates.

    Seeds are drawn with replacement within each task and variant, with the generator.

    Returns:
        One row a model with two tasks or more, and a variant with a value on all of them: `model`, `variant`,
        `num_tasks`; `mean_rank` (1 is best), `rank_low` and `rank_high`; `iqm` (interquartile mean of the test values
        of all runs, a fraction), `iqm_low` and `iqm_high`; the intervals are 95% percentile ones.
    """
    rows: list[dict[str, Any]] = []
    for model, runs in summary.chosen_runs.dropna(subset=["test_accuracy"]).groupby(
        "model", sort=False
    ):
        tasks = list(dict.fromkeys(summary.cells.loc[summary.cells["model"] == model, "task"]))
        values = {
            variant: {
                task: each["test_accuracy"].to_numpy(float)
                for task, each in of.groupby("task", sort=False)
            }
            for variant, of in runs.groupby("variant", sort=False)
        }
        known = {variant: found for variant, found in values.items() if len(found) == len(tasks)}
        whole = {variant: [found[task] for task in tasks] for variant, found in known.items()}
        if len(tasks) > 1 and len(whole) > 1:
            rated = _rated(list(whole.values()), summary.metric.sign, rng)
            labels = (
                {"model": model, "variant": variant, "num_tasks": len(tasks)} for variant in whole
            )
            rows += [label | row for label, row in zip(labels, rated, strict=True)]
    ends = ["mean_rank", "rank_low", "rank_high", "iqm", "iqm_low", "iqm_high"]
    return pd.DataFrame(rows, columns=["model", "variant", "num_tasks", *ends])


def _rated(
    values: list[list[Floats]], sign: int, rng: np.random.Generator
) -> list[dict[str, float]]:
    """Rate variants by their values, by task; row 0 of each array is what was measured, the others are drawn."""
    drawn = [
        [np.vstack([each, rng.choice(each, (NUM_DRAWS, len(each)))]) for each in tasks]
        for tasks in values
    ]
    means = np.array([[each.mean(-1) for each in tasks] for tasks in drawn])
    ranks = _ranks(-sign * means).mean(1)
    middles = [_middle(np.concatenate(tasks, axis=-1)) for tasks in drawn]
    return [
        _with_ends("mean_rank", "rank", rank) | _with_ends("iqm", "iqm", middle)
        for rank, middle in zip(ranks, middles, strict=True)
    ]


# Both are in scipy.stats, which takes longer to import than a small report to write.
def _ranks(means: Floats) -> Floats:
    """Rank along the first axis, the smallest first; equal ones share their mean rank."""
    return np.array([(means < each).sum(0) + ((means == each).sum(0) + 1) / 2 for each in means])


def _middle(values: Floats) -> Floats:
    """Return the mean of the middle half along the last axis; what is cut at each end is rounded down."""
    cut = int(QUARTER * values.shape[-1])
    middle: Floats = np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(-1)
    return middle


def _with_ends(name: str, of: str, values: Floats) -> dict[str, float]:
    low, high = np.quantile(values[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {name: float(values[0]), f"{of}_low": float(low), f"{of}_high": float(high)}
