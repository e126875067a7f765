"""Checks of a sweep: what a careful reader would object to before believing its table.

A check takes a cell (`finding.SweptCell`) and yields findings; `check_sweep` calls it.
Every threshold is a constant. Accuracies are fractions in the data and percent in messages; "points" are points of
percent. Of a metric that is no fraction, thresholds are shares of the cell's mean (`SweptCell.unit`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import ENGINE, Now, files_text, versions_of
from lr_sweep.analysis.statistics.checks.finding import (
    CheckFinding,
    Level,
    SweptCell,
    finding_of,
    swept_cells,
)
from lr_sweep.analysis.statistics.checks.grid import fewer_seeds, grid_findings, is_flat, joint_sem
from lr_sweep.analysis.statistics.checks.significance import Modes, Rise, late_rises, two_modes
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, arrays_by_cell, comparable
from lr_sweep.analysis.statistics.selection.summary import StudySummary, points_within_budget
from lr_sweep.common.text import rate_text

RISING_LEVEL = 0.05
"""Validation still improves where a study without such a cell would show it with less than this probability."""
GAP = 0.03
"""Validation and test differ out of line by more than this, and by more than `GAP_SEMS` of their standard errors, from
the median of the same task's cells. A gap that they share is a note: the splits differ."""
GAP_SEMS = 3
MOST_EXAMPLES = 10_000
"""Examples of a split up to which their number is read off the accuracies; the error of a larger one is below `GAP`."""
MOST_VALUES, WHOLE = 100, 5e-5
"""Accuracies of a split that are looked at, and how far from a whole number of examples they are by rounding."""
STUCK_EVALUATIONS = 4
"""With fewer evaluations a cell that stays at one accuracy may do so by chance."""
STUCK_SHARE = 0.5
"""A cell is stuck if its highest validation accuracy, below 100%, is in every run's curve and is this share of all its
evaluations: as of a model that reads nothing and names one class, now and then a rarer one. What learns has another
accuracy at most evaluations."""
LEAST_EQUAL = 4
"""Different validation values that runs at two rates share if the rate has no effect. Of accuracies one run must have
them: at the smallest rates no run learns, and those of all are equal."""
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
ACCURACIES = ["train_accuracy", "validation_accuracy", "test_accuracy"]
"""Two cells are identical if these are equal at every evaluation."""


def check_sweep(summary: StudySummary, curves: pd.DataFrame) -> list[CheckFinding]:
    """Run every check on every cell, in the order of the cells; `curves` have `run_id`, `step` and `ACCURACIES`."""
    counted = summary.runs[summary.runs["status"].isin(["complete", "diverged"])]
    points = points_within_budget(counted, curves, ACCURACIES)
    modes = two_modes(summary)
    rises, stuck, same = (
        late_rises(summary, curves),
        _stuck_cells(points, summary.metric),
        _identical_cells(points),
    )
    ignored = _ignored_rates(points, summary.metric)
    cells = list(swept_cells(summary))
    flat = {cell.key for cell in cells if is_flat(cell.rates)} - stuck.keys()
    learning = {cell.row["task"] for cell in cells if cell.key not in stuck.keys() | flat}
    gaps = summary.cells["validation_mean"] - summary.cells["test_mean"]
    by_task = gaps.groupby(summary.cells["task"])
    usual, num_cells = by_task.median().to_dict(), by_task.count().to_dict()
    examples = {
        task: _examples(runs, summary.metric) for task, runs in summary.runs.groupby("task")
    }
    found: list[CheckFinding] = []
    for cell in cells:
        task, whole_task = cell.row["task"], cell.row["task"] not in learning
        found += [*grid_findings(cell), *fewer_seeds(cell)]
        found += [*_unfinished(cell), *_missing(cell)] or _winners(cell)
        found += [*_diverged(cell), *_improving(cell, rises.get(cell.key)), *_stopped(cell)]
        found += _gap(cell, usual[task], num_cells[task], examples[task])
        if cell.key in stuck:
            found.append(_stuck(cell, stuck[cell.key], whole_task))
        if cell.key in flat:
            found.append(_flat(cell, whole_task))
        if cell.key in same:
            found.append(_identical(cell, same[cell.key]))
        if cell.key in ignored:
            found.append(_ignored(cell, ignored[cell.key]))
        if cell.key in modes:
            found.append(_two_modes(cell, modes[cell.key]))
        if cell.row["num_values"] and cell.row["num_seeds"] == 1:
            found.append(
                cell.finding(
                    "one-seed", "note", "one seed: no standard error, no interval", "add seeds"
                )
            )
    if summary.search is None:
        return found
    # A study with a search names no learning rates to add.
    fix = f"raise `rates`, now {summary.search.rates}"
    return [
        replace(each, fix=fix, learning_rates=()) if each.learning_rates else each for each in found
    ]


