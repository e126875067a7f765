"""What a search has observed at each learning rate, and the refinement of a grid by that.

Refinement proposes, in rounds, the learning rates that the checks `edge`, `cliff` and `narrow` ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.rates.further_rates import beyond, geometric_mean, neighbours
from lr_sweep.analysis.statistics.selection.best import Cell, comparable, each_cell, inner_rate
from lr_sweep.analysis.statistics.selection.summary import account, per_run

ROUND_SIZE = 2
"""Learning rates of a round: both midpoints beside the best, or two steps beyond an end, as the checks list them."""
LARGEST = 10.0
"""Learning rates above it are not proposed, and no study accepts them."""
SMALLEST = 1e-20
EQUAL_STEPS = 1.2
"""Ratio of the logarithmic widths of two intervals up to which they count as equal: 1, 3, 10 step by 3 and 3.3."""


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


def refined_rates(observed: Sequence[Observation], number: int, *, maximise: bool) -> list[float]:
    """Return the next learning rates of a cell, none that was tried; the one to prefer first.

    While the best rate is the smallest or largest tried (and none inside is as good), the grid's last step is taken
    again beyond it. Then the two intervals beside the best are halved on the logarithmic scale, the wider one first; of
    equally wide ones that with the better outer rate, on whose side the peak of a parabola lies. Where no rate has a
    value, smaller rates follow, if some diverged; nothing is proposed if all runs were lost.

    Args:
        observed: all rates tried in the cell, at least two, in any order.
        number: of rates, at most; `ROUND_SIZE` or less.
        maximise: whether higher values are better.
    """
    tried = sorted(each.learning_rate for each in observed)
    sign = 1 if maximise else -1
    values = {each.learning_rate: sign * each.value for each in observed if each.value is not None}
    if not values:
        diverged = any(each.outcome == "diverged" for each in observed)
        return _beyond(tried, "low")[:number] if diverged else []
    rounded = {rate: comparable(value) for rate, value in values.items()}
    best = inner_rate([rate for rate, value in rounded.items() if value == max(rounded.values())], tried)
    end = {tried[0]: "low", tried[-1]: "high"}.get(best)
    found = _beyond(tried, end) if end else []
    return (found or _beside(tried, values, best))[:number]


def _beyond(tried: list[float], end: str) -> list[float]:
    return [rate for rate in beyond(tried, end) if SMALLEST <= rate <= LARGEST]


def _beside(tried: list[float], values: dict[float, float], best: float) -> list[float]:
    others = neighbours(tried, best)
    widths = {other: abs(math.log(other / best)) for other in others}
    are_equal = max(widths.values()) <= EQUAL_STEPS * min(widths.values())
    others.sort(key=lambda other: -values.get(other, -math.inf) if are_equal else -widths[other])
    middles = [geometric_mean(best, other) for other in others]
    return [middle for middle in middles if middle not in tried]
