"""Checks of a sweep: what a careful reader would object to before believing its table.

Every threshold is a constant below. Accuracies are fractions in the data and percent in messages; "points" are points
of percent. Of a metric that is no fraction, thresholds are shares of the cell's mean (`grid_checks.unit`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.code_versions import ENGINE, Now, files_text, versions_of
from lr_sweep.analysis.record.read import Refinement, SearchRange
from lr_sweep.analysis.statistics.aggregate import StudySummary, points_within_budget
from lr_sweep.analysis.statistics.fewer_seeds import fewer_seeds
from lr_sweep.analysis.statistics.finding import CheckFinding, Key, Level, Row, finding_of
from lr_sweep.analysis.statistics.grid_checks import grid_findings, is_flat, joint_sem, unit
from lr_sweep.analysis.statistics.late_rises import Rise, late_rises
from lr_sweep.analysis.statistics.selection import CELL, MEAN_DIGITS
from lr_sweep.common.text import rate_text

RISING_LEVEL = 0.05
"""Validation still improves where a study without such a cell would show it with less than this probability."""
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
ACCURACIES = ["train_accuracy", "validation_accuracy", "test_accuracy"]
"""Two cells are identical if these are equal at every evaluation."""


def check_sweep(summary: StudySummary, curves: pd.DataFrame) -> list[CheckFinding]:
    """Run every check on every cell, in the order of the cells; `curves` have `run_id`, `step` and `ACCURACIES`."""
    rates_of = {cell: rows.to_dict("records") for cell, rows in summary.learning_rates.groupby(CELL, sort=False)}
    gaps = summary.cells.assign(gap=summary.cells["validation_mean"] - summary.cells["test_mean"])
    by_task = gaps.groupby("task")["gap"]
    usual, num_cells = by_task.median(), by_task.count()
    counted = summary.runs[summary.runs["status"].isin(["complete", "diverged"])]
    points = points_within_budget(counted, curves, ACCURACIES)
    metric = summary.metric
    rises, same, stuck = late_rises(summary, curves), _identical_cells(points), _stuck_cells(points, metric)
    flat = {cell for cell, rates in rates_of.items() if is_flat(rates)} - stuck.keys()
    learning = {cell[0] for cell in rates_of.keys() - stuck.keys() - flat}
    found: list[CheckFinding] = []
    for cell in gaps.to_dict("records"):
        key = tuple(cell[name] for name in CELL)
        rates = rates_of[key]
        found += grid_findings(cell, rates, _other_variants(cell, gaps), metric, summary.search, summary.winners)
        found += fewer_seeds(cell, rates, metric, summary.winners)
        to_come = [*_unfinished(cell, rates, summary.search), *_unrefined(cell, key, summary.refinement)]
        to_come += _missing(cell, rates)
        found += to_come or _winners(cell, rates, summary.winners)
        found += [*_diverged(cell, rates), *_improving(cell, rises.get(key), metric)]
        found += _stopped(cell, rates)
        found += _gap(cell, usual[cell["task"]], num_cells[cell["task"]], metric)
        if key in stuck:
            found.append(_stuck(cell, stuck[key], cell["task"] not in learning, metric))
        if key in flat:
            found.append(_flat(cell, rates, cell["task"] not in learning, metric))
        if key in same:
            message = f"every {metric.name} of every run is that of {' '.join(same[key][1:])}, to the last bit"
            fix = "two ways of training never agree so: look at what the task's `load` returns, and at the two models"
            found.append(finding_of(cell, "identical", "problem", message, fix))
        if cell["num_values"] and cell["num_seeds"] == 1:
            found.append(finding_of(cell, "one-seed", "note", "one seed: no standard error, no interval", "add seeds"))
    return found if summary.search is None else [_of_search(each, summary.search) for each in found]


def _of_search(finding: CheckFinding, search: SearchRange) -> CheckFinding:
    """Replace learning rates to add: a study with a search names none."""
    if not finding.learning_rates:
        return finding
    return replace(finding, fix=f"raise `rates`, now {search.rates}", learning_rates=())


def _other_variants(cell: Row, cells: pd.DataFrame) -> list[float]:
    """Return the validation means of the other variants of a cell's task and model."""
    same = [cells[name].to_numpy() == cell[name] for name in CELL]
    means = cells["validation_mean"].to_numpy()[same[0] & same[1] & ~same[2]]
    return list(means[~np.isnan(means)])


