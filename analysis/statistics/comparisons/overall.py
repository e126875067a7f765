"""The variants over several tasks: mean rank and interquartile mean, with stratified bootstrap intervals.

After rliable (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.comparisons.uncertainty import CONFIDENCE, NUM_DRAWS, Floats
from lr_sweep.analysis.statistics.selection.summary import StudySummary

QUARTER = 0.25


def overall(summary: StudySummary, rng: np.random.Generator) -> pd.DataFrame:
    """Rate each variant over the tasks of a model, at its chosen learning rates.

    Seeds are drawn with replacement within each task and variant, with the generator.

    Returns:
        One row a model with two tasks or more, and a variant with a value on all of them: `model`, `variant`,
        `num_tasks`; `mean_rank` (1 is best), `rank_low` and `rank_high`; `iqm` (interquartile mean of the test values
        of all runs, a fraction), `iqm_low` and `iqm_high`; the intervals are 95% percentile ones.
    """
    rows: list[dict[str, Any]] = []
    for model, runs in summary.chosen_runs.dropna(subset=["test_accuracy"]).groupby("model", sort=False):
        tasks = list(dict.fromkeys(summary.cells.loc[summary.cells["model"] == model, "task"]))
        values = {
            variant: {task: each["test_accuracy"].to_numpy(float) for task, each in of.groupby("task", sort=False)}
            for variant, of in runs.groupby("variant", sort=False)
        }
        known = {variant: found for variant, found in values.items() if len(found) == len(tasks)}
        whole = {variant: [found[task] for task in tasks] for variant, found in known.items()}
        if len(tasks) > 1 and len(whole) > 1:
            rated = _rated(list(whole.values()), summary.metric.sign, rng)
            labels = ({"model": model, "variant": variant, "num_tasks": len(tasks)} for variant in whole)
            rows += [label | row for label, row in zip(labels, rated, strict=True)]
    ends = ["mean_rank", "rank_low", "rank_high", "iqm", "iqm_low", "iqm_high"]
    return pd.DataFrame(rows, columns=["model", "variant", "num_tasks", *ends])


def _rated(values: list[list[Floats]], sign: int, rng: np.random.Generator) -> list[dict[str, float]]:
    """Rate variants by their values, by task; row 0 of each array is what was measured, the others are drawn."""
    drawn = [[np.vstack([each, rng.choice(each, (NUM_DRAWS, len(each)))]) for each in tasks] for tasks in values]
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
