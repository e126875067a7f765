"""Checks of a sweep: what a careful reader would object to before believing its table.

A check takes a cell (`finding.SweptCell`) and yields findings; `check_sweep` calls it.
Every threshold is a constant. Accuracies are fractions in the data and percent in messages; "points" are points of
percent.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from lr_sweep.analysis.statistics.selection.summary import (
    StudySummary,
    points_within_budget,
)
from lr_sweep.common.text import rate_text

from .curves import Rise, late_rises, stuck_cells
from .finding import CheckFinding, SweptCell, swept_cells
from .grid import fewer_seeds, grid_findings, is_flat

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

    `curves`: `run_id`, `step` and `validation`.
    """
    cells = list(swept_cells(summary))
    ended = summary.runs[summary.runs["status"].isin(["complete", "diverged"])]
    points = points_within_budget(ended, curves, ["validation"])
    stuck = stuck_cells(points, summary.metric)
    flat = {cell.key for cell in cells if is_flat(cell)} - stuck.keys()
    not_learning = stuck.keys() | flat
    learning_tasks = {cell.row["task"] for cell in cells if cell.key not in not_learning}
    # With `selection: final` a decaying schedule makes nearly all curves rise at their end.
    rises = late_rises(summary, curves) if summary.metric.model == "best" else {}
    findings: list[CheckFinding] = []
    for cell in cells:
        whole_task = cell.row["task"] not in learning_tasks
        findings += grid_findings(cell)
        findings += fewer_seeds(cell)
        findings += _unfinished(cell)
        findings += _missing(cell)
        findings += _diverged(cell)
        if cell.key in rises:
            findings.append(_improving(cell, rises[cell.key]))
        findings += _stopped(cell)
        if cell.key in stuck:
            findings.append(_stuck(cell, stuck[cell.key], whole_task))
        if cell.key in flat and whole_task:
            findings.append(_flat(cell))
    return findings


def _unfinished(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report learning rates that a search or a refinement has still to add, and winners that are not chosen yet."""
    search, refinement = cell.study.search, cell.study.refinement
    if search is not None and len(cell.rates) < search.rates:
        message = f"the search has proposed {len(cell.rates)} of {search.rates} learning rates"
        yield cell.finding(
            "missing",
            "problem",
            message,
            "`run` proposes and trains the others",
        )
    if refinement is not None:
        added = refinement.proposed.get(cell.key, 0)
        if added < refinement.rates:
            message = f"the refinement has added {added} of {refinement.rates} learning rates"
            fix = "`run` adds the others once the grid has ended"
            yield cell.finding("missing", "problem", message, fix)
    has_one_seed = max(row["num_wanted"] for row in cell.rates) == 1
    if cell.study.winners is not None and has_one_seed and cell.row["num_values"]:
        message = "no learning rate has all seeds yet: the winners are not chosen"
        yield cell.finding("missing", "problem", message, "`run` chooses and trains them")


def _missing(cell: SweptCell) -> Iterator[CheckFinding]:
    for status, check, fix in LOST:
        if cell.row[status]:
            yield cell.finding(check, "problem", _counts(cell, status), fix)


def _counts(cell: SweptCell, status: str) -> str:
    """Count the runs of a status, in all and by learning rate."""
    by_rate = [
        f"{row[status]} of {row['num_wanted']} at {rate_text(row['learning_rate'])}"
        for row in cell.rates
        if row[status]
    ]
    return f"{cell.row[status]} of {cell.row['num_wanted']} runs {status}: {', '.join(by_rate)}"


def _diverged(cell: SweptCell) -> Iterator[CheckFinding]:
    row = cell.row
    if not row["diverged"]:
        return
    message = _counts(cell, "diverged")
    if not row["num_values"]:
        message += "; no run of the cell has a value"
    elif row["num_diverged"]:
        message += f"; the chosen learning rate, {rate_text(row['learning_rate'])}, among them"
    is_problem = row["num_diverged"] or not row["num_values"]
    yield cell.finding("diverged", "problem" if is_problem else "note", message)


def _stopped(cell: SweptCell) -> Iterator[CheckFinding]:
    if cell.row["stopped"]:
        fix = "without `stop_early` they train to their budgets from where they are"
        yield cell.finding("stopped", "note", _counts(cell, "stopped"), fix)


def _improving(cell: SweptCell, rise: Rise) -> CheckFinding:
    metric = cell.metric
    message = (
        f"{metric.chosen_on} still {metric.improves} at the budget: by {metric.amount_text(rise.size)} over the last "
        f"{rise.num_steps} steps"
    )
    fix = "raise num_steps: finished runs resume where they are"
    return cell.finding("improving", "problem", message, fix)


def _stuck(cell: SweptCell, where: str, whole_task: bool) -> CheckFinding:
    condition = f"as far as tried: {cell.row['variant']} did not learn at any learning rate"
    if not whole_task:
        return cell.finding("stuck", "note", where, condition=condition)
    fix = "look at what the task's `load` returns: do inputs differ between examples, and are they scaled?"
    return cell.finding("stuck", "problem", where, fix, condition=condition)


def _flat(cell: SweptCell) -> CheckFinding:
    mean = cell.metric.text(cell.row["validation_mean"])
    message = f"all learning rates have the same mean {cell.metric.validation}, {mean}"
    fix = "make sure that the learning rate reaches the optimizer"
    return cell.finding("flat", "problem", message, fix)
