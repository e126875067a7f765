"""Checks of a cell's learning rates: does the sweep show its peak, do seeds lack?

A rate whose every run diverged bounds the sweep, and shows nothing of the peak. A rate whose runs failed or are missing
counts as if the study did not have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.rates.further_rates import (
    around,
    beyond,
    geometric_mean,
    neighbours,
)
from lr_sweep.analysis.statistics.selection.best import CELL, comparable
from lr_sweep.common.text import counted, rate_text

from .finding import CheckFinding, SweptCell

MIN_RATES = 3
"""Fewest learning rates that can show a peak inside."""
RISING_SEMS = 2
"""Standard errors by which a mean is above its neighbour's if the curve still rises. In simulations 20% of the verdicts
over a variant that still rises at the grid's edge were wrong; over others at an edge, 0.8%."""
TRAIN_SEEDS = "give each learning rate all seeds: train them, or add their rows"


def grid_findings(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report where a cell's learning rates do not show its peak."""
    shown = [row for row in cell.tried if row["num_values"] or row["stopped"]]
    if not any(row["num_values"] for row in shown):
        return
    if len(shown) < MIN_RATES:
        yield _untuned(cell)
    elif cell.row["at_edge"]:
        yield _edge(cell)


def is_flat(cell: SweptCell) -> bool:
    """Return whether a cell's learning rates all have one mean, which is not the best value that there is."""
    known = [row for row in cell.rates if row["num_values"]]
    means = {comparable(row["validation_mean"]) for row in known} - {cell.metric.perfect}
    has_one_mean = len(means) == 1 and len(known) >= MIN_RATES
    return has_one_mean and all(row["eligible"] for row in known)


def _rates_of(rows: Sequence[Row]) -> list[float]:
    return [row["learning_rate"] for row in rows]


def _untuned(cell: SweptCell) -> CheckFinding:
    number = sum(row["num_values"] > 0 for row in cell.rates)
    message = (
        f"{number} of {counted(len(cell.rates), 'learning rate')} with values, want at least {MIN_RATES}: "
        "no peak can be seen to lie inside"
    )
    # A study of one rate compares at that rate, and its verdict says so.
    is_swept = cell.study.learning_rates.groupby(CELL).size().max() > 1
    only = f"{cell.row['variant']} has values at {counted(number, 'learning rate')} only"
    condition = f"as far as tried: {only}" if is_swept else ""
    return cell.asking_for("untuned", message, _near_best(cell), condition)


def _near_best(cell: SweptCell) -> set[float]:
    """Return rates that were not tried: halfway to the rates beside the best one, or around a best one at an end."""
    known = [row for row in cell.tried if row["num_values"]]
    best = max(known, key=lambda row: _lead(cell, row))["learning_rate"]
    tried = _rates_of(cell.tried)
    beside = neighbours(tried, best)
    if len(beside) == 2:
        return {geometric_mean(best, rate) for rate in beside}
    return set(around(best)) - set(tried)


def _edge(cell: SweptCell) -> CheckFinding:
    """Report a best rate beyond which none was tried."""
    end = cell.row["at_edge"]
    best = rate_text(cell.row["learning_rate"])
    extreme = "smallest" if end == "low" else "largest"
    message = f"the best learning rate, {best}, is the {extreme} tried"
    condition = ""
    if _still_rises(cell):
        reach = f"{cell.row['variant']} still improves at {best}, the {extreme} rate tried"
        condition = f"as far as the grid reaches: {reach}"
    further = beyond(_rates_of(cell.tried), end)
    return cell.asking_for("edge", message, further, condition)


def _still_rises(cell: SweptCell) -> bool:
    """Return whether the best rate, at one end of those tried, is clearly better than the one beside it."""
    rising = cell.tried if cell.row["at_edge"] == "high" else cell.tried[::-1]
    neighbour, best = rising[-2:]
    rise = cell.metric.sign * (best["validation_mean"] - neighbour["validation_mean"])
    sems = [best["validation_sem"], neighbour["validation_sem"]]
    noise = math.hypot(*np.nan_to_num(sems))  # a mean over one seed counts as exact
    return math.isnan(rise) or bool(rise > RISING_SEMS * noise)


def fewer_seeds(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report the best rate that could not be chosen because seeds have no value, and seeds that the number lacks."""
    if math.isnan(cell.row["learning_rate"]):  # nothing selects
        return
    yield from _lacking(cell)
    lost = [row for row in cell.rates if row["num_values"] and not row["eligible"]]
    if cell.study.winners is not None:  # of other rates only the first seed was wanted
        lost = [row for row in lost if row["num_values"] < row["num_wanted"]]
    better = max(lost, key=lambda row: _lead(cell, row), default=None)
    if better is None or _lead(cell, better) <= 0:
        return
    number = f"{better['num_values']} of {better['num_seeds']} at {_rate(better)}"
    lead = cell.metric.amount_text(_lead(cell, better))
    message = (
        f"seeds with a value: {number}, so it cannot be chosen; {cell.metric.chosen_on} is better there than at the "
        f"chosen {_rate(cell.row)} by {lead}"
    )
    if better["diverged"]:
        yield cell.finding("fewer-seeds", "note", f"{message}; seeds diverged there")
    else:
        yield cell.finding("fewer-seeds", "problem", message, TRAIN_SEEDS)


def _lacking(cell: SweptCell) -> Iterator[CheckFinding]:
    row, metric = cell.row, cell.metric
    at = f"at the chosen {_rate(row)} has a value for"
    if row["num_tests"] < row["num_values"]:
        message = f"{metric.test} {at} {row['num_tests']} of {row['num_seeds']} seeds"
        yield cell.finding(
            "fewer-seeds",
            "problem",
            message,
            "measure it for every seed",
        )
    (chosen,) = [rate for rate in cell.rates if rate["learning_rate"] == row["learning_rate"]]
    if chosen["num_lacking"]:
        message = f"{metric.validation} {at} {row['num_values']} of {row['num_seeds']} seeds"
        yield cell.finding("fewer-seeds", "problem", message, TRAIN_SEEDS)


def _rate(row: Row) -> str:
    return rate_text(row["learning_rate"])


def _lead(cell: SweptCell, row: Row) -> float:
    """Return by how much a rate is better than the chosen one."""
    best = cell.row["validation_mean"]
    return cell.metric.sign * (comparable(row["validation_mean"]) - comparable(best))
