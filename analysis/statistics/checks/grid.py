"""Checks of a cell's learning rates: does the sweep show its peak, does the grid resolve it, do seeds lack?

A rate whose every run diverged bounds the sweep, and shows nothing of the peak. A rate whose runs failed or are missing
counts as if the study did not have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, Level, SweptCell
from lr_sweep.analysis.statistics.rates.further_rates import (
    around,
    between,
    beyond,
    geometric_mean,
    three_digits,
)
from lr_sweep.analysis.statistics.rates.optimum import is_lopsided
from lr_sweep.analysis.statistics.rates.refinement import MEASURED, Curve, Gain, fitted_gain
from lr_sweep.analysis.statistics.selection.best import CELL, comparable, inner_rate
from lr_sweep.common.text import counted, rate_text

MIN_RATES = 3
"""Fewest learning rates that can show a peak inside."""
LEAST_GAIN = 0.01
"""Least gain for which more rates are asked for, in the metric's unit."""
GAIN_CONFIDENCE = 0.99
"""One-sided confidence of the limits of the gain of a finer grid."""
WIDE_STEP = 4.0
"""Largest ratio of neighbouring rates of a usual grid; half-decade grids step by 3 to 3.4."""
RISING_SEMS = 2
"""Standard errors by which a mean is above its neighbour's if the curve still rises. In simulations 20% of the verdicts
over a variant that still rises at the grid's edge were wrong; over others at an edge, 0.8%."""
UNSTABLE_LEAD = 0.005
"""Least lead of a rate where seeds diverged that is a problem, in the metric's unit."""
TRAIN_SEEDS = "give each learning rate all seeds: train them, or add their rows"


