"""Where Ray Tune (2.60) has to behave otherwise than it does, in one place; imported by what starts Tune."""

from __future__ import annotations

from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError

from lr_sweep.sweep.plan.packing import KILLED
from lr_sweep.sweep.tune.callback import cohort_of
from lr_sweep.trainables.ray_internals import tune_classes

SAVING_S = 3600.0
"""How long a trial that is asked to stop may take to end the step or evaluation under way, and to save."""

RayActorManager, TuneController, class_cache = tune_classes()
_task_failed, _trial_failed = RayActorManager._actor_task_failed, TuneController._process_trial_failure


def patch_tune() -> None:
    """Change Tune in this process; a second call changes nothing."""
    # Tune would copy the driver's AWS keys, among others, into what Ray keeps and logs of each worker.
    class_cache.ENV_VARS_TO_PROPAGATE = frozenset()
    # It would kill a trial 10 s after asking it to stop, in the middle of an evaluation for one.
    TuneController._actor_force_cleanup_timeout = property(lambda _: SAVING_S, lambda *_: None)
    RayActorManager._actor_task_failed = _task_failed_of_any_death
    TuneController._process_trial_failure = _trial_failed_out_of_memory


def _task_failed_of_any_death(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
    """Take every death of a worker for the death of an actor: Tune would raise, and end every trial, for some."""
    _task_failed(self, tracked_actor_task, _as_death(exception))


def _trial_failed_out_of_memory(self: Any, trial: Any, exception: Exception) -> None:
    """Let a trial of several runs at once fail the first time that its worker is killed: it resumes with fewer."""
    exception = _as_death(exception)
    if KILLED in str(exception) and cohort_of(trial).runs_at_once > 1:
        trial.run_metadata.num_failures = trial.max_failures
    _trial_failed(self, trial, exception)


def _as_death(exception: Exception) -> Exception:
    """Return another error of Ray's than a task's as the death of an actor, in one line.

    Among them is that of a worker which Ray's memory monitor kills when a machine's memory is nearly full.
    """
    if isinstance(exception, RayActorError | RayTaskError) or not isinstance(exception, RayError):
        return exception
    what = KILLED if isinstance(exception, OutOfMemoryError) else type(exception).__name__
    return RayActorError(error_msg=f"{what}: {str(exception).strip().splitlines()[0]}")
