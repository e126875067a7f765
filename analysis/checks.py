"""Checks of a sweep: what a careful reader would object to before believing its table.

Every threshold is a constant below. A finding is a `problem` (the number may change, or cannot carry a conclusion) or a
`note`. Accuracies are fractions in the data and percent in the text; "points" are points of percent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.aggregate import Summary
from analysis.findings import Finding, Level, sorted_findings
from analysis.further_rates import around, between, beyond
from analysis.selection import CELL
from analysis.text import rate_text

Row = dict[Any, Any]
"""A row of `Summary.cells` or `Summary.learning_rates`."""
Rates = tuple[float, ...]
Key = tuple[Any, ...]
"""Task, model and variant of a cell."""

MIN_RATES = 3
"""With fewer learning rates a peak cannot be seen to lie inside."""
NARROW_DROP = 0.02
"""A peak is too narrow for the grid if validation falls by more than this to the better neighbour, and by more than
`NARROW_SEMS` of its standard errors. Half a step aside, a parabola has lost a quarter of what it loses in a step:
beyond 2 points, half a point or more may be had between the grid's learning rates."""
NARROW_SEMS = 2
STILL_RISING = 0.005
"""Validation still improves if its mean over the last tenth of the evaluations is above that over the tenth before by
more than this, and by more than the standard error over seeds of the difference."""
TENTH = 10
GAP = 0.03
"""Validation and test differ out of line by more than this, and by more than `GAP_SEMS` of their standard errors, from
the median of the same task's cells. A gap that they share is a note: the splits differ."""
GAP_SEMS = 3
STUCK_EVALUATIONS = 4
"""With fewer evaluations a cell that stays at one accuracy may do so by chance."""
STUCK_SHARE = 0.5
"""A cell is stuck if its highest validation accuracy, below 100%, is in every run's curve and is this share of all its
evaluations: as of a model that reads nothing and names one class, now and then a rarer one. What learns has another
accuracy at most evaluations."""
MEASURED = ["train_accuracy", "validation_accuracy", "test_accuracy"]
"""What two cells have in common at every evaluation if they are identical."""


def check_sweep(summary: Summary, curves: pd.DataFrame) -> list[Finding]:
    """Run every check on every cell; problems first, then in the order of the cells.

    Args:
        summary: the study's numbers.
        curves: `run_id`, `step` and `MEASURED`; more columns are ignored.
    """
    rates_of = {cell: rows.to_dict("records") for cell, rows in summary.learning_rates.groupby(CELL, sort=False)}
    gains = _late_gains(summary, curves)
    gaps = summary.cells.assign(gap=summary.cells["validation_mean"] - summary.cells["test_mean"])
    by_task = gaps.groupby("task")["gap"]
    usual, num_cells = by_task.median(), by_task.count()
    points = _points(summary, curves)
    same, stuck = _identical_cells(points), _stuck_cells(points)
    found: list[Finding] = []
    for cell in gaps.to_dict("records"):
        key = tuple(cell[name] for name in CELL)
        rates = rates_of[key]
        found += _untuned(cell, rates)
        found += _at_edge(cell, rates)
        found += _narrow(cell, rates)
        found += _missing(cell, rates)
        found += _diverged(cell, rates)
        found += _improving(cell, gains.get(key, []))
        found += _gap(cell, usual[cell["task"]], num_cells[cell["task"]])
        found += _stuck(cell, stuck, summary.cells)
        found += _identical(cell, same)
        found += _one_seed(cell)
    return sorted_findings(found)


def _finding(cell: Row, check: str, level: Level, message: str, fix: str = "", rates: Rates = ()) -> Finding:
    labels = {name: str(cell[name]) for name in CELL}
    if rates:
        fix = f"add {', '.join(map(rate_text, rates))} to the learning rates"
    return Finding(check=check, level=level, **labels, message=message, fix=fix, learning_rates=rates)


def _untuned(cell: Row, rates: list[Row]) -> Iterator[Finding]:
    tried = [row["learning_rate"] for row in rates]
    if len(tried) == 1:
        message = f"only one learning rate, {rate_text(tried[0])}, was tried: nothing is tuned"
        yield _finding(cell, "untuned", "problem", message, rates=around(tried[0]))
    elif len(tried) < MIN_RATES:
        message = f"only {len(tried)} learning rates were tried: no peak can be seen to lie inside"
        yield _finding(cell, "untuned", "problem", message, rates=beyond(tried, "low") + beyond(tried, "high"))


