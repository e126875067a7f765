"""Ray Tune in a thread: the trials that it starts, and the callback that forwards what they report and stops Tune."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray import tune

from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, remove_tree
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.trainables.own.run import FAILURE
from lr_sweep.trainables.worker import ray_trainable
from lr_sweep.trainables.worker.messages import Cohort, Finished, evaluations
from lr_sweep.trainables.worker.ray_internals import KILLED, give_retry_back, replace_parts_of_tune

from .nodes import Machines
from .ray_session import RayLostError, lost_processes
from .trials import (
    WORKER_DID_NOT_START,
    Leave,
    Reported,
    StorageFailed,
    TrialEvent,
    TrialFailed,
    TrialInterrupted,
    TrialStarted,
)

TICK_S = 0.2
"""The longest time between two events that `train_cohorts` yields; None is the event of no event."""
LEAVING_S = 20.0
"""Seconds that Tune may take to stop after Ray has died. Without its GCS, Ray (2.60) ends this process after 60 s."""
LEAVING_AT_ONCE_S = 1.0
"""Seconds that Tune may take to stop where no run trains and the user waits; Tune looks about every 0.1 s."""
TRIALS = "trials"
"""Folder of Tune's state in the scratch folder, whose lock keeps other sweeps from removing both."""


class SweepStoppedError(Exception):
    """Tune was asked to stop; trials have saved their runs."""


class SweepLeftError(BaseException):
    """Tune was asked to stop while no run trained; not an Exception, after which Tune would wait for its trials."""


def train_cohorts(
    cohorts: Sequence[Cohort],
    placement: Placement,
    scratch: Path,
    machines: Machines,
    leave: Leave,
    at_most: int | None,
) -> Generator[TrialEvent | None, None, None]:
    """Train every cohort as one trial, in the order given, as many at once as fit. Needs a `ray_session`.

    Tune runs in a thread, where it cannot take over the handling of signals. Its callback puts events in a queue
    without bound: training never waits for the reader, and all that was reported before a stop is read after it.
    Closing the iterator stops Tune, too.

    Args:
        scratch: gets a folder with Tune's own state, which is removed.
        machines: knows the machines of trials, over several calls.
        leave: when set, trials save their runs, and the sequence ends when all have, or at once.
        at_most: trials at once, however many fit; None: as many as fit.

    Yields what happens, in order; None at least every `TICK_S` while nothing does. Raises RayLostError if Ray died; the
    runs that it trained resume from their checkpoints in another session. Raises UserError if Tune itself failed.
    """
    events: queue.SimpleQueue[TrialEvent] = queue.SimpleQueue()
    problems: list[Exception] = []
    callback = EventCallback(events.put, leave, machines)
    tune = new_tuner(cohorts, placement, scratch, callback, at_most)

    def run_tune() -> None:
        try:
            tune.fit()
        except (SweepStoppedError, SweepLeftError):
            pass
        except Exception as problem:  # raised in the reader's thread
            traceback.print_exc()
            problems.append(problem)
        finally:
            remove_tree(scratch / TRIALS)

    thread = threading.Thread(target=run_tune, name="tune", daemon=True)
    thread.start()
    try:
        while thread.is_alive() and not (leave.at_once or lost_processes()):
            yield _next(events, TICK_S)
    finally:
        leave.set()
        _wait(thread, leave)
    while (event := _next(events, 0.0)) is not None:
        yield event
    if leave.at_once:
        return
    if died := lost_processes():
        raise RayLostError(f"Ray died ({', '.join(died)} ended unexpectedly)")
    if problems:
        raise UserError(
            f"Ray Tune failed ({reason(problems[0])}); its log has the traceback. What is recorded is intact, and the "
            f"same command resumes from the runs' checkpoints."
        ) from problems[0]


def _next(events: queue.SimpleQueue[TrialEvent], timeout_s: float) -> TrialEvent | None:
    try:
        return events.get(timeout=timeout_s)
    except queue.Empty:
        return None


def _wait(thread: threading.Thread, leave: Leave) -> None:
    """Wait until Tune has stopped, but leave it behind if it hangs in a dead Ray, or has nothing to save."""
    if leave.at_once:
        thread.join(LEAVING_AT_ONCE_S)
        return
    patience_s = LEAVING_S
    while thread.is_alive() and patience_s > 0:
        began = time.monotonic()
        thread.join(TICK_S)
        patience_s -= time.monotonic() - began if lost_processes() else 0.0


