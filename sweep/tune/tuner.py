"""What runs inside Tune: the callback that forwards what trials report and stops Tune, and where Tune is changed."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError

from lr_sweep.sweep.plan.packing import KILLED
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import lost_processes
from lr_sweep.sweep.tune.trial_events import (
    Leave,
    Reported,
    StorageFailed,
    TrialEvent,
    TrialFailed,
    TrialInterrupted,
    WorkerReplaced,
)
from lr_sweep.trainables.own.code import FAILURE
from lr_sweep.trainables.worker import ray_trainable
from lr_sweep.trainables.worker.cohort import Cohort
from lr_sweep.trainables.worker.events import evaluations
from lr_sweep.trainables.worker.ray_internals import in_notebook, tune_parts

SAVING_S = 3600.0
"""How long a trial that is asked to stop may take to end the step or evaluation under way, and to save."""


class SweepStoppedError(Exception):
    """Tune was asked to stop; trials have saved their runs."""


class SweepLeftError(BaseException):
    """Tune was asked to stop while no run trained; not an Exception, after which Tune would wait for its trials."""


def new_tuner(
    cohorts: Sequence[Cohort], placement: Placement, scratch: Path, callback: EventCallback, at_most: int | None
) -> tune.Tuner:
    """Return a tuner that trains each cohort as one trial, in the order given; arguments as of `train_cohorts`."""
    patch_tune()
    resources: Any = {"cpu": placement.trial["CPU"], "gpu": placement.trial["GPU"]}
    if excluded := callback.machines.excluded:  # Ray (2.60) gives every node its id as a label
        elsewhere = {"ray.io/node-id": f"!in({','.join(sorted(excluded))})"}
        resources = tune.PlacementGroupFactory([placement.trial], bundle_label_selector=[elsewhere])
    # The name beside the cohort: Tune names a trial before it puts objects, cohorts among them, into its config.
    configs = [{"name": cohort.name, "cohort": cohort} for cohort in cohorts]
    shutil.rmtree(scratch, ignore_errors=True)
    return tune.Tuner(
        tune.with_resources(ray_trainable.CohortTrainable, resources),
        # One list under one key: Tune runs it in the order given, where several axes would be sorted by name.
        param_space={"trial": tune.grid_search(configs)},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=at_most,
            reuse_actors=True,
            # Tune's own names of trials cut learning rates to four decimals.
            trial_name_creator=lambda trial: trial.config["trial"]["name"],
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="trials",
            storage_path=str(scratch),
            callbacks=[callback],
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            failure_config=tune.FailureConfig(max_failures=placement.resources.retries),
            verbose=0,
            # In a notebook Tune (2.60) would take one that removes what the cell has printed; a terminal has none.
            progress_reporter=tune.CLIReporter() if in_notebook() else None,
        ),
    )


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
        self.machines.started(trial, _cohort_of(trial).run_ids)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Forward what the trial reported."""
        events = result.get("events", [])
        for event in events:
            self.machines.reported(event)
            self.put(event)
        if any(map(evaluations, events)):
            self.put(Reported())
        if "storage_problem" in result:
            self.put(StorageFailed(reason=result["storage_problem"]))
        if "failed" in result:  # a retry would fail, too
            run_ids = _cohort_of(trial).run_ids
            node = self.machines.node_of(run_ids[0])
            self.put(TrialFailed(run_ids=run_ids, reason=result["failed"], node=node))
        if "outgrown" in result:
            self.put(WorkerReplaced(reason=result["outgrown"]))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Drop Tune's statistics of what the trial reported, which no one reads."""
        trial.run_metadata.metric_analysis.clear()
        trial.run_metadata.metric_n_steps.clear()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial that has no retries left, unless Tune was stopped or Ray died: then no trial is at fault."""
        if self.leave.is_set() or lost_processes():
            return
        run_ids = _cohort_of(trial).run_ids
        if self._only_lost_its_machine(trial):
            self.put(TrialInterrupted(run_ids=run_ids))
        else:
            text = last_failure(trial.error_file)
            self.put(TrialFailed(run_ids=run_ids, reason=failure_of(text), node=self.machines.failed_on(trial, text)))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial that crashed and will be retried; a lost machine uses no retry up."""
        run_ids = _cohort_of(trial).run_ids
        if self._only_lost_its_machine(trial):
            trial.run_metadata.num_failures -= 1
            self.put(TrialInterrupted(run_ids=run_ids))
        else:
            text = last_failure(trial.error_file)
            node = self.machines.failed_on(trial, text)
            self.put(TrialInterrupted(run_ids=run_ids, reason=failure_of(text), node=node))

    def _only_lost_its_machine(self, trial: Any) -> bool:
        return self.machines.lost(trial) and self.machines.overlook_loss(_cohort_of(trial).run_ids)


def _cohort_of(trial: Any) -> Cohort:
    """Return what a trial of Tune trains."""
    cohort: Cohort = trial.config["trial"]["cohort"]
    return cohort


def last_failure(error_file: str | None) -> str:
    """Return the last traceback of Ray's file of a trial, to which each failed attempt adds one."""
    return Path(error_file).read_text().rpartition("\nFailure # ")[2] if error_file is not None else ""