def _at_edge(cell: Row, rates: list[Row]) -> Iterator[Finding]:
    if not cell["at_edge"] or len(rates) < MIN_RATES:
        return
    which = "smallest" if cell["at_edge"] == "low" else "largest"
    message = f"the best learning rate, {rate_text(cell['learning_rate'])}, is the {which} tried"
    further = beyond([row["learning_rate"] for row in rates], cell["at_edge"])
    yield _finding(cell, "edge", "problem", message, rates=further)


def _narrow(cell: Row, rates: list[Row]) -> Iterator[Finding]:
    known = [row for row in rates if row["num_values"]]
    place = next((i for i, row in enumerate(known) if row["learning_rate"] == cell["learning_rate"]), 0)
    if not 0 < place < len(known) - 1:
        return
    top, better = known[place], max(known[place - 1], known[place + 1], key=lambda row: row["validation_mean"])
    drop = top["validation_mean"] - better["validation_mean"]
    if drop > max(NARROW_DROP, NARROW_SEMS * _joint_sem(top["validation_sem"], better["validation_sem"])):
        message = (
            f"the peak at {rate_text(top['learning_rate'])} is too narrow for the grid: validation falls by "
            f"{100 * drop:.1f} points to the better neighbour"
        )
        further = between([row["learning_rate"] for row in rates], top["learning_rate"])
        yield _finding(cell, "narrow", "problem", message, rates=further)


def _missing(cell: Row, rates: list[Row]) -> Iterator[Finding]:
    for status, fix in (("missing", "`run` trains them"), ("failed", "`run --retry-failed` trains them again")):
        if cell[status]:
            message = f"{cell[status]} of {cell['num_wanted']} runs {status}: {_at_rates(rates, status)}"
            yield _finding(cell, "missing", "problem", message, fix)


def _diverged(cell: Row, rates: list[Row]) -> Iterator[Finding]:
    if not cell["diverged"]:
        return
    message = f"{cell['diverged']} of {cell['num_wanted']} runs diverged: {_at_rates(rates, 'diverged')}"
    if not cell["num_values"]:
        message += "; no run of the cell has a value"
    elif cell["num_diverged"]:
        message += f"; the chosen learning rate, {rate_text(cell['learning_rate'])}, among them"
    yield _finding(cell, "diverged", "problem" if cell["num_diverged"] or not cell["num_values"] else "note", message)


def _at_rates(rates: list[Row], status: str) -> str:
    lost = [row for row in rates if row[status]]
    return ", ".join(f"{row[status]} of {row['num_wanted']} at {rate_text(row['learning_rate'])}" for row in lost)


