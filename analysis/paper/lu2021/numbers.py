"""The numbers of Lu et al. 2021's tables: of each cell's runs at its chosen learning rate, choosing nothing."""

from __future__ import annotations

import pandas as pd

from lr_sweep.analysis.statistics.aggregate import StudySummary, points_within_budget
from lr_sweep.analysis.statistics.selection import CELL

NEAR = 0.01
"""A run has converged where its validation accuracy is this close to the best of its curve, as a fraction."""

CONVERGED = (
    "gradient steps until the first evaluation whose validation accuracy is within 1 point of the best of the run's "
    "curve, mean over seeds"
)


def steps_to_converge(summary: StudySummary, curves: pd.DataFrame) -> pd.Series:
    """Average over seeds the steps until each run converged, as `CONVERGED` says.

    Lu et al. 2021 (table 6) do not say how they read theirs. Diverged runs count with what they had before.

    Returns:
        Steps by task, model and variant; cells without a value are left out.
    """
    counted = summary.chosen_runs.dropna(subset=["best_step"])
    known = curves.dropna(subset=["validation_accuracy"])
    points = points_within_budget(counted, known, ["validation_accuracy"])
    best = points.groupby("run_id")["validation_accuracy"].transform("max")
    # 1e-9: 0.71 - 0.01 is not 0.70 in floating point.
    near = points[points["validation_accuracy"] >= best - NEAR - 1e-9]
    first = near.groupby([*CELL, "run_id"])["step"].min()
    return first.groupby(CELL).mean()


def train_accuracies(summary: StudySummary, curves: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds the train accuracy of each run's best model by validation, and what it is above test.

    Returns:
        Indexed by task, model and variant: `train`, `train_sem`, `gap`, `gap_sem`: fractions, `gap` train less test.
    """
    counted = summary.chosen_runs.dropna(subset=["best_step"])
    train = curves[["run_id", "step", "train_accuracy"]].rename(columns={"step": "best_step"})
    found = counted.merge(train.astype({"best_step": "Int64"}), on=["run_id", "best_step"])
    found["gap"] = found["train_accuracy"] - found["test_accuracy"]
    return found.groupby(CELL).agg(
        train=("train_accuracy", "mean"),
        train_sem=("train_accuracy", "sem"),
        gap=("gap", "mean"),
        gap_sem=("gap", "sem"),
    )
