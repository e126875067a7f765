"""The rows of a table as runs and their evaluations, in the frames that `statistics` reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lr_sweep.analysis.judge.table_file import raise_mistakes
from lr_sweep.analysis.statistics.selection import CELL

RUN = [*CELL, "learning_rate", "seed"]
"""The columns that name a run."""
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """What a table has, as frames with the columns of the record of these names that `statistics` reads."""

    wanted: pd.DataFrame
    ended: pd.DataFrame
    curves: pd.DataFrame
    remarks: tuple[str, ...]
    """What was assumed, a sentence each."""


def runs_of(rows: pd.DataFrame, decisive: str) -> Runs:
    """Group rows into runs.

    Args:
        rows: from `read_rows`, of one table or several, with task, model and variant filled in.
        decisive: `validation`, or `test` where nothing selects: an evaluation has a value of it.

    Raises:
        UserError: rows contradict each other; each with its line.
    """
    rows, remarks = _with_seeds(rows)
    _check_runs(rows)
    rows = _with_defaults(rows)
    _check_repeated(rows)
    rows["run_id"] = rows.groupby(RUN, sort=False)["where"].transform("first")
    rows, single_tests = _spread_single_tests(rows, decisive)
    by_run = rows.groupby("run_id", sort=False)
    runs = by_run[RUN].first().assign(num_steps=by_run["step"].max(), status=_statuses(rows, decisive))
    # What a run that did not end was meant to be trained for is what others of its cell were.
    meant = runs.groupby(CELL)["num_steps"].transform("max")
    runs["num_steps"] = runs["num_steps"].where(runs["status"].eq("complete"), meant)
    wanted = runs.reset_index()[["run_id", *RUN, "num_steps"]].assign(pretrained_on=None, data_origin=None)
    points = rows.dropna(subset=[decisive])
    accuracies = {f"{split}_accuracy": points.get(split, math.nan) for split in SPLITS}
    curves = points[["run_id", "step"]].assign(**accuracies).sort_values(["run_id", "step"], ignore_index=True)
    return Runs(wanted=wanted, ended=_ended(runs, rows), curves=curves, remarks=(*remarks, *single_tests))


def _with_defaults(rows: pd.DataFrame) -> pd.DataFrame:
    """Fill in steps, which are 0 in a table without any, and the status of runs that ended."""
    rows = rows.assign(step=rows.get("step", rows.get("num_steps", 0)))
    return rows if "status" in rows else rows.assign(status="complete")


def _with_seeds(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Number the runs of each cell and learning rate if the table has no seeds."""
    if "seed" in rows:
        return rows, []
    labels = [*CELL, "learning_rate"]
    if "run" in rows:
        runs = rows.drop_duplicates([*labels, "run"])
        seeds = runs.assign(seed=runs.groupby(labels, sort=False).cumcount())[[*labels, "run", "seed"]]
        return rows.merge(seeds, on=[*labels, "run"]), ["no column of seeds: runs are numbered in their order"]
    if "step" in rows:
        return rows.assign(seed=0), ["no column of seeds or run ids: every cell and learning rate is one run"]
    numbered = rows.assign(seed=rows.groupby(labels, sort=False).cumcount())
    return numbered, ["no column of seeds: rows of a cell and learning rate are numbered in their order, as seeds"]


def _check_runs(rows: pd.DataFrame) -> None:
    """Make sure that a run's id and its labels name the same rows."""
    if "run" not in rows:
        return
    mistakes = []
    firsts = rows.drop_duplicates(["run", *RUN])
    for run, found in firsts[firsts["run"].duplicated(keep=False)].groupby("run", sort=False):
        one, other = found.to_dict("records")[:2]
        differ = next(name for name in RUN if one[name] != other[name])
        mistakes.append(
            f"{other['where']}: run {run} has {differ} {other[differ]}, and {one[differ]} at {one['where']}: "
            f"a run has one; give the column of the value it was started with"
        )
    for _, found in firsts[firsts.duplicated(RUN, keep=False)].groupby(RUN, sort=False):
        one, other = found.to_dict("records")[:2]
        mistakes.append(f"{other['where']}: run {other['run']} {_repeats(one)}: give each run a seed of its own")
    raise_mistakes(mistakes)


def _check_repeated(rows: pd.DataFrame) -> None:
    """Make sure that a run has one row a step."""
    first = rows.groupby([*RUN, "step"], sort=False)["where"].transform("first")
    repeated = rows.assign(first=first)[rows["where"] != first]
    raise_mistakes(
        [
            f"{row['where']}: {_repeats(row | {'where': row['first']})}: remove one of them, or name the column that "
            "tells them apart: --columns step=..., run=... or seed=..."
            for row in repeated.to_dict("records")
        ]
    )


def _repeats(row: dict[Any, Any]) -> str:
    labels = ", ".join(f"{name} {row[name]}" for name in (*RUN, "step") if name in row)
    return f"has the {labels} of {row['where']}"


def _spread_single_tests(rows: pd.DataFrame, decisive: str) -> tuple[pd.DataFrame, list[str]]:
    """Let a run's only test value, measured once at its end, stand at all of its evaluations."""
    if "test" not in rows or decisive == "test":
        return rows, []
    by_run = rows.groupby("run_id", sort=False)
    once = by_run["test"].transform("count").eq(1) & by_run[decisive].transform("count").gt(1)
    if not once.any():
        return rows, []
    spread = rows.assign(test=rows["test"].where(~once, by_run["test"].transform("first")))
    number = rows.loc[once, "run_id"].nunique()
    return spread, [f"{number} runs have one test value: it counts as that of their best step"]


def _statuses(rows: pd.DataFrame, decisive: str) -> pd.Series:
    """Find each run's status: as its last row says, `diverged` after NaN, `missing` without a value."""
    by_run = rows.groupby("run_id", sort=False)
    found = by_run["status"].last()
    found = found.where(~(by_run["diverged"].any() & found.eq("complete")), "diverged")
    return found.where(~(by_run[decisive].count().eq(0) & found.eq("complete")), "missing")


def _ended(runs: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `RUNS` that the report reads; a missing run has none."""
    diverged_at = rows[rows["diverged"]].groupby("run_id")["step"].min()
    ended = runs[runs["status"] != "missing"][["status", "num_steps"]]
    at = diverged_at.reindex(ended.index).fillna(ended["num_steps"]).where(ended["status"] == "diverged")
    before_the_end = ended["num_steps"] - ended["status"].eq("failed")
    return ended.assign(num_steps=before_the_end, diverged_at_step=at.astype("Int64"), failure=None).reset_index()


def check_tests(runs: Runs, splits: Sequence[str]) -> None:
    """Make sure that test was measured at the steps of validation, where a table has both."""
    if "test" not in splits or "validation" not in splits:
        return
    if runs.curves["test_accuracy"].isna().all() and len(runs.curves):
        raise_mistakes(["test has no value in any row that has one of validation: measure both at the same steps"])
