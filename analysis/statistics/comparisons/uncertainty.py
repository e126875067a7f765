"""Intervals for a cell's mean over seeds, and ratings of variants over several tasks.

Ratings are the mean rank and the interquartile mean, after rliable (Agarwal et al. 2021, "Deep Reinforcement Learning
at the Edge of the Statistical Precipice").
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lr_sweep.analysis.statistics.selection.best import UPPER, Floats
from lr_sweep.analysis.statistics.selection.summary import StudySummary

NUM_DRAWS = 2000
"""Resamples of the seeds for the intervals of `overall`."""
QUARTER = 0.25
"""Share of the values that an interquartile mean cuts at each end."""


def with_interval(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the columns `low` and `high` to cells: the t interval of their mean; NaN: of one seed.

    The choice of the learning rate is not in it.
    """
    dof = (cells["num_tests"] - 1).clip(lower=1)  # one value has no SEM in any case
    half = stdtrit(dof, UPPER) * cells["test_sem"]
    return cells.assign(low=cells["test_mean"] - half, high=cells["test_mean"] + half)


def overall(summary: StudySummary, rng: np.random.Generator) -> pd.DataFrame:
    """Rate each variant over the tasks of a model, at its chosen learning rates.

    The intervals are 95% percentile ones: seeds are drawn with replacement within each task and variant.

    Returns:
        One row a model with two tasks or more, and a variant with a value on all of them: `model`, `variant`,
        `num_tasks`; `mean_rank` (1 is best), `rank_low` and `rank_high`; `iqm` (interquartile mean of the test values
        of all runs, a fraction), `iqm_low` and `iqm_high`.
    """
    tested = summary.chosen_runs.dropna(subset=["test"])
    tasks_of = summary.cells.groupby("model")["task"].unique()
    parts = []
    for model, runs in tested.groupby("model", sort=False):
        values = _values(runs).reindex(columns=tasks_of[model]).dropna()
        if min(values.shape) > 1:
            part = _rated(values, summary.metric.sign, rng)
            part.insert(0, "model", model)
            parts.append(part)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _values(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the test values of each variant (row) and task (column), an array an entry."""
    by_cell = runs.groupby(["variant", "task"])["test"]
    values = by_cell.apply(np.array).unstack()
    return values.reindex(runs["variant"].unique())


def _rated(values: pd.DataFrame, sign: int, rng: np.random.Generator) -> pd.DataFrame:
    """Rate the variants of a model; arguments as of the result of `_values`."""
    # Imported late: that takes longer than to write a small report.
    from scipy.stats import rankdata, trim_mean

    num_variants, num_tasks = values.shape
    means = []
    middles = []
    for tasks in values.to_numpy():
        drawn = [_with_draws(seeds, rng) for seeds in tasks]
        means.append([seeds.mean(-1) for seeds in drawn])
        runs = np.concatenate(drawn, -1)
        middles.append(trim_mean(runs, QUARTER, axis=-1))
    ranks = rankdata(-sign * np.array(means), axis=0)  # variants x tasks x (1 + draws)
    rated = pd.DataFrame(
        {
            "variant": values.index,
            "num_tasks": [num_tasks] * num_variants,
        }
    )
    rated[["mean_rank", "rank_low", "rank_high"]] = _with_ends(ranks.mean(1))
    rated[["iqm", "iqm_low", "iqm_high"]] = _with_ends(np.array(middles))
    return rated


def _with_draws(seeds: Floats, rng: np.random.Generator) -> Floats:
    """Return the values of seeds, and below them resamples: (1 + draws) x seeds."""
    draws = rng.choice(seeds, (NUM_DRAWS, len(seeds)))
    return np.vstack([seeds, draws])


def _with_ends(ratings: Floats) -> Floats:
    """Return the measured rating and the ends of its interval, variants x 3, of variants x (1 + draws)."""
    drawn = ratings[:, 1:]
    ends = np.quantile(drawn, [1 - UPPER, UPPER], axis=1)
    return np.column_stack([ratings[:, 0], *ends])