def _improving(cell: Row, gains: list[float]) -> Iterator[Finding]:
    if not gains:
        return
    gain = float(np.mean(gains))
    sem = float(np.std(gains, ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    if gain > max(STILL_RISING, sem):
        message = (
            f"validation still rises at the budget: by {100 * gain:.1f} points from the second-last to the last tenth "
            f"of the evaluations"
        )
        yield _finding(cell, "improving", "problem", message, "raise num_steps: finished runs resume where they are")


def _gap(cell: Row, usual: float, num_cells: int) -> Iterator[Finding]:
    limit = max(GAP, GAP_SEMS * _joint_sem(cell["validation_sem"], cell["test_sem"]))
    message = f"validation less test is {100 * cell['gap']:+.1f} points"
    # Comparisons are false where there is no value.
    if abs(cell["gap"] - usual) > limit:
        message += f", where the median of the task's cells is {100 * usual:+.1f}"
        yield _finding(cell, "gap", "problem", message, "look at its seeds one by one before using the number")
    elif abs(cell["gap"]) > limit:
        alone = num_cells == 1
        others = (
            "there is no other cell to compare with" if alone else "as in the task's other cells: its splits differ"
        )
        yield _finding(cell, "gap", "problem" if alone else "note", f"{message}, {others}")


def _stuck(cell: Row, stuck: dict[Key, str], cells: pd.DataFrame) -> Iterator[Finding]:
    key = tuple(cell[name] for name in CELL)
    if key not in stuck:
        return
    others = cells[cells["task"] == cell["task"]][CELL].itertuples(index=False, name=None)
    everywhere = all(other in stuck for other in others)
    message = f"{stuck[key]}, as of a model that names one class whatever it reads"
    fix = "look at what the task's `load` returns: do inputs differ between examples, and are they scaled?"
    yield _finding(cell, "stuck", "problem" if everywhere else "note", message, fix if everywhere else "")


def _identical(cell: Row, same: dict[Key, Key]) -> Iterator[Finding]:
    earlier = same.get(tuple(cell[name] for name in CELL))
    if earlier is not None:
        message = f"every accuracy of every run is that of {' '.join(earlier[1:])}, to the last bit"
        fix = "two ways of training never agree so: look at what the task's `load` returns, and at the two models"
        yield _finding(cell, "identical", "problem", message, fix)


def _one_seed(cell: Row) -> Iterator[Finding]:
    if cell["num_values"] and cell["num_seeds"] == 1:
        yield _finding(cell, "one-seed", "note", "one seed: no standard error, no interval", "add seeds")


def _points(summary: Summary, curves: pd.DataFrame) -> pd.DataFrame:
    """Return the evaluations within the budget of runs that have a value, with the labels of their runs."""
    counted = summary.runs[summary.runs["status"].isin(["complete", "diverged"])]
    labels = counted[["run_id", *CELL, "learning_rate", "seed", "num_steps"]]
    points = curves[["run_id", "step", *MEASURED]].merge(labels, on="run_id")
    return points[points["step"] <= points["num_steps"]].sort_values(["learning_rate", "seed", "step"], kind="stable")


def _identical_cells(points: pd.DataFrame) -> dict[Key, Key]:
    """Give for each cell the first of its task that has the same evaluations, of other runs; most have none."""
    found: dict[Key, Key] = {}
    first: dict[tuple[Any, ...], tuple[Key, set[str]]] = {}
    for key, rows in points.groupby(CELL, sort=False):
        if len(rows) < 2:  # a single number may agree by chance
            continue
        numbers = rows[["learning_rate", "seed", "step", *MEASURED]].to_numpy(float).tobytes()
        ids = set(rows["run_id"])
        earlier, theirs = first.setdefault((key[0], numbers), (key, ids))
        if not ids & theirs:  # a study may have two names for one model
            found[key] = earlier
    return found


def _stuck_cells(points: pd.DataFrame) -> dict[Key, str]:
    """Say of each cell whose validation accuracy stays at one number how it does so."""
    found: dict[Key, str] = {}
    for key, rows in points.groupby(CELL, sort=False):
        accuracy, num_runs = rows["validation_accuracy"], rows["run_id"].nunique()
        top, number = accuracy.max(), len(rows)
        at_top = rows[accuracy == top]
        everywhere = at_top["run_id"].nunique() == num_runs
        if number < STUCK_EVALUATIONS or not (
            len(at_top) == number or (top < 1 and everywhere and len(at_top) >= STUCK_SHARE * number)
        ):
            continue
        where = f"{len(at_top)} of {number}" if len(at_top) < number else f"all {number}"
        highest = ", and never higher" if len(at_top) < number else ""
        runs = f"{num_runs} run{'s' if num_runs > 1 else ''}"
        found[key] = f"validation accuracy is {100 * top:.1f} at {where} evaluations of its {runs}{highest}"
    return found


def _joint_sem(one: float, other: float) -> float:
    """Return the standard error of a difference; a mean over one seed, which has none, counts as exact."""
    return math.hypot(*(0.0 if math.isnan(sem) else sem for sem in (one, other)))


def _late_gains(summary: Summary, curves: pd.DataFrame) -> dict[tuple[Any, ...], list[float]]:
    """Give for each cell, by seed at its chosen learning rate, how much validation rose between the last two tenths."""
    complete = summary.runs[summary.runs["status"] == "complete"]
    chosen = complete.merge(summary.cells[[*CELL, "learning_rate"]], on=[*CELL, "learning_rate"])
    points = curves[["run_id", "step", "validation_accuracy"]].merge(
        chosen[["run_id", "num_steps", *CELL]], on="run_id"
    )
    points = points[points["step"] <= points["num_steps"]].sort_values(["run_id", "step"])
    gains: dict[tuple[Any, ...], list[float]] = {}
    for (*cell, _), curve in points.groupby([*CELL, "run_id"], sort=False)["validation_accuracy"]:
        gain = _gain(curve.tolist())
        if not math.isnan(gain):
            gains.setdefault(tuple(cell), []).append(gain)
    return gains


def _gain(curve: list[float]) -> float:
    """Compare the means of the last two tenths, of at least one evaluation each; NaN: too short."""
    size = max(1, len(curve) // TENTH)
    if len(curve) < 2 * size:
        return math.nan
    return float(np.mean(curve[-size:]) - np.mean(curve[-2 * size : -size]))
