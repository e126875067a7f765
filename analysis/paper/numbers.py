"""The numbers of the papers' tables: of each cell's runs at its chosen learning rate, choosing nothing."""

from __future__ import annotations

import math

import pandas as pd

from lr_sweep.analysis.statistics.selection.best import CELL, comparable
from lr_sweep.analysis.statistics.selection.summary import StudySummary, points_within_budget

REFERENCE = "frozen-pretrained"
"""The variant that the others have to match."""
NEAR = 0.01
"""A run has converged where its validation accuracy is this close to the best of its curve, as a fraction."""


def steps_to_match(summary: StudySummary, curves: pd.DataFrame) -> pd.DataFrame:
    """Count the gradient steps until a cell is as good as the frozen pretrained one (Rothermel et al. 2021, Table 2).

    The paper compares with "the reported best mean test accuracy of the Frozen Pretrained variant", its entry of
    Table 1, and does not say how the other side is read. Here it is what Table 1 would have reported had the budget
    ended there: the mean over seeds of the test accuracy of each run's best model by validation so far, at the cell's
    chosen learning rate. So a validation curve that no longer rises ends the search, no lucky test evaluation counts,
    and the frozen pretrained cell matches itself by its latest best step.

    Returns:
        One row a cell that has a value: the cell's columns, `target` (fraction; NaN: the reference has no value) and
        `steps` (gradient steps; NaN: never within the budget, or no target).
    """
    reference = summary.cells[summary.cells["variant"] == REFERENCE].set_index(["task", "model"])["test_mean"]
    rows = []
    for cell, points in _reported_so_far(summary, curves).groupby(CELL, sort=False):
        by_run = points.pivot(index="step", columns="run_id", values="test_accuracy").ffill()
        means = by_run.mean(axis=1, skipna=False).map(comparable)
        target = reference.get(cell[:2], math.nan)
        reached = means.index[means >= comparable(target)]
        steps = float(reached[0]) if len(reached) else math.nan
        rows.append({**dict(zip(CELL, cell, strict=True)), "target": target, "steps": steps})
    return pd.DataFrame(rows, columns=[*CELL, "target", "steps"])


def accuracies_at_budget(summary: StudySummary, curves: pd.DataFrame) -> pd.DataFrame:
    """Average train and test accuracy over seeds at the last step (Rothermel et al. 2021, Table 3).

    Diverged runs have no model there and are left out.

    Returns:
        One row a cell of which a seed reached the budget: the cell's columns, `train`, `test` and `difference`
        (fractions, `difference` is train less test) and `num_at_budget` (seeds).
    """
    counted = _counted(summary)
    complete = counted[counted["status"] == "complete"].rename(columns={"num_steps": "step"})
    last = complete[["run_id", "step", *CELL]].merge(curves, on=["run_id", "step"])
    found = last.groupby(CELL, sort=False).agg(
        train=("train_accuracy", "mean"), test=("test_accuracy", _mean_of_all), num_at_budget=("run_id", "size")
    )
    return found.assign(difference=found["train"] - found["test"]).reset_index()


def steps_to_converge(summary: StudySummary, curves: pd.DataFrame) -> pd.Series:
    """Average over seeds the steps until each run is within `NEAR` of its best (Lu et al. 2021, table 6).

    The paper does not say how it read theirs. Diverged runs count with what they had before.

    Returns:
        Steps by task, model and variant; cells without a value are left out.
    """
    known = curves.dropna(subset=["validation_accuracy"])
    points = points_within_budget(_counted(summary), known, ["validation_accuracy"])
    best = points.groupby("run_id")["validation_accuracy"].transform("max")
    # 1e-9: 0.71 - 0.01 is not 0.70 in floating point.
    near = points[points["validation_accuracy"] >= best - NEAR - 1e-9]
    return near.groupby([*CELL, "run_id"])["step"].min().groupby(CELL).mean()


def train_accuracies(summary: StudySummary, curves: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds the train accuracy of each run's best model by validation, and what it is above test.

    Returns:
        Indexed by task, model and variant: `train`, `train_sem`, `gap`, `gap_sem`: fractions, `gap` train less test.
    """
    train = curves[["run_id", "step", "train_accuracy"]].rename(columns={"step": "best_step"})
    found = _counted(summary).merge(train.astype({"best_step": "Int64"}), on=["run_id", "best_step"])
    found["gap"] = found["train_accuracy"] - found["test_accuracy"]
    return found.groupby(CELL).agg(
        train=("train_accuracy", "mean"),
        train_sem=("train_accuracy", "sem"),
        gap=("gap", "mean"),
        gap_sem=("gap", "sem"),
    )


def _counted(summary: StudySummary) -> pd.DataFrame:
    """Return the runs at the chosen learning rates that have a value."""
    return summary.chosen_runs.dropna(subset=["best_step"])


def _mean_of_all(values: pd.Series[float]) -> float:
    """NaN where a run was not evaluated on test at its last step (`test_evaluated: best`)."""
    return float(values.mean(skipna=False))


def _reported_so_far(summary: StudySummary, curves: pd.DataFrame) -> pd.DataFrame:
    """Return at each evaluation the test accuracy of the run's best model by validation up to there."""
    known = curves.dropna(subset=["validation_accuracy"])
    points = points_within_budget(_counted(summary), known, ["validation_accuracy", "test_accuracy"])
    before = points.groupby("run_id")["validation_accuracy"].cummax().groupby(points["run_id"]).shift()
    improved = before.isna() | points["validation_accuracy"].gt(before)  # ties: the earliest, as in selection
    reported = points["test_accuracy"].where(improved).groupby(points["run_id"]).ffill()
    return points.assign(test_accuracy=reported)