def _missing(cell: Row, rates: list[Row]) -> Iterator[CheckFinding]:
    for status, fix in (("missing", "`run` trains them"), ("failed", "`run --retry-failed` trains them again")):
        if cell[status]:
            message = f"{cell[status]} of {cell['num_wanted']} runs {status}: {_at_rates(rates, status)}"
            yield finding_of(cell, "missing", "problem", message, fix)


def _unfinished(cell: Row, rates: list[Row], search: SearchRange | None) -> Iterator[CheckFinding]:
    if search is not None and len(rates) < search.rates:
        message = f"the search has proposed {len(rates)} of {search.rates} learning rates"
        yield finding_of(cell, "missing", "problem", message, "`run` proposes and trains the others")


def _winners(cell: Row, rates: list[Row], winners: int | None) -> Iterator[CheckFinding]:
    if winners is None or not cell["num_values"]:
        return
    num_whole = sum(row["num_wanted"] > 1 for row in rates)
    if num_whole:
        message = f"{num_whole} of {len(rates)} learning rates, the best of the first seed, have all seeds"
        yield finding_of(cell, "winners", "note", message, "leave `winners` out to train them all")
    else:
        message = "no learning rate has all seeds yet: the winners are not chosen"
        yield finding_of(cell, "missing", "problem", message, "`run` chooses and trains them")


def _unrefined(cell: Row, key: Key, refinement: Refinement | None) -> Iterator[CheckFinding]:
    if refinement is not None and (proposed := refinement.proposed.get(key, 0)) < refinement.rates:
        message = f"the refinement has added {proposed} of {refinement.rates} learning rates"
        yield finding_of(cell, "missing", "problem", message, "`run` adds the others once the grid has ended")


def _diverged(cell: Row, rates: list[Row]) -> Iterator[CheckFinding]:
    if not cell["diverged"]:
        return
    message = f"{cell['diverged']} of {cell['num_wanted']} runs diverged: {_at_rates(rates, 'diverged')}"
    if not cell["num_values"]:
        message += "; no run of the cell has a value"
    elif cell["num_diverged"]:
        message += f"; the chosen learning rate, {rate_text(cell['learning_rate'])}, among them"
    yield finding_of(cell, "diverged", "problem" if cell["num_diverged"] or not cell["num_values"] else "note", message)


def _stopped(cell: Row, rates: list[Row]) -> Iterator[CheckFinding]:
    if cell["stopped"]:
        message = f"{cell['stopped']} of {cell['num_wanted']} runs were stopped early: {_at_rates(rates, 'stopped')}"
        fix = "without `stop_early` they train to their budgets from where they are"
        yield finding_of(cell, "stopped", "note", message, fix)


def _at_rates(rates: list[Row], status: str) -> str:
    lost = [row for row in rates if row[status]]
    return ", ".join(f"{row[status]} of {row['num_wanted']} at {rate_text(row['learning_rate'])}" for row in lost)


def _improving(cell: Row, rise: Rise | None, metric: Metric) -> Iterator[CheckFinding]:
    if rise is None or rise.p >= RISING_LEVEL:
        return
    message = (
        f"{metric.chosen_on} still {metric.improves} at the budget: by {metric.amount_text(rise.size)} over the last "
        f"{rise.num_steps} steps"
    )
    if metric.model == "final":
        yield finding_of(cell, "improving", "note", f"{message}, as a decaying schedule makes it")
    else:
        fix = "raise num_steps: finished runs resume where they are"
        yield finding_of(cell, "improving", "problem", message, fix)


def _gap(cell: Row, usual: float, num_cells: int, metric: Metric) -> Iterator[CheckFinding]:
    limit = max(GAP * unit(cell, metric), GAP_SEMS * joint_sem(cell["validation_sem"], cell["test_sem"]))
    message = f"validation less test is {metric.amount_text(cell['gap'], sign='+')}"
    # Comparisons are false where there is no value.
    if abs(cell["gap"] - usual) > limit:
        message += f", where the median of the task's cells is {metric.difference_text(usual)}"
        yield finding_of(cell, "gap", "problem", message, "look at its seeds one by one before using the number")
    elif abs(cell["gap"]) > limit and num_cells == 1:
        yield finding_of(cell, "gap", "problem", f"{message}, there is no other cell to compare with")
    elif abs(cell["gap"]) > limit:
        message = f"validation less test is {metric.amount_text(usual, sign='+')} in the median of the task's cells"
        yield finding_of(cell, "gap", "note", f"{message}, and alike here: its splits differ")


