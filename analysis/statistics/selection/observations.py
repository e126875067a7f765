"""What a search has observed: the validation value of each learning rate, by the rules of the selection."""

from __future__ import annotations

from typing import Literal, NamedTuple

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.selection.best import Cell, each_cell
from lr_sweep.analysis.statistics.selection.summary import account, per_run


class Observation(NamedTuple):
    """What is known of a learning rate of a cell once its runs have ended."""

    learning_rate: float
    outcome: Literal["measured", "diverged", "stopped", "lost"]
    """`measured`: every seed has a value; `diverged`: a seed diverged without one; `stopped`: a rule stopped it, behind
    others; `lost`: a seed failed or the user stopped it, which says nothing about the rate."""
    value: float | None
    """Mean over seeds of the runs' validation values; None unless measured."""


def observations(
    wanted: pd.DataFrame, runs: pd.DataFrame, curves: pd.DataFrame, metric: Metric
) -> dict[Cell, list[Observation]]:
    """Return what is known of the rates of each cell, whose runs have all ended.

    Args:
        wanted: columns of `WANTED`, and `stopped_at_step` as of `account`.
        runs: columns of `RUNS` that `account` reads.
        curves: `run_id`, `step` and `validation_accuracy`; no test columns.
        metric: of the study.
    """
    selected = per_run(account(wanted, runs), curves, metric)
    found: dict[Cell, list[Observation]] = {}
    for cell, of_cell in each_cell(selected):
        by_rate = of_cell.groupby("learning_rate", sort=False)
        found[cell] = [_observation(float(str(rate)), rows) for rate, rows in by_rate]
    return found


def _observation(rate: float, rows: pd.DataFrame) -> Observation:
    without = rows[rows["validation_accuracy"].isna()]
    if without.empty:
        return Observation(rate, "measured", float(rows["validation_accuracy"].mean()))
    outcomes: tuple[Literal["diverged", "stopped"], ...] = ("diverged", "stopped")
    return Observation(rate, next((each for each in outcomes if without["status"].eq(each).any()), "lost"), None)
