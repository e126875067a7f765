"""Checks of a cell's learning rates: does the sweep show its peak, and does the grid resolve it?

Rates count with their values: a rate where every run diverged bounds the sweep, and shows nothing of the peak.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import stdtrit

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.read import SearchRange
from lr_sweep.analysis.statistics.finding import CheckFinding, Level, Row, finding_of
from lr_sweep.analysis.statistics.further_rates import around, between, beyond, three_digits
from lr_sweep.analysis.statistics.peak import fitted_gain
from lr_sweep.analysis.statistics.selection import comparable, inner_rate
from lr_sweep.common.text import rate_text

MIN_RATES = 3
"""With fewer learning rates a peak cannot be seen to lie inside."""
LEAST_GAIN = 0.01
"""A finer grid is asked for if it would bring more than this: the lower limit of what it would bring."""
CONFIDENCE = 0.99
"""Of that limit, one-sided."""
WIDE_STEP = 4.0
"""Between neighbouring rates; half-decade grids step by 3 to 3.4."""
UNSTABLE_LEAD = 0.005
UNSTABLE_SEMS = 2
"""The choice avoids a rate where a seed diverged. That is a problem if the other seeds lead by more than both."""


def grid_findings(
    cell: Row,
    rates: Sequence[Row],
    others: Sequence[float],
    metric: Metric,
    search: SearchRange | None = None,
    winners: int | None = None,
) -> Iterator[CheckFinding]:
    """Check a cell's learning rates.

    Args:
        cell: of `StudySummary.cells`.
        rates: its rows of `StudySummary.learning_rates`, rising.
        others: validation means of the other variants of its task and model, each at its chosen rate.
        metric: of the study.
        search: the range of a search; None: the rates are a grid or a list.
        winners: how many rates have all seeds; None: all.
    """
    # A rate whose runs are missing or failed may yet get a value; the check "missing" reports it.
    shown = [row for row in rates if row["num_values"] or row["missing"] + row["failed"] + row["stopped"]]
    if not any(row["num_values"] for row in rates) and len(rates) >= MIN_RATES:
        return
    if len(rates) < MIN_RATES or len(shown) < MIN_RATES:
        yield _untuned(cell, rates, shown)
    elif math.isnan(cell["learning_rate"]):  # nothing selects
        return
    elif cell["at_edge"]:
        yield _edge(cell, rates) if search is None else _searched_edge(cell, rates, search)
    elif not is_flat(rates) and (search is None or not search.space):  # options of their own: neighbours show no peak
        best = cell | {"learning_rate": _inner_best(cell, rates)}
        yield from _cliff(best, rates, metric)
        if winners is None:  # rates beside winners have one seed, and no standard error
            yield from _narrow(best, rates, others, metric)
    yield from _unstable(cell, rates, metric)


def is_flat(rates: Sequence[Row]) -> bool:
    """Return whether a cell's learning rates all have one mean, so that none is better than another."""
    known = [row for row in rates if row["num_values"]]
    means = {comparable(row["validation_mean"]) for row in known if row["eligible"]}
    return len(known) >= MIN_RATES and len(means) == 1 and all(row["eligible"] for row in known)


def _inner_best(cell: Row, rates: Sequence[Row]) -> float:
    """Return the best rate, of equally good ones one inside the sweep: beside it the grid shows whether it falls."""
    known = [row for row in rates if row["eligible"]]
    best = {row["learning_rate"] for row in known if comparable(row["validation_mean"]) == cell["validation_mean"]}
    return inner_rate(best | {cell["learning_rate"]}, [row["learning_rate"] for row in rates])


def unit(cell: Row, metric: Metric) -> float:
    """Return what thresholds are multiplied with: 1, or the size of the cell's mean where that may be any number."""
    return 1.0 if metric.is_fraction else abs(cell["validation_mean"])


