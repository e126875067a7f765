"""What the study wants, less what the record holds: the one place that decides what is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

import pandas as pd

from analysis.record import read_runs
from sweep.results import Results
from sweep.runs import WantedRun


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


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """Every wanted run with its state, and those to train now."""

    states: dict[str, State]
    """By run id, in the study's order."""
    to_train: tuple[WantedRun, ...]

    def counts(self) -> Counter[State]:
        """Return how many runs are in each state."""
        return Counter(self.states.values())


def reconcile(wanted: Sequence[WantedRun], results: Results, *, retry_failed: bool = False) -> Reconciled:
    """Compare what is wanted with the record.

    Args:
        wanted: a study's runs.
        results: need not exist yet.
        retry_failed: train failed runs again.

    Raises:
        RecordError: a file of the record is damaged.
    """
    rows = _rows_by_id(wanted, results)
    states = {run.run_id: _state(run, rows.get(run.run_id), results) for run in wanted}
    left = {State.NEW, State.STARTED} | ({State.FAILED} if retry_failed else set())
    return Reconciled(states=states, to_train=tuple(run for run in wanted if states[run.run_id] in left))


def _rows_by_id(wanted: Sequence[WantedRun], results: Results) -> dict[str, pd.Series]:
    if not results.exists():
        return {}
    rows = read_runs(results.root, [run.run_id for run in wanted])
    return {row["run_id"]: row for _, row in rows.iterrows()}


def _state(run: WantedRun, row: pd.Series | None, results: Results) -> State:
    if row is None:
        started = results.curve(run.run_id).exists() or results.checkpoints(run.run_id).is_dir()
        return State.STARTED if started else State.NEW
    if row["status"] == "complete":
        return State.COMPLETE if row["num_steps"] >= run.num_steps else State.STARTED
    return State(row["status"])


def cohorts(to_train: Sequence[WantedRun], runs_per_trial: int) -> list[tuple[WantedRun, ...]]:
    """Group runs into what one trial trains: neighbours of one cell and seed, at most `runs_per_trial` of them."""
    size = runs_per_trial
    groups = [tuple(runs) for _, runs in groupby(to_train, key=lambda run: (run.run.seed, run.cell))]
    return [group[start : start + size] for group in groups for start in range(0, len(group), size)]