def _unfinished(cell: SweptCell) -> Iterator[CheckFinding]:
    """Report learning rates that a search or a refinement has still to add."""
    search, refinement = cell.study.search, cell.study.refinement
    if search is not None and len(cell.rates) < search.rates:
        message = f"the search has proposed {len(cell.rates)} of {search.rates} learning rates"
        yield cell.finding("missing", "problem", message, "`run` proposes and trains the others")
    if (
        refinement is not None
        and (proposed := refinement.proposed.get(cell.key, 0)) < refinement.rates
    ):
        message = f"the refinement has added {proposed} of {refinement.rates} learning rates"
        yield cell.finding(
            "missing", "problem", message, "`run` adds the others once the grid has ended"
        )


def _missing(cell: SweptCell) -> Iterator[CheckFinding]:
    for status, check, fix in LOST:
        if cell.row[status]:
            message = f"{cell.row[status]} of {cell.row['num_wanted']} runs {status}: {_at_rates(cell, status)}"
            yield cell.finding(check, "problem", message, fix)


def _winners(cell: SweptCell) -> Iterator[CheckFinding]:
    if cell.study.winners is None or not cell.row["num_values"]:
        return
    num_whole = sum(row["num_wanted"] > 1 for row in cell.rates)
    if num_whole:
        message = f"{num_whole} of {len(cell.rates)} learning rates, the best of the first seed, have all seeds"
        yield cell.finding("winners", "note", message, "leave `winners` out to train them all")
    else:
        message = "no learning rate has all seeds yet: the winners are not chosen"
        yield cell.finding("missing", "problem", message, "`run` chooses and trains them")


def _diverged(cell: SweptCell) -> Iterator[CheckFinding]:
    row = cell.row
    if not row["diverged"]:
        return
    message = (
        f"{row['diverged']} of {row['num_wanted']} runs diverged: {_at_rates(cell, 'diverged')}"
    )
    if not row["num_values"]:
        message += "; no run of the cell has a value"
    elif row["num_diverged"]:
        message += f"; the chosen learning rate, {rate_text(row['learning_rate'])}, among them"
    yield cell.finding(
        "diverged", "problem" if row["num_diverged"] or not row["num_values"] else "note", message
    )


def _stopped(cell: SweptCell) -> Iterator[CheckFinding]:
    number, wanted = cell.row["stopped"], cell.row["num_wanted"]
    if number:
        message = f"{number} of {wanted} runs were stopped early: {_at_rates(cell, 'stopped')}"
        fix = "without `stop_early` they train to their budgets from where they are"
        yield cell.finding("stopped", "note", message, fix)


def _at_rates(cell: SweptCell, status: str) -> str:
    lost = [row for row in cell.rates if row[status]]
    return ", ".join(
        f"{row[status]} of {row['num_wanted']} at {rate_text(row['learning_rate'])}" for row in lost
    )


def _improving(cell: SweptCell, rise: Rise | None) -> Iterator[CheckFinding]:
    if rise is None or rise.p >= RISING_LEVEL:
        return
    metric = cell.metric
    message = (
        f"{metric.chosen_on} still {metric.improves} at the budget: by {metric.amount_text(rise.size)} over the last "
        f"{rise.num_steps} steps"
    )
    if metric.model == "final":
        yield cell.finding("improving", "note", f"{message}, as a decaying schedule makes it")
    else:
        yield cell.finding(
            "improving", "problem", message, "raise num_steps: finished runs resume where they are"
        )


def _examples(runs: pd.DataFrame, metric: Metric) -> tuple[float, float]:
    """Return the least numbers of examples of validation and test of which all accuracies are shares; inf: unknown."""
    numbers, found = np.arange(1, MOST_EXAMPLES + 1), [math.inf, math.inf]
    for index, name in enumerate(ACCURACIES[1:]):
        known = runs[name].dropna().unique()[:MOST_VALUES]
        right = known[:, None] * numbers
        fits = (np.abs(right - right.round()) < WHOLE).all(0)
        if metric.is_fraction and len(known) and fits.any():
            found[index] = float(numbers[fits.argmax()])
    return found[0], found[1]


