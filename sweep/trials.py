"""Cohorts -> Ray Tune trials; what happens comes out as events."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.placement import Placement
from sweep.results import Results
from sweep.runs import WantedRun
from trainables.cohort import Assignment, Event

SAVING_S = 3600.0
"""How long a trial that is asked to stop may take for the step or evaluation that is under way, and to save."""


@dataclass(frozen=True, kw_only=True)
class TrialEvents:
    """What the caller does with what trials report. Called from the thread that runs Tune."""

    on_event: Callable[[Event], None]
    on_failure: Callable[[Sequence[str], str], None]
    """Run ids of a trial that failed for good, or ran out of memory, and why."""
    on_interruption: Callable[[Sequence[str]], None]
    """Run ids of a trial that crashed and will start again."""
    on_machine_lost: Callable[[Sequence[str]], bool]
    """Run ids of a trial whose machine is gone; returns whether that is to be overlooked, as no failure of theirs."""
    on_tick: Callable[[], None]
    """Called often."""


def assignment(
    run: WantedRun,
    placement: Placement,
    results: Results,
    data_dir: Path,
    every_s: float,
    code: dict[str, str] | None = None,
) -> Assignment:
    """Return what a worker needs to train a run; `code` as of `sweep.provenance.code_of`."""
    return Assignment(
        content=run.run.content(),
        num_steps=run.num_steps,
        checkpoints=str(results.checkpoints(run.run_id)),
        store=results.uri,
        data_dir=str(data_dir),
        weights=run.weights.as_dict() if run.weights else None,
        device=placement.device,
        checkpoint_every_s=every_s,
        code=code,
    )


def train_cohorts(
    cohorts: Sequence[Sequence[Assignment]],
    names: Sequence[str],
    places: Sequence[int],
    placement: Placement,
    results: Results,
    events: TrialEvents,
    stop: threading.Event,
    at_most: int | None,
) -> bool:
    """Train every cohort as one trial, in the order given, as many at once as fit. Needs a `ray_session`.

    Args:
        cohorts: what each trial trains.
        names: of the trials, for Ray's logs; Tune's own cut learning rates to four decimals.
        places: how many runs of each cohort train at once.
        placement: what each trial holds.
        results: Tune's own state goes below it, and is thrown away.
        events: what to do with what trials report.
        stop: when set, trials save where they are.
        at_most: trials at once, however many fit; None: as many as fit.

    Returns:
        Whether every trial came to its end; False: `stop` was set.

    Raises:
        UserError: a worker cannot write checkpoints.
        RayLostError: Ray died; the runs that it trained go on from their checkpoints in another session.
    """
    from ray import tune
    from ray.tune.execution import class_cache
    from ray.tune.execution.tune_controller import TuneController

    from sweep.machines import Machines
    from sweep.ray_session import lost_processes
    from sweep.tune_callback import EventCallback, SweepStoppedError
    from trainables.ray_trainable import CohortTrainable

    # Tune (2.60) would copy the driver's AWS keys, among others, into what Ray keeps and logs of each worker.
    class_cache.ENV_VARS_TO_PROPAGATE = frozenset()
    # It would also kill a trial 10 s after asking it to stop, in the middle of an evaluation for one; see `SAVING_S`.
    TuneController._actor_force_cleanup_timeout = property(lambda _: SAVING_S, lambda *_: None)
    callback = EventCallback(events, stop, lost_processes, Machines())
    resources = {"cpu": placement.resources.cpus_per_trial, "gpu": placement.resources.gpus_per_trial}
    configs = [
        {
            "name": name,
            "engine": placement.resources.engine,
            "compiled": placement.resources.compile,
            "num_places": num_places,
            "share": placement.devices_per_trial,
            "size_given": placement.resources.runs_per_trial is not None,
            "cohort": [each.as_dict() for each in cohort],
        }
        for name, cohort, num_places in zip(names, cohorts, places, strict=True)
    ]
    shutil.rmtree(results.tune, ignore_errors=True)
    tuner = tune.Tuner(
        tune.with_resources(CohortTrainable, resources),
        # One list under one key: Tune runs it in the order given, where several axes would be sorted by name.
        param_space={"trial": tune.grid_search(configs)},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=at_most,
            reuse_actors=True,
            trial_name_creator=lambda trial: trial.config["trial"]["name"],
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="trials",
            storage_path=str(results.tune),
            callbacks=[callback],
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            failure_config=tune.FailureConfig(max_failures=placement.resources.retries),
            verbose=0,
        ),
    )
    try:
        tuner.fit()
    except SweepStoppedError:
        if callback.problem:
            raise callback.problem from None
        return False
    finally:
        shutil.rmtree(results.tune, ignore_errors=True)
    return True
