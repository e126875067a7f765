"""The state of a run, and all that is known of it without reading its curve: for what is trained and what is shown."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow.compute as pc

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.columns import CURVES, DOUBTFUL, RUNS, STATUSES, Row
from lr_sweep.analysis.record.paths import Paths, RecordError, is_folder
from lr_sweep.analysis.record.read import (
    read_rows,
    read_run_rows,
    read_wanted_table,
    recorded_studies,
    stopped_of,
)
from lr_sweep.analysis.record.study import StoppedRates, key_of
from lr_sweep.common.text import failure_line, rate_text
from lr_sweep.trainables.checkpoint import checkpoints

from .directory import Results, read_state

W = TypeVar("W")
"""A wanted run: what is to be trained, or its recorded row of `WANTED`."""


class State(StrEnum):
    """What the record holds of a wanted run; the values are the words of tables and JSON, in their order."""

    COMPLETE = "complete"
    """Trained to the study's budget, or beyond it."""
    DIVERGED = "diverged"
    """Ended by a loss that was not finite; a result."""
    FAILED = "failed"
    """Ended by errors, retries included; trained again on request only."""
    STOPPED = "stopped"
    """Ended by the study's `stop_early` before its budget."""
    STARTED = "started"
    """Has a curve or a checkpoint, and steps left to train."""
    WAITING = "waiting"
    """Nothing is recorded."""

    @property
    def over(self) -> bool:
        """Whether there is nothing left to train."""
        return self in (State.COMPLETE, State.DIVERGED, State.STOPPED)

    @property
    def has_ended(self) -> bool:
        """Whether `run` without `--retry-failed` trains nothing more of it."""
        return self.over or self is State.FAILED


LABELS = ("task", "model", "variant", "learning_rate", "seed")
"""Columns of both `RUNS` and `WANTED` by which people know a run."""


def counts_json(counts: Mapping[State, int]) -> dict[str, int]:
    """Return how many runs are in each state; states without runs are left out."""
    return {state.value: counts[state] for state in State if state in counts}


def state_of(num_steps: int, end: Row | None, started: bool, stopped_early: bool = False) -> State:
    """Return the state of a run that a study wants to train `num_steps`, by its row (None: it has not ended).

    `started` is whether it has a curve or a checkpoint; it counts only if the run has not ended. `stopped_early` is
    whether the study's own rule stopped it: what the rule of another study stopped is trained further, as is what a
    user of an earlier version stopped.
    """
    if end is None:
        return State.STARTED if started else State.WAITING
    status, trained = State(end["status"]), end["num_steps"]
    # A run that passed this budget is complete, even if it diverged or failed later, under a higher one.
    if trained > num_steps or (trained == num_steps and status is not State.DIVERGED):
        return State.COMPLETE
    if status is State.COMPLETE or (status is State.STOPPED and not stopped_early):
        return State.STARTED
    return status


@dataclass(frozen=True, kw_only=True)
class RunStates(Generic[W]):
    """The runs that a study wants, and what has become of each; for all that trains, plans or shows them."""

    wanted: Sequence[W]
    states: Mapping[str, State]
    ends: Mapping[str, Row]
    """The rows of runs that have ended, by run id (`read_ends`)."""

    def counts(self) -> Counter[State]:
        """Return how many runs are in each state."""
        return Counter(self.states.values())

    @property
    def num_ended(self) -> int:
        """The number of runs that have ended."""
        return sum(state.has_ended for state in self.states.values())

    @property
    def are_left(self) -> bool:
        """Whether `run` has something to train, without `--retry-failed`."""
        return self.num_ended < len(self.states)

    def failed(self: RunStates[Row]) -> list[tuple[Row, str]]:
        """Return the rows of `WANTED` of failed runs, each with its reason in a line."""
        failed = [row for row in self.wanted if self.states[row["run_id"]] is State.FAILED]
        return [(row, failure_line(self.ends[row["run_id"]]["failure"])) for row in failed]


