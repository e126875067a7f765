"""What the study wants, less what the record holds: the one place that decides what is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lr_sweep.analysis.record.rungs import NOTHING_STOPPED, StoppedRates
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import RunStates, State, read_ends, states_of
from lr_sweep.sweep.study.only import ALL_RUNS, Only, select
from lr_sweep.sweep.study.runs import WantedRun


@dataclass(frozen=True, kw_only=True)
class Reconciled(RunStates[WantedRun]):
    """Every wanted run with its state, and the runs to train now."""

    left: tuple[WantedRun, ...]
    """The runs that are not over, also those that `only` leaves out."""
    only: Only

    @cached_property
    def to_train(self) -> tuple[WantedRun, ...]:
        """The runs to train now; raises UserError if no run has the values of `only`."""
        if not self.only:
            return self.left
        chosen = {run.run_id for run in select(self.wanted, self.only)}
        return tuple(run for run in self.left if run.run_id in chosen)

    def with_new(self, runs: Sequence[WantedRun]) -> Reconciled:
        """Return this with further runs, of which the record holds nothing."""
        if not runs:
            return self
        states = {**self.states, **{run.run_id: State.WAITING for run in runs}}
        return replace(self, wanted=[*self.wanted, *runs], states=states, left=(*self.left, *runs))


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
    """
    ends = read_ends(results, [run.run_id for run in wanted], ("attempts", "code", "git_commit"))
    early = {run.run_id for run in wanted if not run.fresh and (*run.cell, run.run.learning_rate) in stopped}
    states = states_of({run.run_id: run.num_steps for run in wanted}, ends, results, early)

    def is_open(run_id: str) -> bool:
        if states[run_id].on_request:
            return bool(ends[run_id]["attempts"] < max_attempts)
        return not states[run_id].over

    left = tuple(run for run in wanted if is_open(run.run_id))
    return Reconciled(wanted=wanted, states=states, left=left, ends=ends, only=only)