def new_tuner(
    cohorts: Sequence[Cohort],
    placement: Placement,
    scratch: Path,
    callback: EventCallback,
    at_most: int | None,
) -> tune.Tuner:
    """Return a tuner that trains each cohort as one trial, in the order given; arguments as of `train_cohorts`."""
    replace_parts_of_tune()
    resources: Any = {"cpu": placement.trial["CPU"], "gpu": placement.trial["GPU"]}
    if excluded := callback.machines.excluded:  # Ray (2.60) gives every node its id as a label
        elsewhere = {"ray.io/node-id": f"!in({','.join(sorted(excluded))})"}
        resources = tune.PlacementGroupFactory([placement.trial], bundle_label_selector=[elsewhere])
    given = Given(cohorts)
    remove_tree(scratch / TRIALS)
    return tune.Tuner(
        tune.with_resources(ray_trainable.CohortTrainable, resources),
        # A function of one key: of a grid with many values, Tune would copy all of them for each trial.
        param_space={"trial": tune.sample_from(lambda _: {"cohort": next(given.cohorts)})},
        tune_config=tune.TuneConfig(
            num_samples=len(cohorts),
            max_concurrent_trials=at_most,
            reuse_actors=True,
            # Tune's own names of trials cut learning rates to four decimals.
            trial_name_creator=lambda _: next(given.names),
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name=TRIALS,
            storage_path=str(scratch),
            callbacks=[callback],
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=0, checkpoint_at_end=False
            ),
            failure_config=tune.FailureConfig(max_failures=placement.resources.retries),
            verbose=0,
            # In a notebook Tune (2.60) would take one that removes what the cell has printed.
            progress_reporter=tune.CLIReporter(),
        ),
    )


class Given:
    """The cohorts and their names, which Tune takes one by one in this order."""

    def __init__(self, cohorts: Sequence[Cohort]) -> None:
        self.cohorts, self.names = iter(cohorts), iter([cohort.name for cohort in cohorts])

    def __getstate__(self) -> Fields:
        """Leave everything out: Tune would pickle all of it with each trial, for a restore that is never asked for."""
        return {}


def cohort_of_trial(trial: Any) -> Cohort:
    """Return what a trial trains."""
    cohort: Cohort = trial.config["trial"]["cohort"]
    return cohort


class EventCallback(tune.Callback):
    """Forwards events, and raises where Tune must stop. Tune calls it in its own thread.

    `put` is called with each event; Tune stops when `leave` is set; a trial that only lost its machine has not failed.
    """

    def __init__(self, put: Callable[[TrialEvent], None], leave: Leave, machines: Machines) -> None:
        self.put, self.leave, self.machines = put, leave, machines
        self._ended: set[str] = set()
        """Ids of the runs that have ended."""

    def __getstate__(self) -> Fields:
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
        node = self.machines.started(trial)
        self.put(TrialStarted(run_ids=cohort_of_trial(trial).run_ids, node=node))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: Fields, **info: Any
    ) -> None:
        """Forward what the trial reported."""
        events = result.get("events", [])
        for event in events:
            self.machines.reported(event)
            if isinstance(event, Finished):
                self._ended.add(event.run_id)
            self.put(event)
        if any(map(evaluations, events)):
            self.put(Reported())
        if "storage_problem" in result:
            self.put(StorageFailed(reason=result["storage_problem"]))
        if "failed" in result:  # a retry would fail, too
            self.put(
                TrialFailed(
                    run_ids=cohort_of_trial(trial).run_ids,
                    reason=result["failed"],
                    node=self.machines.node_of(trial),
                )
            )

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial that has no retries left, unless Tune was stopped or Ray died: then no trial is at fault."""
        if self.leave.is_set() or lost_processes():
            return
        lost_machine = self._lost_machine(trial)
        self.put(lost_machine or TrialFailed(**self._failure(trial)))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial that crashed and will be retried with what is left of it; a lost machine uses no retry up.

        After a kill for lack of memory the retry trains half as many runs at once.
        """
        if event := self._lost_machine(trial):
            give_retry_back(trial)
        else:
            event = TrialInterrupted(**self._failure(trial))
        self.put(event)

        cohort = cohort_of_trial(trial)
        left = tuple(run for run in cohort.runs if run.run_id not in self._ended)
        at_once = cohort.runs_at_once
        if KILLED in (event.reason or ""):
            at_once = max(1, at_once // 2)
        retried = replace(cohort, runs=left or cohort.runs, runs_at_once=at_once)
        trial.config["trial"] = {"cohort": retried}

    def _failure(self, trial: Any) -> Fields:
        # Each failed attempt adds a traceback to Ray's file.
        text = (
            Path(trial.error_file).read_text().rpartition("\nFailure # ")[2]
            if trial.error_file
            else ""
        )
        node = self.machines.failed_on(trial, text)
        return {"run_ids": cohort_of_trial(trial).run_ids, "reason": failure_of(text), "node": node}

    def _lost_machine(self, trial: Any) -> TrialInterrupted | None:
        """Return the event of a trial that only lost its machine; None: the trial itself has failed."""
        run_ids = cohort_of_trial(trial).run_ids
        if self.machines.lost(trial) and self.machines.overlook_loss(run_ids):
            return TrialInterrupted(run_ids=run_ids)
        return None


def failure_of(text: str) -> str:
    """Return the exception from a traceback of Ray's: the first line of it, since CUDA's errors share the others.

    Of a training function of the user's own, return its whole traceback.
    """
    if FAILURE in text:
        return text.rpartition(FAILURE)[2].strip()
    before, _, last_frame = text.rpartition('  File "')
    lines = [
        line for line in last_frame.splitlines()[bool(before) :] if line and not line[0].isspace()
    ]
    exception = lines[0 if before else -1] if lines else "the worker died without a message"
    return f"{WORKER_DID_NOT_START}: {exception}" if "creation task" in text else exception