def grid_findings(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report where a cell's learning rates do not show its peak."""
    search = cell.study.search
    shown = [row for row in cell.tried if row["num_values"] or row["stopped"]]
    if not any(row["num_values"] for row in shown):
        return
    if len(shown) < MIN_RATES:
        yield _untuned(cell)
    elif cell.row["at_edge"]:
        yield _edge(cell)
    elif math.isnan(cell.row["learning_rate"]) or is_flat(cell.rates):
        return
    elif search is None or not search.space:  # rates with options of their own show no peak
        best = _inner_best(cell)
        yield from _cliff(cell, best)
        if cell.study.winners is None:  # rates beside winners have one seed, and no standard error
            yield from _narrow(cell, best)


def is_flat(rates: Sequence[Row]) -> bool:
    """Return whether a cell's learning rates all have one mean, so that none is better than another."""
    known = [row for row in rates if row["num_values"]]
    means = {comparable(row["validation_mean"]) for row in known}
    return len(known) >= MIN_RATES and len(means) == 1 and all(row["eligible"] for row in known)


def joint_sem(one: float, other: float) -> float:
    """Return the standard error of a difference; a mean over one seed, which has none, counts as exact."""
    return math.hypot(*(0.0 if math.isnan(sem) else sem for sem in (one, other)))


def _rates_of(rows: Sequence[Row]) -> list[float]:
    return [row["learning_rate"] for row in rows]


def _inner_best(cell: SweptCell) -> float:
    """Return the best rate, of equally good ones one inside the sweep: beside it the grid shows whether it falls."""
    best = cell.row["validation_mean"]
    eligible = [row for row in cell.tried if row["eligible"]]
    equal = [row for row in eligible if comparable(row["validation_mean"]) == best]
    return inner_rate(_rates_of(equal), _rates_of(cell.tried))


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
    return cell.asking_for("untuned", "problem", message, _wider(cell.tried), condition)


def _wider(tried: Sequence[Row]) -> set[float]:
    """Return rates beyond the ends that have values, and halfway to rates that diverged."""
    rates = _rates_of(tried)
    if len(rates) == 1:
        return set(around(rates[0]))
    found = set[float]()
    for end, row in (("low", tried[0]), ("high", tried[-1])):
        if row["num_values"]:
            found |= set(beyond(rates, end))
    for one, other in pairwise(tried):
        if (one["num_values"] > 0) != (other["num_values"] > 0):
            found.add(geometric_mean(one["learning_rate"], other["learning_rate"]))
    return found


def _edge(cell: SweptCell) -> CheckFinding:
    """Report a best rate beyond which none was tried."""
    end, search = cell.row["at_edge"], cell.study.search
    best = rate_text(cell.row["learning_rate"])
    extreme = "smallest" if end == "low" else "largest"
    message = f"the best learning rate, {best}, is the {extreme} tried"
    if search is not None:
        bound = search.low if end == "low" else search.high
        message += f"; the search's range ends at {rate_text(bound)}"
    condition = ""
    if _still_rises(cell):
        reach = f"{cell.row['variant']} still improves at {best}, the {extreme} rate tried"
        condition = f"as far as the grid reaches: {reach}"
    further = beyond(_rates_of(cell.tried), end)
    return cell.asking_for("edge", "problem", message, further, condition)


def _still_rises(cell: SweptCell) -> bool:
    """Return whether the best rate, at one end of those tried, is clearly better than the one beside it."""
    rising = cell.tried if cell.row["at_edge"] == "high" else cell.tried[::-1]
    rise = _clear_rise(rising[-1], rising[-2], cell.metric)
    return rise > 0 or math.isnan(rise)


def _clear_rise(top: Row, beside: Row, metric: Metric) -> float:
    """Return by how much more than noise a rate is better than its neighbour; NaN: the neighbour has no value."""
    rise = metric.sign * (top["validation_mean"] - beside["validation_mean"])
    return float(rise - RISING_SEMS * joint_sem(top["validation_sem"], beside["validation_sem"]))


def _cliff(cell: SweptCell, best: float) -> Iterator[CheckFinding]:
    """Report that every run above the best rate diverged: an edge that was not drawn as one."""
    rates = cell.tried
    at = _rates_of(rates).index(best)
    above = rates[at + 1 :]
    if not above or any(row["num_values"] or row["stopped"] for row in above):
        return
    lost = above[0]["learning_rate"]
    message = (
        f"every run above the best rate, {rate_text(best)}, diverged; the next is {rate_text(lost)}"
    )
    rises = _clear_rise(rates[at], rates[at - 1], cell.metric) > 2 * LEAST_GAIN * cell.unit
    if rises:
        message += f"; {cell.metric.chosen_on} {cell.metric.improves} up to the best rate"
    if rises or lost > WIDE_STEP * best:
        yield cell.asking_for("cliff", "problem", message, [geometric_mean(best, lost)])
    else:
        yield cell.finding("cliff", "note", message)


def _narrow(cell: SweptCell, best: float) -> Iterator[CheckFinding]:
    """Report that a rate between those tried may be better than the best one."""
    known = [row for row in cell.rates if row["num_values"]]
    at = _rates_of(known).index(best)
    if not 0 < at < len(known) - 1:
        return
    columns = [np.array([row[name] for row in known]) for name in MEASURED]
    curve = Curve.of(cell.metric.sign, *columns)
    if is_lopsided(curve):  # no parabola fits
        return
    gain = fitted_gain(curve, at)
    room = cell.metric.sign * (cell.metric.perfect - cell.row["validation_mean"])
    least = min(room, gain.lower(GAIN_CONFIDENCE))
    if least <= LEAST_GAIN * cell.unit:
        return
    metric, better = cell.metric, rate_text(three_digits(10**gain.at))
    message = (
        f"the grid is coarse at {rate_text(best)}: by a parabola through its neighbours a rate near {better} "
        f"is better by {metric.amount_text(min(room, gain.size))} (at least {metric.amount_text(least)})"
    )
    level, why = _weight(cell, gain)
    resolved = f"{cell.row['variant']} may be better beside {rate_text(best)}"
    condition = f"as far as the grid resolves: {resolved}" if level == "problem" else ""
    further = between(_rates_of(cell.tried), best)
    yield cell.asking_for("narrow", level, message + why, further, condition)


def _weight(cell: SweptCell, gain: Gain) -> tuple[Level, str]:
    """Return the level of a gain, and why it is only a note."""
    if not gain.fit_seen:
        return "note", "; three rates do not show whether a parabola fits"
    task, model, variant = cell.key
    cells = cell.study.of(task=task, model=model).cells
    others = cells[cells["variant"] != variant]
    nearest = (others["validation_mean"] - cell.row["validation_mean"]).abs().min()
    if nearest > gain.upper(GAIN_CONFIDENCE):
        away = cell.metric.amount_text(nearest)
        return "note", f"; the nearest variant is {away} away, so the order stays"
    return "problem", ""


def fewer_seeds(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report the best rate that could not be chosen because seeds have no value, and seeds that the number lacks."""
    if math.isnan(cell.row["learning_rate"]):  # nothing selects
        return
    yield from _lacking(cell)
    lost = [row for row in cell.rates if row["num_values"] and not row["eligible"]]
    if cell.study.winners is not None:  # of other rates only the first seed was wanted
        lost = [row for row in lost if row["num_values"] < row["num_wanted"]]
    better = max(lost, key=lambda row: _lead(cell, row), default=None)
    if better is None or not _lead(cell, better) > 0:
        return
    if better["diverged"]:
        yield _unstable(cell, better)
        return
    number = f"{better['num_values']} of {better['num_seeds']} at {_rate(better)}"
    lead = cell.metric.amount_text(_lead(cell, better))
    message = (
        f"seeds with a value: {number}, so it cannot be chosen; {cell.metric.chosen_on} is better there than at the "
        f"chosen {_rate(cell.row)} by {lead}"
    )
    yield cell.finding("fewer-seeds", "problem", message, TRAIN_SEEDS)


def _lacking(cell: SweptCell) -> Iterator[CheckFinding]:
    row, metric = cell.row, cell.metric
    at = f"at the chosen {_rate(row)} has a value for"
    if row["num_tests"] < row["num_values"]:
        message = f"{metric.test} {at} {row['num_tests']} of {row['num_seeds']} seeds"
        yield cell.finding("fewer-seeds", "problem", message, "measure it for every seed")
    chosen = [rate for rate in cell.rates if rate["learning_rate"] == row["learning_rate"]]
    if any(rate["num_lacking"] for rate in chosen):
        message = f"{metric.validation} {at} {row['num_values']} of {row['num_seeds']} seeds"
        yield cell.finding("fewer-seeds", "problem", message, TRAIN_SEEDS)


def _rate(row: Row) -> str:
    return rate_text(row["learning_rate"])


def _lead(cell: SweptCell, row: Row) -> float:
    """Return by how much a rate is better than the chosen one."""
    best = cell.row["validation_mean"]
    return cell.metric.sign * (comparable(row["validation_mean"]) - comparable(best))


def _unstable(cell: SweptCell, better: Row) -> CheckFinding:
    """Report the best rate that was not chosen because a seed diverged at it."""
    lead, num_lost = _lead(cell, better), better["num_seeds"] - better["num_values"]
    message = (
        f"{num_lost} of {better['num_seeds']} seeds have no value at {_rate(better)}, where the others are better "
        f"than at the chosen {_rate(cell.row)} by {cell.metric.amount_text(lead)}: the choice avoids it"
    )
    is_clear = _clear_rise(better, cell.row, cell.metric) > 0
    if not is_clear or lead <= UNSTABLE_LEAD * cell.unit:
        return cell.finding("unstable", "note", message)
    middle = geometric_mean(better["learning_rate"], cell.row["learning_rate"])
    return cell.asking_for("unstable", "problem", message, [middle])
