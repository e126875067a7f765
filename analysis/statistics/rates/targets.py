"""Steps and device time to a target, after AlgoPerf (Dahl et al. 2023): how soon each variant is good enough."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.selection.best import CELL, each_cell, places_of
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary, points_within_budget

LEAST_POINTS = 2
"""Evaluations of a run; with one there is nothing to see of when it got there."""


def steps_to_target(summary: StudySummary, curves: pd.DataFrame, device_s: pd.Series[float]) -> pd.DataFrame:
    """Return when each variant's runs at its chosen rate first reach the summary's target.

    By default that is the worst variant's best mean, of each task and model.

    Args:
        summary: of runs with validation data.
        curves: `run_id`, `step` and `validation_accuracy`.
        device_s: device seconds a step, by run id; none: not known.

    Returns:
        One row a cell with a value, where curves have more than one evaluation: the cell's columns, `learning_rate`,
        `target`, `num_runs`, `num_reached`, `steps` and `device_s` (medians over runs; a run that never gets there
        counts as infinite), and `num_steps`, the budget.
    """
    sign, chosen = summary.metric.sign, summary.chosen_runs
    points = points_within_budget(chosen, curves, ["validation_accuracy"])
    if points.empty or points.groupby("run_id").size().max() < LEAST_POINTS:
        return pd.DataFrame()
    worst = summary.cells.groupby(GROUP)["validation_mean"].agg("min" if sign > 0 else "max")
    rows = []
    for cell, runs in each_cell(chosen):
        goal = float(worst[cell[:2]]) if summary.target is None else summary.target
        short = sign * (goal - points["validation_accuracy"])
        rounding = 0.5 * 10.0 ** -float(places_of(np.array(abs(goal))))
        first = points[short <= rounding].groupby("run_id")["step"].min()
        steps = first.reindex(runs["run_id"]).to_numpy(float, na_value=math.inf)
        seconds = steps * device_s.reindex(runs["run_id"]).to_numpy(float)
        found: dict[str, Any] = {"learning_rate": runs["learning_rate"].iloc[0], "target": goal}
        found |= {"num_steps": runs["num_steps"].max(), "num_runs": len(steps)}
        found |= {"num_reached": int(np.isfinite(steps).sum())}
        found |= {"steps": float(np.median(steps)), "device_s": float(np.median(seconds))}
        rows.append(dict(zip(CELL, cell, strict=True)) | found)
    return pd.DataFrame(rows)
