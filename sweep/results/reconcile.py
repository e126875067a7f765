"""What the study wants, less what the record holds: the one place that decides what is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lr_sweep.analysis.record.rungs import NOTHING_STOPPED, StoppedRates
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import Row, State, read_ends, states_of
from lr_sweep.sweep.study.only import ALL_RUNS, Only, select
from lr_sweep.sweep.study.runs import WantedRun


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """Every wanted run with its state, and the runs to train now."""

    states: dict[str, State]
    """By run id, in the study's order."""
    to_train: tuple[WantedRun, ...]
    ends: dict[str, Row]
    """The rows of runs that have ended, by run id; with `code` and `git_commit`, which say what code trained them."""

    def counts(self) -> Counter[State]:
        """Return how many runs are in each state."""
        return Counter(self.states.values())


def reconcile(
    wanted: Sequence[WantedRun],
    results: Results,
    *,
    max_attempts: int = 0,
    only: Only = ALL_RUNS,
    stopped: StoppedRates = NOTHING_STOPPED,
) -> Reconciled:
    """Compare a study's runs with the record, which need not exist yet.

    A run of `only` is trained if it is new or started, and a failed or stopped one if it was started fewer than
    `max_attempts` times. `stopped` are the learning rates that the study's `stop_early` stopped.

    Raises UserError if no run has the values of `only`.
    """
    ends = read_ends(results, [run.run_id for run in wanted], ("attempts", "code", "git_commit"))
    early = {run.run_id for run in wanted if not run.fresh and (*run.cell, run.run.learning_rate) in stopped}
    found = states_of([(run.run_id, run.num_steps) for run in wanted], ends, results, early)
    states = {run.run_id: state for run, state in zip(wanted, found, strict=True)}

    def is_open(run_id: str) -> bool:
        if states[run_id].on_request:
            return bool(ends[run_id]["attempts"] < max_attempts)
        return not states[run_id].over

    to_train = tuple(run for run in select(wanted, only) if is_open(run.run_id))
    return Reconciled(states=states, to_train=to_train, ends=ends)
