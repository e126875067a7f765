"""Checks of a sweep: what a careful reader would object to before believing its table.

A check takes a cell (`finding.SweptCell`) and yields findings; `check_sweep` calls it.
Every threshold is a constant. Accuracies are fractions in the data and percent in messages; "points" are points of
percent. Of a metric that is no fraction, thresholds are shares of the cell's mean (`SweptCell.unit`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.checks.curves import (
    ACCURACIES,
    Rise,
    identical_cells,
    ignored_rates,
    late_rises,
    stuck_cells,
)
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, SweptCell, swept_cells
from lr_sweep.analysis.statistics.checks.grid import fewer_seeds, grid_findings, is_flat, joint_sem
from lr_sweep.analysis.statistics.selection.best import Cell, Floats, comparable, rounded
from lr_sweep.analysis.statistics.selection.summary import StudySummary, points_within_budget
from lr_sweep.common.text import rate_text

GAP, GAP_SEMS = 0.03, 3
"""Least difference of validation and test that is reported, in the metric's unit and in its standard errors."""
WHOLE = 1e-3
"""Largest distance of a number of right examples from a whole number, by rounding."""
LOST = (
    ("missing", "missing", "`run` trains them"),
    ("failed", "missing", "`run --retry-failed` trains them again"),
    (
        "short",
        "short",
        "they printed fewer evaluations than others; give `num_steps`: such a run then fails",
    ),
)
"""Outcomes of runs that do not count, the checks that report them, and what to do."""


def check_sweep(summary: StudySummary, curves: pd.DataFrame) -> list[CheckFinding]:
    """Run every check on every cell, in the order of the cells; `curves` have `run_id`, `step` and `ACCURACIES`."""
    cells, metric = list(swept_cells(summary)), summary.metric
    ended = summary.runs[summary.runs["status"].isin(["complete", "diverged"])]
    points = points_within_budget(ended, curves, ACCURACIES)
    rises, stuck = late_rises(summary, curves), stuck_cells(points, metric)
    identical, ignored = identical_cells(points), ignored_rates(points)
    flat = {cell.key for cell in cells if is_flat(cell.rates)} - stuck.keys()
    learning = {cell.row["task"] for cell in cells if cell.key not in stuck.keys() | flat}
    gaps = _task_gaps(summary, points)
    found: list[CheckFinding] = []
    for cell in cells:
        whole_task = cell.row["task"] not in learning
        found += [*grid_findings(cell), *fewer_seeds(cell)]
        found += [*_unfinished(cell), *_missing(cell)] or _winners(cell)
        found += _diverged(cell)
        if cell.key in rises:
            found.append(_improving(cell, rises[cell.key]))
        found += _stopped(cell)
        found += _gap(cell, gaps[cell.row["task"]])
        if cell.key in stuck:
            found.append(_stuck(cell, stuck[cell.key], whole_task))
        if cell.key in flat:
            found.append(_flat(cell, whole_task))
        if cell.key in identical:
            found.append(_identical(cell, identical[cell.key]))
        if cell.key in ignored:
            found.append(_ignored(cell, ignored[cell.key]))
        found += _one_seed(cell)
    return found if summary.search is None else _without_rates(found, summary.search.rates)


def _without_rates(found: list[CheckFinding], number: int) -> list[CheckFinding]:
    """Ask for more proposals of a search where findings ask for learning rates, which a searched study cannot name."""
    fix = f"raise `rates`, now {number}, or widen the range"
    return [
        replace(finding, fix=fix, learning_rates=()) if finding.learning_rates else finding
        for finding in found
    ]