def failure_of(text: str) -> str:
    """Return the exception from a traceback of Ray's: the first line of it, since CUDA's errors share the others.

    Of a training function of the user's own, return its whole traceback.
    """
    if FAILURE in text:
        return text.rpartition(FAILURE)[2].strip()
    before, _, last_frame = text.rpartition('  File "')
    lines = [line for line in last_frame.splitlines()[bool(before) :] if line and not line[0].isspace()]
    return lines[0 if before else -1] if lines else "the worker died without a message"


RayActorManager, TuneController, class_cache, variant_generator = tune_parts()
_task_failed, _trial_failed = RayActorManager._actor_task_failed, TuneController._process_trial_failure
_task_resolved = RayActorManager._actor_task_resolved
_keep_worker, _keep_state = TuneController._maybe_cache_trial_actor, TuneController._mark_trial_to_checkpoint
_reuse_worker = TuneController._maybe_reuse_cached_actor
_products = variant_generator._grid_search_generator


def patch_tune() -> None:
    """Change Tune (2.60) in this process; a second call changes nothing."""
    # Tune would copy the driver's AWS keys, among others, into what Ray keeps and logs of each worker. An environment
    # of its own would keep a trial out of the workers that Ray starts beforehand.
    class_cache.ENV_VARS_TO_PROPAGATE, class_cache.DEFAULT_ENV_VARS = frozenset(), {}
    # It would kill a trial 10 s after asking it to stop, in the middle of an evaluation for one.
    TuneController._actor_force_cleanup_timeout = property(lambda _: SAVING_S, lambda *_: None)
    RayActorManager._actor_task_failed = _task_failed_of_any_death
    RayActorManager._actor_task_resolved = _task_resolved_and_forgotten
    TuneController._process_trial_failure = _trial_failed_out_of_memory
    TuneController._maybe_cache_trial_actor = _keep_worker_unless_outgrown
    TuneController._maybe_reuse_cached_actor = _reuse_worker_but_let_others_start
    TuneController._mark_trial_to_checkpoint = _keep_state_unless_ours
    variant_generator._grid_search_generator = _variants


def _variants(spec: dict[str, Any], grids: Sequence[tuple[Sequence[str], list[Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the spec of each trial; Tune would copy the whole list for each, in a time that grows with its square."""
    if len(grids) != 1:
        yield from _products(spec, grids)
        return
    ((path, values),) = grids
    variant_generator.assign_value(spec, path, None)
    for value in values:
        variant = copy.deepcopy(spec)
        variant_generator.assign_value(variant, path, value)
        yield variant


def _keep_state_unless_ours(self: Any, trial: Any) -> None:
    """Keep a trial's state for a restore, but not of ours: none is asked for, and it has the function's code."""
    given = trial.config.get("trial")
    if not (isinstance(given, dict) and "cohort" in given):
        _keep_state(self, trial)


def _task_resolved_and_forgotten(self: Any, tracked_actor_task: Any, result: Any) -> None:
    """Let results go that were read: Tune would keep each of them until the actor ends."""
    futures = self._tracked_actors_to_task_futures[tracked_actor_task._tracked_actor]
    futures -= {future for future in futures if future not in self._actor_task_events._tracked_futures}
    _task_resolved(self, tracked_actor_task, result)


def _task_failed_of_any_death(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
    """Take every death of a worker for the death of an actor: Tune would raise, and end every trial, for some."""
    _task_failed(self, tracked_actor_task, _as_death(exception))


def _trial_failed_out_of_memory(self: Any, trial: Any, exception: Exception) -> None:
    """Let a trial of several runs at once fail the first time that its worker is killed: it resumes with fewer."""
    exception = _as_death(exception)
    if KILLED in str(exception) and _cohort_of(trial).runs_at_once > 1:
        trial.run_metadata.num_failures = trial.max_failures
    _trial_failed(self, trial, exception)


def _keep_worker_unless_outgrown(self: Any, trial: Any) -> bool:
    """Keep a trial's worker for another one, unless it keeps too much memory: it then ends."""
    return "outgrown" not in trial.last_result and bool(_keep_worker(self, trial))


def _reuse_worker_but_let_others_start(self: Any, trial: Any) -> bool:
    """Give a free worker to the first trial that has none.

    Tune would choose the trial whose own worker is starting, and end that one: after a failure among runs that are
    shorter than the start of a worker, the slot of the failed trial would never train again.
    """

    def has_worker(each: Any) -> bool:
        return bool(self._actor_manager.is_actor_started(self._trial_to_actor.get(each)))

    if self._actor_cache.num_cached_objects and has_worker(trial):
        waiting = (each for each in self._trials if each in self._pending_trials)
        trial = next((each for each in waiting if not has_worker(each)), trial)
    reused = bool(_reuse_worker(self, trial))
    if reused and trial not in self._staged_trials:  # what Tune's own callers do for the trial of their choice
        self._staged_trials.add(trial)
        self._actor_cache.increase_max(trial.placement_group_factory)
    return reused


def _as_death(exception: Exception) -> Exception:
    """Return another error of Ray's than a task's as the death of an actor, in one line.

    Among them is that of a worker which Ray's memory monitor kills when a machine's memory is nearly full.
    """
    if isinstance(exception, RayActorError | RayTaskError) or not isinstance(exception, RayError):
        return exception
    what = KILLED if isinstance(exception, OutOfMemoryError) else type(exception).__name__
    return RayActorError(error_msg=f"{what}: {str(exception).strip().splitlines()[0]}")