def joint_sem(one: float, other: float) -> float:
    """Return the standard error of a difference; a mean over one seed, which has none, counts as exact."""
    return math.hypot(*(0.0 if math.isnan(sem) else sem for sem in (one, other)))


def _untuned(cell: Row, rates: Sequence[Row], shown: Sequence[Row]) -> CheckFinding:
    tried, values = ([row["learning_rate"] for row in rows] for rows in (rates, shown))
    if len(tried) == 1:
        message = f"only one learning rate, {rate_text(tried[0])}, was tried: nothing is tuned"
        return finding_of(cell, "untuned", "problem", message, rates=around(tried[0]))
    if len(tried) < MIN_RATES:
        message = f"only {len(tried)} learning rates were tried: no peak can be seen to lie inside"
        return finding_of(cell, "untuned", "problem", message, rates=beyond(tried, "low") + beyond(tried, "high"))
    verb = "has" if len(values) == 1 else "have"
    message = f"only {len(values)} of {len(tried)} learning rates {verb} a value: no peak can be seen to lie inside"
    further = {rate for value in values for rate in between(tried, value)}
    further |= set(beyond(tried, "low")) if values[0] == tried[0] else set()
    return finding_of(cell, "untuned", "problem", message, rates=tuple(sorted(further)))


def _edge(cell: Row, rates: Sequence[Row]) -> CheckFinding:
    which = "smallest" if cell["at_edge"] == "low" else "largest"
    message = f"the best learning rate, {rate_text(cell['learning_rate'])}, is the {which} tried"
    further = beyond([row["learning_rate"] for row in rates], cell["at_edge"])
    return finding_of(cell, "edge", "problem", message, rates=further)


def _searched_edge(cell: Row, rates: Sequence[Row], search: SearchRange) -> CheckFinding:
    """Report a best rate beyond which the search tried none: the range ends there, or it has room for more rates."""
    low = cell["at_edge"] == "low"
    bound, best = (search.low if low else search.high), cell["learning_rate"]
    message = (
        f"the best learning rate, {rate_text(best)}, is the {'smallest' if low else 'largest'} tried; the search's "
        f"range ends at {rate_text(bound)}"
    )
    if abs(math.log(bound / best)) > math.log(WIDE_STEP):
        return finding_of(cell, "edge", "problem", message, f"raise `rates`, now {search.rates}: the range has room")
    further = three_digits(search.low / 10 if low else search.high * 10)
    fix = f"set `{'low' if low else 'high'}: {rate_text(further)}` and raise `rates`, now {search.rates}"
    return finding_of(cell, "edge", "problem", message, fix)


def _cliff(cell: Row, rates: Sequence[Row], metric: Metric) -> Iterator[CheckFinding]:
    """Report a side of the best rate on which no rate has a value: an edge that was not drawn as one."""
    at = [row["learning_rate"] for row in rates].index(cell["learning_rate"])
    for beside, behind in ((rates[at + 1 :], rates[at - 1]), (rates[:at][::-1], rates[at + 1])):
        if any(row["num_values"] or not row["diverged"] for row in beside):
            continue
        top, lost = rates[at], beside[0]
        step = abs(math.log(lost["learning_rate"] / top["learning_rate"]))
        rise, noise = _rise(top, behind, metric)
        # Halfway to where it diverges, were the rise to continue.
        ahead = step / 2 / abs(math.log(top["learning_rate"] / behind["learning_rate"]))
        side = "above" if lost["learning_rate"] > top["learning_rate"] else "below"
        where = "there" if len(beside) == 1 else f"at it and at the {len(beside) - 1} further {side}"
        message = (
            f"no rate {side} the best one, {rate_text(top['learning_rate'])}, has a value: the next is "
            f"{rate_text(lost['learning_rate'])}, and every run {where} diverged"
        )
        if step > math.log(WIDE_STEP) or ahead * (rise - noise) > LEAST_GAIN * unit(cell, metric):
            if step <= math.log(WIDE_STEP):
                message += f"; {metric.chosen_on} {metric.improves} by {metric.amount_text(rise)} over the step before"
            middle = three_digits(math.sqrt(top["learning_rate"] * lost["learning_rate"]))
            yield finding_of(cell, "cliff", "problem", message, rates=(middle,))
        else:
            yield finding_of(cell, "cliff", "note", message)