def _unfinished(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report learning rates that a search or a refinement has still to add."""
    search, refinement = cell.study.search, cell.study.refinement
    if search is not None and len(cell.rates) < search.rates:
        message = f"the search has proposed {len(cell.rates)} of {search.rates} learning rates"
        yield cell.finding("missing", "problem", message, "`run` proposes and trains the others")
    if refinement is None:
        return
    added = refinement.proposed.get(cell.key, 0)
    if added < refinement.rates:
        message = f"the refinement has added {added} of {refinement.rates} learning rates"
        fix = "`run` adds the others once the grid has ended"
        yield cell.finding("missing", "problem", message, fix)


def _missing(cell: SweptCell) -> Iterator[CheckFinding]:
    for status, check, fix in LOST:
        if cell.row[status]:
            yield cell.finding(check, "problem", _counts(cell, status, status), fix)


def _counts(cell: SweptCell, status: str, said: str) -> str:
    """Count the runs of a status, in all and by learning rate."""
    lost = [row for row in cell.rates if row[status]]
    counts = (
        f"{row[status]} of {row['num_wanted']} at {rate_text(row['learning_rate'])}" for row in lost
    )
    return f"{cell.row[status]} of {cell.row['num_wanted']} runs {said}: {', '.join(counts)}"


def _winners(cell: SweptCell) -> Iterator[CheckFinding]:
    if cell.study.winners is None or not cell.row["num_values"]:
        return
    num_whole = sum(row["num_wanted"] > 1 for row in cell.rates)
    if num_whole:
        number = f"{num_whole} of {len(cell.rates)} learning rates"
        message = f"{number}, the best of the first seed, have all seeds"
        yield cell.finding("winners", "note", message, "leave `winners` out to train them all")
    else:
        message = "no learning rate has all seeds yet: the winners are not chosen"
        yield cell.finding("missing", "problem", message, "`run` chooses and trains them")


def _diverged(cell: SweptCell) -> Iterator[CheckFinding]:
    row = cell.row
    if not row["diverged"]:
        return
    message = _counts(cell, "diverged", "diverged")
    if not row["num_values"]:
        message += "; no run of the cell has a value"
    elif row["num_diverged"]:
        message += f"; the chosen learning rate, {rate_text(row['learning_rate'])}, among them"
    is_problem = row["num_diverged"] or not row["num_values"]
    yield cell.finding("diverged", "problem" if is_problem else "note", message)


def _stopped(cell: SweptCell) -> Iterator[CheckFinding]:
    if cell.row["stopped"]:
        fix = "without `stop_early` they train to their budgets from where they are"
        message = _counts(cell, "stopped", "were stopped early")
        yield cell.finding("stopped", "note", message, fix)


def _one_seed(cell: SweptCell) -> Iterator[CheckFinding]:
    if cell.row["num_values"] and cell.row["num_seeds"] == 1:
        message = "one seed: no standard error, no interval"
        yield cell.finding("one-seed", "note", message, "add seeds")


def _improving(cell: SweptCell, rise: Rise) -> CheckFinding:
    metric = cell.metric
    message = (
        f"{metric.chosen_on} still {metric.improves} at the budget: by {metric.amount_text(rise.size)} over the last "
        f"{rise.num_steps} steps"
    )
    if metric.model == "final":
        return cell.finding("improving", "note", f"{message}, as a decaying schedule makes it")
    fix = "raise num_steps: finished runs resume where they are"
    return cell.finding("improving", "problem", message, fix)


class TaskGap(NamedTuple):
    """Validation less test, over the cells of a task."""

    median: float
    num_cells: int
    """Cells with both values."""
    num_examples: Sequence[float]
    """Examples of validation and of test, as the values of runs show them; inf: many, or unknown."""


def _task_gaps(summary: StudySummary, points: pd.DataFrame) -> dict[str, TaskGap]:
    is_share = summary.metric.is_fraction
    found: dict[str, TaskGap] = {}
    for task, cells in summary.cells.groupby("task"):
        gaps = cells["validation_mean"] - cells["test_mean"]
        of_task = points[points["task"] == task]
        values = [of_task[name].to_numpy(float) for name in ACCURACIES[1:]]
        examples = [_num_examples(each) if is_share else math.inf for each in values]
        found[str(task)] = TaskGap(gaps.median(), gaps.count(), examples)
    return found


def _num_examples(accuracies: Floats) -> float:
    """Return the number of examples of which all accuracies are shares: the two closest differ by one; inf: none is."""
    known = np.unique(rounded(accuracies[~np.isnan(accuracies)]))
    if len(known) < 2:
        return math.inf
    number = round(1 / np.diff(known).min())
    right = known * number
    return number if np.allclose(right, right.round(), rtol=0.0, atol=WHOLE) else math.inf


def _gap(cell: SweptCell, task: TaskGap) -> Iterator[CheckFinding]:
    """Report a difference between validation and test that neither seeds nor the examples of the splits explain."""
    row, metric = cell.row, cell.metric
    means = row["validation_mean"], row["test_mean"]
    gap = means[0] - means[1]
    squares = (max(0.0, p * (1 - p)) / n for p, n in zip(means, task.num_examples, strict=True))
    error = max(joint_sem(row["validation_sem"], row["test_sem"]), math.sqrt(sum(squares)))
    limit = max(GAP * cell.unit, GAP_SEMS * error)
    message = f"validation less test is {metric.amount_text(gap, sign='+')}"
    # Comparisons are false where there is no value.
    if abs(gap - task.median) > limit:
        message += (
            f", where the median of the task's cells is {metric.difference_text(task.median)}"
        )
        fix = "look at its seeds one by one before using the number"
        yield cell.finding("gap", "problem", message, fix)
    elif abs(gap) > limit and task.num_cells == 1:
        yield cell.finding("gap", "problem", f"{message}, there is no other cell to compare with")
    elif abs(gap) > limit:
        usual = metric.amount_text(task.median, sign="+")
        message = f"validation less test is {usual} in the median of the task's cells"
        yield cell.finding("gap", "note", f"{message}, and alike here: its splits differ")


def _stuck(cell: SweptCell, where: str, whole_task: bool) -> CheckFinding:
    message = where
    if cell.metric.is_fraction:
        message += ", as if the model always predicted one class"
    condition = f"as far as tried: {cell.row['variant']} did not learn at any learning rate"
    if not whole_task:
        return cell.finding("stuck", "note", message, condition=condition)
    fix = "look at what the task's `load` returns: do inputs differ between examples, and are they scaled?"
    return cell.finding("stuck", "problem", message, fix, condition=condition)


def _flat(cell: SweptCell, whole_task: bool) -> CheckFinding:
    metric, mean = cell.metric, cell.row["validation_mean"]
    number = sum(row["num_values"] > 0 for row in cell.rates)
    message = (
        f"all {number} learning rates have the same mean {metric.validation}, {metric.text(mean)}: "
        "none is better than another"
    )
    if not whole_task or comparable(mean) == metric.perfect:
        return cell.finding("flat", "note", message)
    fix = "make sure that the learning rate reaches the optimizer"
    return cell.finding("flat", "problem", message, fix)


def _identical(cell: SweptCell, other: Cell) -> CheckFinding:
    named = " ".join(other[1:])
    message = f"every {cell.metric.name} of every run is that of {named}, to the last bit"
    fix = "two ways of training never agree so: look at what the task's `load` returns, and at the two models"
    return cell.finding("identical", "problem", message, fix)


def _ignored(cell: SweptCell, rates: Sequence[float]) -> CheckFinding:
    where = ", ".join(map(rate_text, rates))
    message = f"runs of one seed have the same numbers at {where}: the rate has no effect"
    fix = "look for a scheduler or an engine that overrides the rate"
    return cell.finding("rate-ignored", "problem", message, fix)