def _gap(
    cell: SweptCell, usual: float, num_cells: int, examples: tuple[float, float]
) -> Iterator[CheckFinding]:
    """Report a difference between validation and test; `usual` is the median of `num_cells` cells of the task.

    The error of a difference has that of the `examples` of both splits. All cells share these, so what the cells have
    in common is as wrong with many seeds as with one.
    """
    row, metric = cell.row, cell.metric
    means = row["validation_mean"], row["test_mean"]
    gap = means[0] - means[1]
    split = math.sqrt(sum(max(0.0, p * (1 - p)) / n for p, n in zip(means, examples, strict=True)))
    error = max(
        joint_sem(row["validation_sem"], row["test_sem"]),
        split / math.sqrt(max(1, row["num_values"])),
    )
    limit, shared = (max(GAP * cell.unit, GAP_SEMS * each) for each in (error, max(error, split)))
    message = f"validation less test is {metric.amount_text(gap, sign='+')}"
    # Comparisons are false where there is no value.
    if abs(gap - usual) > limit:
        message += f", where the median of the task's cells is {metric.difference_text(usual)}"
        yield cell.finding(
            "gap", "problem", message, "look at its seeds one by one before using the number"
        )
    elif abs(gap) > shared and num_cells == 1:
        yield cell.finding("gap", "problem", f"{message}, there is no other cell to compare with")
    elif abs(gap) > shared:
        message = f"validation less test is {metric.amount_text(usual, sign='+')} in the median of the task's cells"
        yield cell.finding("gap", "note", f"{message}, and alike here: its splits differ")


def _stuck(cell: SweptCell, where: str, whole_task: bool) -> CheckFinding:
    message = (
        f"{where}, as if the model always predicted one class" if cell.metric.is_fraction else where
    )
    if not whole_task:
        condition = f"as far as tried: {cell.row['variant']} did not learn at any learning rate"
        return cell.finding("stuck", "note", message, condition=condition)
    fix = "look at what the task's `load` returns: do inputs differ between examples, and are they scaled?"
    return cell.finding("stuck", "problem", message, fix)


def _flat(cell: SweptCell, whole_task: bool) -> CheckFinding:
    metric, mean = cell.metric, cell.row["validation_mean"]
    number = sum(row["num_values"] > 0 for row in cell.rates)
    message = (
        f"all {number} learning rates have the same mean {metric.validation}, {metric.text(mean)}: "
        "none is better than another"
    )
    if whole_task and comparable(mean) != metric.perfect:
        return cell.finding(
            "flat", "problem", message, "make sure that the learning rate reaches the optimizer"
        )
    return cell.finding("flat", "note", message)


def _identical(cell: SweptCell, other: Cell) -> CheckFinding:
    message = (
        f"every {cell.metric.name} of every run is that of {' '.join(other[1:])}, to the last bit"
    )
    fix = "two ways of training never agree so: look at what the task's `load` returns, and at the two models"
    return cell.finding("identical", "problem", message, fix)


def _ignored(cell: SweptCell, rates: Sequence[float]) -> CheckFinding:
    message = f"runs of one seed have the same numbers at {', '.join(map(rate_text, rates))}: the rate has no effect"
    return cell.finding(
        "rate-ignored",
        "problem",
        message,
        "look for a scheduler or an engine that overrides the rate",
    )


def _two_modes(cell: SweptCell, modes: Modes) -> CheckFinding:
    low, high = (" ".join(map(cell.metric.text, values)) for values in (modes.low, modes.high))
    message = (
        f"at {rate_text(modes.learning_rate)} its seeds fall into two groups, {low} and {high}"
    )
    return cell.finding(
        "two-modes", "note", message, "add seeds: the mean of a few may be that of one group alone"
    )


def _identical_cells(points: pd.DataFrame) -> dict[Cell, Cell]:
    """Find for each cell the first of its task with the same evaluations, of other runs; most have none."""
    found: dict[Cell, Cell] = {}
    first: dict[tuple[Any, ...], tuple[Cell, set[str]]] = {}
    columns = ("learning_rate", "seed", "step", *ACCURACIES)
    for key, (run_ids, *rows) in arrays_by_cell(points, "run_id", *columns).items():
        values = np.array(rows, float)
        held_out = values[-2:]
        if len(run_ids) < 2 or np.isin(held_out[~np.isnan(held_out)], (0.0, 1.0)).all():
            continue  # a single number may agree by chance, and so do runs that have all right, or nothing
        numbers = values.tobytes()
        ids = set(run_ids)
        earlier, theirs = first.setdefault((key[0], numbers), (key, ids))
        if not ids & theirs:  # a study may have two names for one model
            found[key] = earlier
    return found