def states_of(
    wanted: Sequence[Row], ends: Mapping[str, Row], results: Results, stopped: StoppedRates
) -> dict[str, State]:
    """Return the states of runs by id, given by their rows of `WANTED`.

    `ends` is what `read_ends` returned; `stopped` are the learning rates that the study's rule stopped.
    """
    are_left = any(row["run_id"] not in ends for row in wanted)
    started = started_ids(results) if are_left else set()
    return {
        row["run_id"]: state_of(
            row["num_steps"],
            ends.get(row["run_id"]),
            row["run_id"] in started,
            stopped_early=not row["fresh"] and key_of(row) in stopped,
        )
        for row in wanted
    }


def recorded_states(
    results: Results, study: str, wanted: Sequence[Row], ends: Mapping[str, Row]
) -> RunStates[Row]:
    """Return the states, as they are now, of the runs that a recorded study wants, rows of `WANTED`."""
    states = states_of(wanted, ends, results, stopped_of(results.root, study))
    for run_id in training_steps(results, study):
        if states.get(run_id) is State.WAITING:
            states[run_id] = State.STARTED
    return RunStates(wanted=wanted, states=states, ends=ends)


def training_steps(results: Results, study: str) -> Mapping[str, int]:
    """Return the steps of the runs that a sweep trains for a study now, by run id, as it last wrote them."""
    holder = read_state(results.holder) if results.being_written() else {}
    if holder.get("study") != study:
        return {}
    steps: Mapping[str, int] = results.latest_progress(holder).get("training", {})
    return steps


def read_ends(
    results: Results, run_ids: Iterable[str] | None, columns: Iterable[str] = ()
) -> dict[str, Row]:
    """Return the rows of ended runs by run id; `run_ids` None: all. The directory need not exist yet.

    The columns are `run_id`, `status`, `num_steps` and those of `RUNS` that are asked for. Raises RecordError for a
    damaged file, or a status that this version does not know.
    """
    if not results.exists():
        return {}
    ends: dict[str, Row] = {}
    for row in read_run_rows(results.root, run_ids, {"run_id", "status", "num_steps", *columns}):
        if row["status"] not in STATUSES:
            path = results.run(row["run_id"])
            raise RecordError(
                f"{path}: got status {row['status']!r}: delete it and run the study again"
            )
        ends[row["run_id"]] = row
    return ends


def recorded_ids(results: Results) -> list[str]:
    """Return the ids of runs with a row, a curve or a folder of checkpoints, sorted."""
    files = [
        path for folder in (results.runs, results.curves) for path in folder.glob("[!.]*.parquet")
    ]
    folders = [path for path in results.all_checkpoints.glob("[!.]*") if is_folder(path)]
    return sorted({path.stem for path in files} | {path.name for path in folders})


def started_ids(results: Results) -> set[str]:
    """Return the ids of runs that have a curve or a folder of checkpoints, ended or not; opens no file."""
    ids: set[str] = set()
    for folder in (results.curves, results.all_checkpoints):
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            ids |= {
                entry.name.removesuffix(".parquet")
                for entry in entries
                if entry.name[0] != "." and (entry.name.endswith(".parquet") or entry.is_dir())
            }
    return ids


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """What a results directory holds of a run."""

    run_id: str
    row: Row | None
    """Its row of `RUNS`, perhaps with some columns alone; None: it has not ended."""
    curve: Sequence[Row] = ()
    """Its evaluations, ordered by step; empty: it has none, or they were not read."""
    wanted: Mapping[str, Row] = field(default_factory=dict)
    """Its rows of `WANTED`, by the studies that want it."""
    started: bool = False
    """Whether it has a curve or a checkpoint; False: it was not looked for."""

    @property
    def labels(self) -> Row | None:
        """A row with `LABELS`: those of the first study that wants it; None: no study does, and it has no row."""
        return next(iter(self.wanted.values()), self.row)

    @property
    def budgets(self) -> dict[str, int]:
        """Gradient steps, by the studies that want the run."""
        return {study: row["num_steps"] for study, row in self.wanted.items()}

    @property
    def status(self) -> State:
        """Return how it ended, else `STARTED` or `WAITING`."""
        if self.row is not None:
            return State(self.row["status"])
        return State.STARTED if self.started else State.WAITING

    @property
    def doubt(self) -> str:
        """Text to add to the status of a run whose resume may have changed its numbers; else empty."""
        resumed = (self.row or {}).get("resumed")
        return f", resumed {resumed}" if resumed in DOUBTFUL else ""


