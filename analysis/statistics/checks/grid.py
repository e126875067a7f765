"""Checks of a cell's learning rates: does the sweep show its peak, does the grid resolve it, do seeds lack?

Rates count with their values: a rate where every run diverged bounds the sweep, and shows nothing of the peak.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import stdtrit

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
from lr_sweep.analysis.statistics.rates.refinement import MEASURED, Curve, fitted_gain
from lr_sweep.analysis.statistics.selection.best import CELL, comparable, inner_rate
from lr_sweep.common.text import counted, rate_text

MIN_RATES = 3
"""With fewer learning rates a peak cannot be seen to lie inside."""
LEAST_GAIN = 0.01
"""A finer grid is asked for if it would bring more than this: the lower limit of what it would bring."""
GAIN_CONFIDENCE = 0.99
"""The one-sided confidence of that limit."""
WIDE_STEP = 4.0
"""Ratio of neighbouring rates; half-decade grids step by 3 to 3.4."""
RISING_SEMS = 2
"""A best rate at the grid's edge makes a verdict conditional if its mean is above its neighbour's by more standard
errors than this. In simulations 20% of the verdicts over such a variant were wrong; over others at an edge, 0.8%."""
UNSTABLE_LEAD = 0.005
UNSTABLE_SEMS = 2
"""The choice avoids a rate where a seed diverged. That is a problem if the other seeds lead by more than both."""
TRAIN_SEEDS = "give each learning rate all seeds: train them, or add their rows"


def grid_findings(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report where a cell's learning rates do not show its peak, or the choice avoids a better rate."""
    rates, search = cell.rates, cell.study.search
    # A rate whose runs are missing or failed may yet get a value; the check "missing" reports it.
    may_get_one = ("missing", "short", "failed", "stopped")
    shown = [
        row for row in rates if row["num_values"] or any(row[status] for status in may_get_one)
    ]
    if not any(row["num_values"] for row in rates) and len(rates) >= MIN_RATES:
        return
    if len(rates) < MIN_RATES or len(shown) < MIN_RATES:
        yield _untuned(cell, [row["learning_rate"] for row in rates], shown)
    elif math.isnan(cell.row["learning_rate"]):  # nothing selects
        return
    elif cell.row["at_edge"]:
        yield _edge(cell)
    elif not is_flat(rates) and (
        search is None or not search.space
    ):  # options of their own: neighbours show no peak
        best = _inner_best(cell)
        yield from _cliff(cell, best)
        if cell.study.winners is None:  # rates beside winners have one seed, and no standard error
            yield from _narrow(cell, best)
    yield from _unstable(cell)


def is_flat(rates: Sequence[Row]) -> bool:
    """Return whether a cell's learning rates all have one mean, so that none is better than another."""
    known = [row for row in rates if row["num_values"]]
    means = {comparable(row["validation_mean"]) for row in known if row["eligible"]}
    return len(known) >= MIN_RATES and len(means) == 1 and all(row["eligible"] for row in known)


def joint_sem(one: float, other: float) -> float:
    """Return the standard error of a difference; a mean over one seed, which has none, counts as exact."""
    return math.hypot(*(0.0 if math.isnan(sem) else sem for sem in (one, other)))


def _inner_best(cell: SweptCell) -> float:
    """Return the best rate, of equally good ones one inside the sweep: beside it the grid shows whether it falls."""
    best = cell.row["validation_mean"]
    equal = [
        row for row in cell.rates if row["eligible"] and comparable(row["validation_mean"]) == best
    ]
    equal_rates = {row["learning_rate"] for row in equal} | {cell.row["learning_rate"]}
    return inner_rate(equal_rates, [row["learning_rate"] for row in cell.rates])


def _untuned(cell: SweptCell, tried: list[float], shown: list[Row]) -> CheckFinding:
    rates, number = set(around(tried[0])), sum(row["num_values"] > 0 for row in shown)
    message = f"only one learning rate, {rate_text(tried[0])}, was tried: nothing is tuned"
    if 1 < len(tried) < MIN_RATES:
        message = f"only {len(tried)} learning rates were tried: no peak can be seen to lie inside"
        rates = {*beyond(tried, "low"), *beyond(tried, "high")}
    elif len(tried) >= MIN_RATES:
        verb, values = "has" if number == 1 else "have", [row["learning_rate"] for row in shown]
        message = f"only {number} of {len(tried)} learning rates {verb} a value: no peak can be seen to lie inside"
        rates = {rate for value in values for rate in between(tried, value)}
        rates |= set(beyond(tried, "low")) if values[0] == tried[0] else set()
    is_swept = (
        cell.study.learning_rates.groupby(CELL).size().max() > 1
    )  # else the verdict is of one rate, and says so
    condition = f"as far as tried: {cell.row['variant']} has values at {counted(number, 'learning rate')} only"
    return cell.finding(
        "untuned", "problem", message, rates=rates, condition=condition if is_swept else ""
    )


