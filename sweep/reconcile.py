"""What the study wants, less what the record holds: the one place that decides what is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.results import Results
from sweep.runs import WantedRun
from sweep.standing import NEEDED, Row, State, read_ends, states_of

CODE = ("code", "git_commit")
"""Columns that say which code trained a run."""


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """Every wanted run with its state, and those to train now."""

    states: dict[str, State]
    """By run id, in the study's order."""
    to_train: tuple[WantedRun, ...]
    ends: dict[str, Row]
    """By run id, of runs that have ended: `CODE` of its row."""

    def counts(self) -> Counter[State]:
        """Return how many runs are in each state."""
        return Counter(self.states.values())


def reconcile(wanted: Sequence[WantedRun], results: Results, *, max_attempts: int = 0) -> Reconciled:
    """Compare what is wanted with the record.

    Args:
        wanted: a study's runs.
        results: need not exist yet.
        max_attempts: train failed runs again that were started fewer times than this; 0: none.

    Raises:
        RecordError: a file of the record is damaged.
    """
    ends = read_ends(results, [run.run_id for run in wanted], (*NEEDED, "attempts", *CODE))
    found = states_of([(run.run_id, run.num_steps) for run in wanted], ends, results)
    states = {run.run_id: state for run, state in zip(wanted, found, strict=True)}
    again = {run_id for run_id, end in ends.items() if end["attempts"] < max_attempts}
    to_train = [run for run in wanted if _is_open(states[run.run_id], run.run_id in again)]
    return Reconciled(states=states, to_train=tuple(to_train), ends=ends)


def _is_open(state: State, try_again: bool) -> bool:
    return state in (State.NEW, State.STARTED) or (state is State.FAILED and try_again)
