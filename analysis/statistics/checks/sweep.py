"""Checks of a sweep: what a careful reader would object to before believing its table.

A check takes a cell (`finding.SweptCell`) and yields findings; `check_sweep` calls it.
Every threshold is a constant. Accuracies are fractions in the data and percent in messages; "points" are points of
percent. Of a metric that is no fraction, thresholds are shares of the cell's mean (`SweptCell.unit`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.selection.best import Floats, comparable, rounded
from lr_sweep.analysis.statistics.selection.summary import (
    StudySummary,
    points_within_budget,
)
from lr_sweep.common.text import rate_text

from .curves import Rise, late_rises, stuck_cells
from .finding import CheckFinding, SweptCell, swept_cells
from .grid import fewer_seeds, grid_findings, is_flat, joint_sem

GAP, GAP_SEMS = 0.03, 3
"""Least difference of validation and test that is reported, in the metric's unit and in its standard errors."""
WHOLE = 1e-3
"""Largest distance of a number of right examples from a whole number, by rounding."""
HELD_OUT = ["validation", "test"]
"""Columns of an evaluation that checks read."""
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
    """Run every check on every cell, in the order of the cells.

    `curves`: `run_id`, `step` and `HELD_OUT`.
    """
    cells = list(swept_cells(summary))
    ended = summary.runs[summary.runs["status"].isin(["complete", "diverged"])]
    points = points_within_budget(ended, curves, HELD_OUT)
    stuck = stuck_cells(points, summary.metric)
    flat = {cell.key for cell in cells if is_flat(cell.rates)} - stuck.keys()
    not_learning = stuck.keys() | flat
    learning_tasks = {cell.row["task"] for cell in cells if cell.key not in not_learning}
    rises = late_rises(summary, curves)
    gaps = summary.cells["validation_mean"] - summary.cells["test_mean"]
    usual_gaps = gaps.groupby(summary.cells["task"]).median()
    split_sizes = _split_sizes(points, summary.metric)
    findings: list[CheckFinding] = []
    for cell in cells:
        task = cell.row["task"]
        whole_task = task not in learning_tasks
        findings += grid_findings(cell)
        findings += fewer_seeds(cell)
        findings += [*_unfinished(cell), *_missing(cell)] or _winners(cell)
        findings += _diverged(cell)
        if cell.key in rises:
            findings.append(_improving(cell, rises[cell.key]))
        findings += _stopped(cell)
        findings += _gap(cell, usual_gaps[task], split_sizes.get(task, {}))
        if cell.key in stuck:
            findings.append(_stuck(cell, stuck[cell.key], whole_task))
        if cell.key in flat:
            findings.append(_flat(cell, whole_task))
        findings += _one_seed(cell)
    if summary.search is None:
        return findings
    return [_of_search(finding, summary.search.rates) for finding in findings]


def _of_search(finding: CheckFinding, num_rates: int) -> CheckFinding:
    """Ask for more proposals where a finding asks for learning rates: a searched study cannot name them."""
    if not finding.learning_rates:
        return finding
    fix = f"raise `rates`, now {num_rates}, or widen the range"
    return replace(finding, fix=fix, learning_rates=())


def _unfinished(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report learning rates that a search or a refinement has still to add."""
    search, refinement = cell.study.search, cell.study.refinement
    if search is not None and len(cell.rates) < search.rates:
        message = f"the search has proposed {len(cell.rates)} of {search.rates} learning rates"
        yield cell.finding(
            "missing",
            "problem",
            message,
            "`run` proposes and trains the others",
        )
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


def _counts(cell: SweptCell, status: str, what: str) -> str:
    """Count the runs of a status, in all and by learning rate."""
    by_rate = [
        f"{row[status]} of {row['num_wanted']} at {rate_text(row['learning_rate'])}"
        for row in cell.rates
        if row[status]
    ]
    total = f"{cell.row[status]} of {cell.row['num_wanted']} runs {what}"
    return f"{total}: {', '.join(by_rate)}"


def _winners(cell: SweptCell) -> Iterator[CheckFinding]:
    if cell.study.winners is None or not cell.row["num_values"]:
        return
    num_whole = sum(row["num_wanted"] > 1 for row in cell.rates)
    if num_whole:
        number = f"{num_whole} of {len(cell.rates)} learning rates"
        message = f"{number}, the best of the first seed, have all seeds"
        yield cell.finding(
            "winners",
            "note",
            message,
            "leave `winners` out to train them all",
        )
    else:
        message = "no learning rate has all seeds yet: the winners are not chosen"
        yield cell.finding(
            "missing",
            "problem",
            message,
            "`run` chooses and trains them",
        )


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
        return cell.finding(
            "improving",
            "note",
            f"{message}, as a decaying schedule makes it",
        )
    fix = "raise num_steps: finished runs resume where they are"
    return cell.finding("improving", "problem", message, fix)


def _split_sizes(points: pd.DataFrame, metric: Metric) -> dict[str, dict[str, float]]:
    """Return the number of examples of the splits of each task, as the values of runs show them."""
    if not metric.is_fraction:
        return {}
    sizes = {}
    for task, rows in points.groupby("task"):
        sizes[str(task)] = {name: _num_examples(rows[name].to_numpy(float)) for name in HELD_OUT}
    return sizes


def _num_examples(accuracies: Floats) -> float:
    """Return the number of examples of which all accuracies are shares: the two closest differ by one; inf: none is."""
    known = np.unique(rounded(accuracies[~np.isnan(accuracies)]))
    if len(known) < 2:
        return math.inf
    number = round(1 / np.diff(known).min())
    num_right = known * number
    are_whole = np.allclose(num_right, num_right.round(), rtol=0.0, atol=WHOLE)
    return number if are_whole else math.inf


def _gap(cell: SweptCell, median: float, sizes: Mapping[str, float]) -> Iterator[CheckFinding]:
    """Report a difference between validation and test that neither seeds nor the sizes of the splits explain.

    `median`: difference of the task's cells. `sizes`: examples of the splits; none: many, or not known.
    """
    row = cell.row
    metric = cell.metric
    means = {"validation": row["validation_mean"], "test": row["test_mean"]}
    gap = row["validation_mean"] - row["test_mean"]
    squares = [max(0.0, means[name] * (1 - means[name])) / sizes[name] for name in sizes]
    of_seeds = joint_sem(row["validation_sem"], row["test_sem"])
    error = max(of_seeds, math.sqrt(sum(squares)))
    limit = max(GAP * cell.unit, GAP_SEMS * error)
    # Comparisons are false where there is no value.
    if abs(gap - median) > limit:
        message = f"validation less test is {metric.amount_text(gap, sign='+')}"
        usual = f"where the median of the task's cells is {metric.difference_text(median)}"
        fix = "look at its seeds one by one before using the number"
        yield cell.finding("gap", "problem", f"{message}, {usual}", fix)
    elif abs(gap) > limit:
        usual = metric.amount_text(median, sign="+")
        message = f"validation less test is {usual} in the median of the task's cells"
        yield cell.finding(
            "gap",
            "note",
            f"{message}, and alike here: its splits differ",
        )


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
    metric = cell.metric
    mean = cell.row["validation_mean"]
    number = sum(row["num_values"] > 0 for row in cell.rates)
    message = (
        f"all {number} learning rates have the same mean {metric.validation}, {metric.text(mean)}: "
        "none is better than another"
    )
    if not whole_task or comparable(mean) == metric.perfect:
        return cell.finding("flat", "note", message)
    fix = "make sure that the learning rate reaches the optimizer"
    return cell.finding("flat", "problem", message, fix)