def _edge(cell: SweptCell) -> CheckFinding:
    """Report a best rate beyond which none was tried; the range of a search ends there, or has room for more rates."""
    best, end, search = cell.row["learning_rate"], cell.row["at_edge"], cell.study.search
    extreme = "smallest" if end == "low" else "largest"
    message = f"the best learning rate, {rate_text(best)}, is the {extreme} tried"
    reach = f"{cell.row['variant']} still improves at {rate_text(best)}, the {extreme} rate tried"
    condition = (
        f"as far as the grid reaches: {reach}" if still_rises(cell.rates, end, cell.metric) else ""
    )
    if search is None:
        rates = beyond([row["learning_rate"] for row in cell.rates], end)
        return cell.finding("edge", "problem", message, rates=rates, condition=condition)
    bound, outside = (
        (search.low, search.low / 10) if end == "low" else (search.high, search.high * 10)
    )
    if abs(math.log(bound / best)) > math.log(WIDE_STEP):
        fix = f"raise `rates`, now {search.rates}: the range has room"
    else:
        fix = (
            f"set `{end}: {rate_text(three_digits(outside))}` and raise `rates`, now {search.rates}"
        )
    message += f"; the search's range ends at {rate_text(bound)}"
    return cell.finding("edge", "problem", message, fix, condition=condition)


def still_rises(rates: Sequence[Row], end: str, metric: Metric) -> bool:
    """Return whether the best rate, at one end of those tried, is clearly better than the one beside it."""
    top, beside = (rates[0], rates[1]) if end == "low" else (rates[-1], rates[-2])
    rise = metric.sign * (top["validation_mean"] - beside["validation_mean"])
    return not rise <= RISING_SEMS * joint_sem(top["validation_sem"], beside["validation_sem"])


def _cliff(cell: SweptCell, best: float) -> Iterator[CheckFinding]:
    """Report a side of the best rate on which no rate has a value: an edge that was not drawn as one."""
    rates, metric = cell.rates, cell.metric
    at = [row["learning_rate"] for row in rates].index(best)
    for beside, behind, side in (
        (rates[at + 1 :], rates[at - 1], "above"),
        (rates[:at][::-1], rates[at + 1], "below"),
    ):
        if any(row["num_values"] or not row["diverged"] for row in beside):
            continue
        lost = beside[0]["learning_rate"]
        step = abs(math.log(lost / best))
        rise, noise = _rise(rates[at], behind, metric)
        # Halfway to where it diverges, were the rise to continue.
        ahead = step / 2 / abs(math.log(best / behind["learning_rate"]))
        where = (
            "there" if len(beside) == 1 else f"at it and at the {len(beside) - 1} further {side}"
        )
        message = (
            f"no rate {side} the best one, {rate_text(best)}, has a value: the next is {rate_text(lost)}, "
            f"and every run {where} diverged"
        )
        rises = ahead * (rise - noise) > LEAST_GAIN * cell.unit
        if rises and step <= math.log(WIDE_STEP):
            message += f"; {metric.chosen_on} {metric.improves} by {metric.amount_text(rise)} over the step before"
        if rises or step > math.log(WIDE_STEP):
            yield cell.finding("cliff", "problem", message, rates=(geometric_mean(best, lost),))
        else:
            yield cell.finding("cliff", "note", message)


def _rise(top: Row, behind: Row, metric: Metric) -> tuple[float, float]:
    """Return by how much a rate is better than a neighbour, and the noise of that; without a value nothing is known."""
    if not behind["num_values"]:
        return 0.0, 0.0
    rise = metric.sign * (top["validation_mean"] - behind["validation_mean"])
    dof = max(1, top["num_values"] + behind["num_values"] - 2)
    return rise, float(stdtrit(dof, GAIN_CONFIDENCE)) * joint_sem(
        top["validation_sem"], behind["validation_sem"]
    )


def _narrow(cell: SweptCell, best: float) -> Iterator[CheckFinding]:
    metric, mean = cell.metric, cell.row["validation_mean"]
    known = [row for row in cell.rates if row["num_values"]]
    at = [row["learning_rate"] for row in known].index(best)
    if not 0 < at < len(known) - 1:
        return
    curve = Curve.of(metric.sign, *(np.array([row[name] for row in known]) for name in MEASURED))
    if is_lopsided(curve):  # a parabola is none of it
        return
    gain = fitted_gain(curve, at)
    room = metric.sign * (metric.perfect - mean)
    size, least = (min(room, limit) for limit in (gain.size, gain.lower(GAIN_CONFIDENCE)))
    if least <= LEAST_GAIN * cell.unit:
        return
    message = (
        f"the grid is coarse at {rate_text(best)}: by a parabola through its neighbours a rate near "
        f"{rate_text(three_digits(10**gain.at))} is better by {metric.amount_text(size)} "
        f"(at least {metric.amount_text(least)})"
    )
    nearest = min((abs(other - mean) for other in cell.others), default=0.0)
    level: Level = "note"
    if not gain.fit_seen:
        message += "; three rates do not show whether a parabola fits"
    elif nearest > gain.upper(GAIN_CONFIDENCE):
        message += (
            f"; the nearest variant is {metric.amount_text(nearest)} away, so the order stays"
        )
    else:
        level = "problem"
    condition = (
        f"as far as the grid resolves: {cell.row['variant']} may be better beside {rate_text(best)}"
    )
    rates = between([row["learning_rate"] for row in cell.rates], best)
    yield cell.finding(
        "narrow", level, message, rates=rates, condition=condition if level == "problem" else ""
    )