def _ignored_rates(points: pd.DataFrame, metric: Metric) -> dict[Cell, list[float]]:
    """Find the learning rates of each cell at which runs of one seed have the same evaluations; most cells have none.

    `points` are ordered by run.
    """
    found: dict[Cell, list[float]] = {}
    columns = ("run_id", "seed", "learning_rate", "step", *ACCURACIES)
    for key, (ids, seeds, tried, *rows) in arrays_by_cell(points, *columns).items():
        numbers = np.array(rows, float).T.copy()
        starts = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1), len(ids)]
        at: defaultdict[tuple[int, bytes], list[slice]] = defaultdict(list)
        for start, end in pairwise(starts):
            at[int(seeds[start]), numbers[start:end].tobytes()].append(slice(start, end))
        same = [runs for runs in at.values() if len(runs) > 1]
        if metric.is_fraction:
            same = [runs for runs in same if len(np.unique(numbers[runs[0], 2])) >= LEAST_EQUAL]
        rates = {float(tried[run.start]) for runs in same for run in runs}
        if (
            len({value for runs in same for value in numbers[runs[0], 2]}) >= LEAST_EQUAL
            and len(rates) > 1
        ):
            found[key] = sorted(rates)
    return found


def _stuck_cells(points: pd.DataFrame, metric: Metric) -> dict[Cell, str]:
    """Describe the evaluations of each cell whose validation accuracy stays at one number."""
    found: dict[Cell, str] = {}
    for key, (accuracy, ids) in arrays_by_cell(points, "validation_accuracy", "run_id").items():
        number = len(accuracy)
        if number < STUCK_EVALUATIONS or np.isnan(accuracy).all():
            continue
        top = metric.sign * float(np.nanmax(metric.sign * accuracy))
        num_top = int((accuracy == top).sum())
        if num_top < STUCK_SHARE * number:
            continue
        some, num_runs = num_top < number, len(set(ids))
        everywhere = len(set(ids[accuracy == top])) == num_runs
        if not some or (top != metric.perfect and everywhere):
            where = f"{num_top} of {number}" if some else f"all {number}"
            runs = f"{num_runs} run{'s' if num_runs > 1 else ''}{f', and never {metric.better}' if some else ''}"
            found[key] = (
                f"{metric.validation} is {metric.text(top)} at {where} evaluations of its {runs}"
            )
    return found


def code_findings(
    wanted: pd.DataFrame, runs: pd.DataFrame, now: Now | None = None
) -> list[CheckFinding]:
    """Find cells whose runs were trained by several versions of the code, or by another than `now` gives."""
    known = runs.dropna(subset=["code"])[["run_id", "num_steps", "code"]]
    labelled = wanted[["run_id", *CELL]].merge(known, on="run_id")
    return [
        finding
        for _, rows in labelled.groupby("task", sort=False)
        for finding in _task_findings(rows, now)
    ]


def _task_findings(rows: pd.DataFrame, now: Now | None) -> Iterator[CheckFinding]:
    cells: dict[tuple[str, ...], list[dict[str, set[str]]]] = defaultdict(list)
    of_task: dict[str, set[str]] = defaultdict(set)
    for *key, code, num_steps in rows[[*CELL, "code", "num_steps"]].itertuples(index=False):
        run = versions_of(code, num_steps)
        cells[tuple(key)].append(run)
        for file, found in run.items():
            of_task[file] |= found
    several = {file for file, found in of_task.items() if len(found) > 1}
    here = {file: {version} for file in of_task if now and (version := now(file)) is not None}
    for cell, runs in cells.items():
        resumed = [{file for file, found in run.items() if len(found) > 1} for run in runs]
        others = [
            {file for file, found in run.items() if found != here.get(file, found)} for run in runs
        ]
        among = several & set().union(*runs)
        parts = []
        if any(resumed):
            parts.append(
                f"{_share(resumed)} resumed after a change of {files_text(set().union(*resumed))}"
            )
        elif among:
            parts.append(f"the task's runs were trained by several versions of {files_text(among)}")
        if any(others):
            files = files_text(set().union(*others))
            parts.append(
                f"{_share(others)} were trained by another version of {files} than is here"
            )
        if parts:
            level: Level = (
                "problem" if any(not file.startswith(ENGINE) for file in among) else "note"
            )
            fix = "if that changes numbers, train the study into a new results directory"
            yield finding_of(
                dict(zip(CELL, cell, strict=True)), "code", level, "; ".join(parts), fix
            )


def _share(files_of_runs: list[set[str]]) -> str:
    return f"{sum(map(bool, files_of_runs))} of {len(files_of_runs)} runs"
