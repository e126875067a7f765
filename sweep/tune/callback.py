"""Tune callback that forwards what trials report, and stops Tune."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune

from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import lost_processes
from lr_sweep.sweep.tune.trial_events import Leave, Reported, StorageFailed, TrialEvent, TrialFailed, TrialInterrupted
from lr_sweep.trainables.cohort import Cohort
from lr_sweep.trainables.events import Advanced, Report, Started
from lr_sweep.trainables.own.code import FAILURE


class SweepStoppedError(Exception):
    """Tune was asked to stop; trials have saved their runs."""


class SweepLeftError(BaseException):
    """Tune was asked to stop while no run trained; not an Exception, after which Tune would wait for its trials."""


class EventCallback(tune.Callback):
    """Forwards events, and raises where Tune must stop. Tune calls it in its own thread.

    `put` is called with each event; Tune stops when `leave` is set; a trial that only lost its machine has not failed.
    """

    def __init__(self, put: Callable[[TrialEvent], None], leave: Leave, machines: Machines) -> None:
        self.put, self.leave, self.machines = put, leave, machines

    def __getstate__(self) -> dict[str, Any]:
        """Leave everything out: Tune pickles its callbacks for a restore that is never asked for."""
        return {}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Stop between two of Tune's steps: Tune then stops every trial, and each saves its runs."""
        if self.leave.at_once:
            raise SweepLeftError
        if self.leave.is_set():
            raise SweepStoppedError

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Remember the trial's machine."""
        self.machines.started(trial, cohort_of(trial).run_ids)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Forward what the trial reported."""
        for event in result.get("events", []):
            self.machines.reported(event)
            self.put(event)
        if any(map(_has_evaluations, result.get("events", []))):
            self.put(Reported())
        if "storage_problem" in result:
            self.put(StorageFailed(reason=result["storage_problem"]))
        if "out_of_memory" in result:
            self.put(TrialFailed(run_ids=cohort_of(trial).run_ids, reason=result["out_of_memory"]))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial that has no retries left, unless Tune was stopped or Ray died: then no trial is at fault."""
        if self.leave.is_set() or lost_processes():
            return
        run_ids = cohort_of(trial).run_ids
        if self._only_lost_its_machine(trial):
            self.put(TrialInterrupted(run_ids=run_ids))
        else:
            self.put(TrialFailed(run_ids=run_ids, reason=failure_of(trial.error_file)))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial that crashed and will be retried; a lost machine uses no retry up."""
        reason: str | None = failure_of(trial.error_file)
        if self._only_lost_its_machine(trial):
            trial.run_metadata.num_failures -= 1
            reason = None
        self.put(TrialInterrupted(run_ids=cohort_of(trial).run_ids, reason=reason))

    def _only_lost_its_machine(self, trial: Any) -> bool:
        return self.machines.lost(trial) and self.machines.overlook_loss(cohort_of(trial).run_ids)


def _has_evaluations(event: Report) -> bool:
    match event:
        case Started():
            return bool(event.curve)
        case Advanced():
            return event.evaluation is not None
    return False


def cohort_of(trial: Any) -> Cohort:
    """Return what a trial of Tune trains."""
    cohort: Cohort = trial.config["trial"]["cohort"]
    return cohort


def failure_of(error_file: str | None) -> str:
    """Return the exception from Ray's file of tracebacks, which is its last line that is not indented.

    Of a training function of the user's own, return its whole traceback.
    """
    text = Path(error_file).read_text() if error_file is not None else ""
    if FAILURE in text:
        return text.rpartition(FAILURE)[2].strip()
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else "the worker died without a message"