def _chosen(cell: SweptCell) -> Row | None:
    return next(
        (row for row in cell.rates if row["learning_rate"] == cell.row["learning_rate"]), None
    )


def _best_of(rates: Sequence[Row], metric: Metric) -> Row | None:
    return max(
        rates, key=lambda row: metric.sign * comparable(row["validation_mean"]), default=None
    )


def _unstable(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report the best rate that was not chosen because a seed diverged at it."""
    metric, chosen = cell.metric, _chosen(cell)
    lost = [
        row for row in cell.rates if 0 < row["num_values"] < row["num_wanted"] and row["diverged"]
    ]
    best = _best_of(lost, metric)
    if chosen is None or best is None:
        return
    lead = metric.sign * (best["validation_mean"] - chosen["validation_mean"])
    if best["num_values"] >= chosen["num_values"] or lead <= 0:
        return
    noise = UNSTABLE_SEMS * joint_sem(best["validation_sem"], chosen["validation_sem"])
    message = (
        f"{best['num_seeds'] - best['num_values']} of {best['num_seeds']} seeds have no value at "
        f"{rate_text(best['learning_rate'])}, where the others are better than at the chosen "
        f"{rate_text(chosen['learning_rate'])} by {metric.amount_text(lead)}: the choice avoids it"
    )
    if lead > max(UNSTABLE_LEAD * cell.unit, noise):
        middle = geometric_mean(best["learning_rate"], chosen["learning_rate"])
        yield cell.finding("unstable", "problem", message, rates=(middle,))
    else:
        yield cell.finding("unstable", "note", message)


def not_eligible(rates: Sequence[Row], winners: int | None) -> list[Row]:
    """Return the learning rates of a cell that have values and could not be chosen, as seeds are without one.

    Of a study with winners those that have the first seed alone are left out: the winners were chosen by it.
    """
    lost = [row for row in rates if row["num_values"] and not row["eligible"]]
    return [row for row in lost if winners is None or row["num_values"] < row["num_wanted"]]


def fewer_seeds(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report seeds without a value, unless other checks do.

    These are `unstable` of a better rate where a seed diverged, and `missing` and `diverged` of runs; of the latter
    a rate is reported that is better than the chosen one.
    """
    metric, chosen = cell.metric, _chosen(cell)
    if chosen is None:
        return
    yield from _at_chosen(cell, chosen)
    lost = not_eligible(cell.rates, cell.study.winners)
    best = _best_of(lost, metric)
    lead = metric.sign * (best["validation_mean"] - cell.row["validation_mean"]) if best else 0.0
    unstable = best is not None and best["diverged"] and best["num_values"] < best["num_wanted"]
    better = best if lead > 0 and not unstable else None
    named = [row for row in lost if row["num_lacking"] or row is better]
    if not named:
        return
    listed = [
        f"{row['num_values']} of {row['num_seeds']} at {rate_text(row['learning_rate'])}"
        for row in named
    ]
    they = "it" if len(named) == 1 else "they"
    message = f"seeds with a value: {', '.join(listed)}, so {they} cannot be chosen"
    if better is not None:
        message += (
            f"; at {rate_text(better['learning_rate'])} {metric.chosen_on} is better than at the chosen "
            f"{rate_text(chosen['learning_rate'])} by {metric.amount_text(lead)}"
        )
    yield cell.finding("fewer-seeds", "note" if better is None else "problem", message, TRAIN_SEEDS)


def _at_chosen(cell: SweptCell, chosen: Row) -> Iterator[CheckFinding]:
    """Report seeds that the cell's own number lacks."""
    metric, row, at = cell.metric, cell.row, f"at the chosen {rate_text(chosen['learning_rate'])}"
    if row["num_tests"] < row["num_values"]:
        message = (
            f"{metric.test} {at} has a value for {row['num_tests']} of {row['num_seeds']} seeds"
        )
        yield cell.finding("fewer-seeds", "problem", message, "measure it for every seed")
    if chosen["num_lacking"]:
        message = f"{metric.validation} {at} has a value for {row['num_values']} of {row['num_seeds']} seeds"
        yield cell.finding("fewer-seeds", "problem", message, TRAIN_SEEDS)