def _rise(top: Row, behind: Row, metric: Metric) -> tuple[float, float]:
    """Return by how much a rate is better than a neighbour, and the noise of that; without a value nothing is known."""
    if not behind["num_values"]:
        return 0.0, 0.0
    rise = metric.sign * (top["validation_mean"] - behind["validation_mean"])
    dof = max(1, top["num_values"] + behind["num_values"] - 2)
    return rise, float(stdtrit(dof, CONFIDENCE)) * joint_sem(top["validation_sem"], behind["validation_sem"])


def _narrow(cell: Row, rates: Sequence[Row], others: Sequence[float], metric: Metric) -> Iterator[CheckFinding]:
    known = [row for row in rates if row["num_values"]]
    at = [row["learning_rate"] for row in known].index(cell["learning_rate"])
    if not 0 < at < len(known) - 1:
        return
    columns = ("learning_rate", "validation_mean", "validation_sem", "num_values")
    swept, means, sems, num_seeds = (np.array([row[name] for row in known], float) for name in columns)
    gain = fitted_gain(np.log10(swept), metric.sign * means, sems, num_seeds, at)
    room = metric.room(cell["validation_mean"])  # a peak near 100% is no parabola
    if min(room, gain.lower(CONFIDENCE)) <= LEAST_GAIN * unit(cell, metric):
        return
    message = (
        f"the grid is coarse at {rate_text(cell['learning_rate'])}: by a parabola through its neighbours a rate near "
        f"{rate_text(three_digits(10**gain.at))} is better by {metric.amount_text(min(room, gain.size))} "
        f"(at least {metric.amount_text(min(room, gain.lower(CONFIDENCE)))})"
    )
    nearest = min((abs(other - cell["validation_mean"]) for other in others), default=0.0)
    level: Level = "note"
    if not gain.fit_seen:
        message += "; three rates do not show whether a parabola fits"
    elif nearest > gain.upper(CONFIDENCE):
        message += f"; the nearest variant is {metric.amount_text(nearest)} away, so the order stays"
    else:
        level = "problem"
    further = between([row["learning_rate"] for row in rates], cell["learning_rate"])
    yield finding_of(cell, "narrow", level, message, rates=further)


def _unstable(cell: Row, rates: Sequence[Row], metric: Metric) -> Iterator[CheckFinding]:
    """Report the best rate that was not chosen because a seed diverged at it."""
    chosen = next((row for row in rates if row["learning_rate"] == cell["learning_rate"]), None)
    lost = [row for row in rates if 0 < row["num_values"] < row["num_wanted"] and row["diverged"]]
    if chosen is None or not lost:
        return
    best = max(lost, key=lambda row: metric.sign * row["validation_mean"])
    lead = metric.sign * (best["validation_mean"] - chosen["validation_mean"])
    if best["num_values"] >= chosen["num_values"] or lead <= 0:
        return
    noise = UNSTABLE_SEMS * joint_sem(best["validation_sem"], chosen["validation_sem"])
    message = (
        f"{best['num_seeds'] - best['num_values']} of {best['num_seeds']} seeds have no value at "
        f"{rate_text(best['learning_rate'])}, where the others are better than at the chosen "
        f"{rate_text(chosen['learning_rate'])} by {metric.amount_text(lead)}: the choice avoids it"
    )
    if lead > max(UNSTABLE_LEAD * unit(cell, metric), noise):
        middle = three_digits(math.sqrt(best["learning_rate"] * chosen["learning_rate"]))
        yield finding_of(cell, "unstable", "problem", message, rates=(middle,))
    else:
        yield finding_of(cell, "unstable", "note", message)