def _stuck(cell: Row, where: str, whole_task: bool, metric: Metric) -> CheckFinding:
    message = f"{where}, as if the model always predicted one class" if metric.is_fraction else where
    fix = "look at what the task's `load` returns: do inputs differ between examples, and are they scaled?"
    return finding_of(cell, "stuck", "problem" if whole_task else "note", message, fix if whole_task else "")


def _flat(cell: Row, rates: list[Row], whole_task: bool, metric: Metric) -> CheckFinding:
    number = sum(row["num_values"] > 0 for row in rates)
    message = (
        f"all {number} learning rates have the same mean {metric.validation}, {metric.text(cell['validation_mean'])}: "
        "none is better than another"
    )
    if whole_task and round(cell["validation_mean"], MEAN_DIGITS) != metric.perfect:
        fix = "make sure that the learning rate reaches the optimizer"
        return finding_of(cell, "flat", "problem", message, fix)
    return finding_of(cell, "flat", "note", message)


def _identical_cells(points: pd.DataFrame) -> dict[Key, Key]:
    """Find for each cell the first of its task with the same evaluations, of other runs; most have none."""
    found: dict[Key, Key] = {}
    first: dict[tuple[Any, ...], tuple[Key, set[str]]] = {}
    for key, rows in points.groupby(CELL, sort=False):
        if len(rows) < 2:  # a single number may agree by chance
            continue
        numbers = rows[["learning_rate", "seed", "step", *ACCURACIES]].to_numpy(float).tobytes()
        ids = set(rows["run_id"])
        earlier, theirs = first.setdefault((key[0], numbers), (key, ids))
        if not ids & theirs:  # a study may have two names for one model
            found[key] = earlier
    return found


def _stuck_cells(points: pd.DataFrame, metric: Metric) -> dict[Key, str]:
    """Describe the evaluations of each cell whose validation accuracy stays at one number."""
    found: dict[Key, str] = {}
    for key, rows in points.groupby(CELL, sort=False):
        accuracy, num_runs = rows["validation_accuracy"], rows["run_id"].nunique()
        top, number = metric.sign * (metric.sign * accuracy).max(), len(rows)
        at_top = rows[accuracy == top]
        everywhere = at_top["run_id"].nunique() == num_runs
        mostly = top != metric.perfect and everywhere and len(at_top) >= STUCK_SHARE * number
        if number >= STUCK_EVALUATIONS and (mostly or len(at_top) == number):
            some = len(at_top) < number
            where = f"{len(at_top)} of {number}" if some else f"all {number}"
            runs = f"{num_runs} run{'s' if num_runs > 1 else ''}{f', and never {metric.better}' if some else ''}"
            found[key] = f"{metric.validation} is {metric.text(top)} at {where} evaluations of its {runs}"
    return found


def code_findings(wanted: pd.DataFrame, runs: pd.DataFrame, now: Now | None = None) -> list[CheckFinding]:
    """Find cells whose runs were trained by several versions of the code, or by another than `now` gives."""
    known = runs.dropna(subset=["code"])[["run_id", "num_steps", "code"]]
    labelled = wanted[["run_id", *CELL]].merge(known, on="run_id")
    return [finding for _, rows in labelled.groupby("task", sort=False) for finding in _task_findings(rows, now)]


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
        others = [{file for file, found in run.items() if found != here.get(file, found)} for run in runs]
        among = several & set().union(*runs)
        parts = []
        if any(resumed):
            parts.append(f"{_share(resumed)} resumed after a change of {files_text(set().union(*resumed))}")
        elif among:
            parts.append(f"the task's runs were trained by several versions of {files_text(among)}")
        if any(others):
            files = files_text(set().union(*others))
            parts.append(f"{_share(others)} were trained by another version of {files} than is here")
        if parts:
            level: Level = "problem" if any(not file.startswith(ENGINE) for file in among) else "note"
            fix = "if that changes numbers, train the study into a new results directory"
            yield finding_of(dict(zip(CELL, cell, strict=True)), "code", level, "; ".join(parts), fix)


def _share(files_of_runs: list[set[str]]) -> str:
    return f"{sum(map(bool, files_of_runs))} of {len(files_of_runs)} runs"
