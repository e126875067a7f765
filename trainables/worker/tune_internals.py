"""The parts of Tune that are replaced: what to look at, beside `ray_internals`, when Ray has a new version.

Written for Ray 2.60. Tune makes its controller, and that its manager of actors, by names in two of its modules.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError
from ray.tune import tune
from ray.tune.execution import class_cache, tune_controller
from ray.tune.search import variant_generator

from lr_sweep.trainables.worker.messages import Cohort
from lr_sweep.trainables.worker.ray_internals import KILLED

SAVING_S = 3600.0
"""Seconds that a trial which is asked to stop may take to end the step or evaluation under way, and to save."""

_products = variant_generator._grid_search_generator


def replace_parts_of_tune() -> None:
    """Let Tune use what is here in this process; a second call changes nothing."""
    # Tune would copy the driver's AWS keys, among others, into what Ray keeps and logs of each worker. An environment
    # of its own would keep a trial out of the workers that Ray starts beforehand.
    class_cache.ENV_VARS_TO_PROPAGATE, class_cache.DEFAULT_ENV_VARS = frozenset(), {}
    tune.TuneController, tune_controller.RayActorManager = Controller, ActorManager
    variant_generator._grid_search_generator = variants


def cohort_of_trial(trial: Any) -> Cohort:
    """Return what a trial of ours trains."""
    cohort: Cohort = trial.config["trial"]["cohort"]
    return cohort


def _is_ours(trial: Any) -> bool:
    given = trial.config.get("trial")
    return isinstance(given, dict) and "cohort" in given


def variants(
    spec: dict[str, Any], grids: Sequence[tuple[Sequence[str], list[Any]]]
) -> Iterator[dict[str, Any]]:
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


class ActorManager(RayActorManager):
    """Forgets results that were read, and takes every death of a worker for the death of an actor."""

    def _actor_task_resolved(self, tracked_actor_task: Any, result: Any) -> None:
        # Tune would keep each result until the actor ends.
        futures = self._tracked_actors_to_task_futures[tracked_actor_task._tracked_actor]
        futures -= {
            future for future in futures if future not in self._actor_task_events._tracked_futures
        }
        super()._actor_task_resolved(tracked_actor_task, result)

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        # Tune would raise, and end every trial, for some deaths.
        super()._actor_task_failed(tracked_actor_task, _as_death(exception))


class Controller(tune_controller.TuneController):
    """Lets trials save their runs, and gives free workers to trials that have none."""

    # Tune would kill a trial 10 s after asking it to stop, in the middle of an evaluation for one.
    _actor_force_cleanup_timeout = property(lambda _: SAVING_S, lambda *_: None)

    def _mark_trial_to_checkpoint(self, trial: Any) -> None:
        # A trial's state is for a restore, which is never asked for of ours; and it has the function's code.
        if not _is_ours(trial):
            super()._mark_trial_to_checkpoint(trial)

    def _process_trial_failure(self, trial: Any, exception: Exception) -> None:
        """Let a trial of several runs at once fail the first time that its worker is killed: it resumes with fewer."""
        exception = _as_death(exception)
        if KILLED in str(exception) and _is_ours(trial) and cohort_of_trial(trial).runs_at_once > 1:
            trial.run_metadata.num_failures = trial.max_failures
        super()._process_trial_failure(trial, exception)

    def _maybe_reuse_cached_actor(self, trial: Any) -> bool:
        """Give a free worker to the first trial that has none.

        Tune would choose the trial whose own worker is starting, and end that one, among short runs again and again.
        """

        def has_worker(each: Any) -> bool:
            return bool(self._actor_manager.is_actor_started(self._trial_to_actor.get(each)))

        if self._actor_cache.num_cached_objects and has_worker(trial):
            waiting = (each for each in self._trials if each in self._pending_trials)
            trial = next((each for each in waiting if not has_worker(each)), trial)
        reused = bool(super()._maybe_reuse_cached_actor(trial))
        if (
            reused and trial not in self._staged_trials
        ):  # what Tune's own callers do for the trial of their choice
            self._staged_trials.add(trial)
            self._actor_cache.increase_max(trial.placement_group_factory)
        return reused


def _as_death(exception: Exception) -> Exception:
    """Return another error of Ray's than a task's, such as a kill by its memory monitor, as the death of an actor."""
    if isinstance(exception, RayActorError | RayTaskError) or not isinstance(exception, RayError):
        return exception
    what = KILLED if isinstance(exception, OutOfMemoryError) else type(exception).__name__
    return RayActorError(error_msg=f"{what}: {str(exception).strip().splitlines()[0]}")