def read_run(results: Path, run_id: str) -> RecordedRun | None:
    """Read a run's row and curve (None: there is neither); raises RecordError for a damaged file."""
    rows, curve = (
        read_rows(Paths(results).run(run_id), RUNS),
        read_rows(Paths(results).curve(run_id), CURVES),
    )
    if rows is None and not curve:
        return None
    if rows is not None and len(rows) != 1:
        raise RecordError(f"{Paths(results).run(run_id)}: got {len(rows)} rows, want 1: delete it")
    return RecordedRun(run_id=run_id, row=rows[0] if rows else None, curve=curve or [])


def read_all_wanted(results: Results, run_id: str | None = None) -> dict[str, list[Row]]:
    """Return id, labels, budget and freshness of what each recorded study wants; raises RecordError for a damaged file.

    `run_id`: this run alone; None: all.
    """
    names = ["run_id", *LABELS, "num_steps", "fresh"]
    tables = {
        study: read_wanted_table(results.root, study).select(names)
        for study in recorded_studies(results.root)
    }
    if run_id is not None:
        tables = {
            study: table.filter(pc.equal(table["run_id"], run_id))
            for study, table in tables.items()
        }
    return {study: table.to_pylist() for study, table in tables.items()}


def known_ids(results: Results) -> set[str]:
    """Return the ids of all runs that are wanted or recorded; reads no row of the record."""
    wanted = [
        read_wanted_table(results.root, study)["run_id"] for study in recorded_studies(results.root)
    ]
    return {*recorded_ids(results), *(run_id for ids in wanted for run_id in ids.to_pylist())}


def known_runs(
    results: Results,
    wanted: Mapping[str, list[Row]],
    columns: Iterable[str] = (),
    run_id: str | None = None,
) -> list[RecordedRun]:
    """Return every run without its curve: those of studies in the order of `wanted`, then the others by their labels.

    `columns` are read into `row` beside its status and steps. `run_id`: read this run alone; None: all.
    """
    ends = read_ends(results, None if run_id is None else [run_id], (*LABELS, *columns))
    started = started_ids(results) if run_id is None else started_ids(results) & {run_id}
    asked: dict[str, dict[str, Row]] = {}
    for study, rows in wanted.items():
        for row in rows:
            asked.setdefault(row["run_id"], {})[study] = row
    unwanted = sorted(
        ends.keys() - asked.keys(), key=lambda run_id: [ends[run_id][name] for name in LABELS]
    )
    unlabelled = sorted(started - asked.keys() - ends.keys())
    return [
        RecordedRun(
            run_id=known_id,
            row=ends.get(known_id),
            wanted=asked.get(known_id, {}),
            started=known_id in started,
        )
        for known_id in [*asked, *unwanted, *unlabelled]
    ]


def checkpoint_step(results: Results, run_id: str) -> int | None:
    """Return the step in the name of a run's newest checkpoint; None: it has none."""
    newest_first = checkpoints(results.checkpoints(run_id))
    return int(newest_first[0].name.split("-")[1]) if newest_first else None


def metric_of(end: Row | None) -> Metric:
    """Return what was measured of a run, by its own content: accuracy, unless it has ended and says otherwise."""
    metric = json.loads(end["content"]).get("metric") if end is not None else None
    return ACCURACY if metric is None else Metric(**metric)


def flattened(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn `{"protocol": {"dropout": 0.1}}`, of a run's content, into `{"protocol.dropout": 0.1}`."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= (
            flattened(value, f"{prefix}{key}.")
            if isinstance(value, Mapping)
            else {prefix + key: value}
        )
    return flat


def run_title(labels: Row) -> str:
    """Return a run's `LABELS` in a line."""
    return "{} {} {} {} seed {}".format(*(label(labels, name) for name in LABELS))


def label(labels: Row | None, name: str) -> str:
    """Return one of a run's `LABELS` as tables show it."""
    if labels is None:
        return "-"
    return rate_text(labels[name]) if name == "learning_rate" else str(labels[name])
