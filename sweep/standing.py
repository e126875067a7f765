"""Where a wanted run stands in the record: the one definition, of what is trained and of what is shown."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from analysis.record import RecordError, read_run_rows
from sweep.results import Results

Row = Mapping[str, Any]
"""Columns of a table of `analysis.columns`, by name."""

NEEDED = ("run_id", "status", "num_steps")
"""Columns that `state_of` looks at."""


class State(Enum):
    """Where a wanted run stands in the record."""

    COMPLETE = "complete"
    """Trained to the study's budget, or beyond it."""
    DIVERGED = "diverged"
    """Ended by a loss that was not finite; a result."""
    FAILED = "failed"
    """Ended by errors, retries included; trained again on request only."""
    STARTED = "started"
    """Has a curve or a checkpoint, and steps to go."""
    NEW = "new"
    """Nothing is there."""

    @property
    def over(self) -> bool:
        """Whether there is nothing left to train."""
        return self in (State.COMPLETE, State.DIVERGED)


SHOWN = {state: state.value for state in State} | {State.NEW: "waiting"}
"""What tables of a study's progress call a state, in their order."""


def read_ends(results: Results, run_ids: Iterable[str] | None, names: Collection[str] = NEEDED) -> dict[str, Row]:
    """Return the rows of ended runs by run id.

    Args:
        results: need not exist yet.
        run_ids: which runs; None: all.
        names: columns to read.

    Raises:
        RecordError: a file of the record is damaged.
    """
    if not results.exists():
        return {}
    return {row["run_id"]: row for row in read_run_rows(results.root, run_ids, names)}


def states_of(wanted: Sequence[tuple[str, int]], ends: Mapping[str, Row], results: Results) -> list[State]:
    """Return the states of runs, given by id and budget, in their order; `ends` as `read_ends` gives them."""
    started = started_ids(results) if any(run_id not in ends for run_id, _ in wanted) else set()
    return [state_of(run_id, num_steps, ends.get(run_id), results, started) for run_id, num_steps in wanted]


def state_of(
    run_id: str, num_steps: int, end: Row | None, results: Results, started: Collection[str] | None = None
) -> State:
    """Tell where a run stands that a study wants up to a budget of `num_steps`.

    Args:
        run_id: the run.
        num_steps: gradient steps wanted of it.
        end: its row of the record; None: it has not ended.
        results: where to look for what a run leaves that has not ended.
        started: as `started_ids` gives them, where many runs are looked at; None: look for this one.

    Raises:
        RecordError: the row has no status of ours.
    """
    if end is None:
        there = is_started(run_id, results) if started is None else run_id in started
        return State.STARTED if there else State.NEW
    try:
        status = State(end["status"])
    except ValueError as error:
        path = results.run(run_id)
        raise RecordError(f"{path}: got status {end['status']!r}: delete it and run the study again") from error
    if end["num_steps"] >= num_steps and not (status is State.DIVERGED and end["num_steps"] == num_steps):
        return State.COMPLETE  # whatever happened to it later, under another study's higher budget
    return State.STARTED if status is State.COMPLETE else status


def is_started(run_id: str, results: Results) -> bool:
    """Tell whether a run that has no row has left a curve or a checkpoint."""
    return results.curve(run_id).exists() or results.checkpoints(run_id).is_dir()


def started_ids(results: Results) -> set[str]:
    """Return the ids of runs that have a curve or a folder of checkpoints, ended or not; opens no file."""
    curves = {e.name.removesuffix(".parquet") for e in _entries(results, "curves") if e.name.endswith(".parquet")}
    return curves | {entry.name for entry in _entries(results, "checkpoints") if entry.is_dir()}


def _entries(results: Results, folder: str) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in os.scandir(results.root / folder) if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
