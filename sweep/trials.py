"""Cohorts -> Ray Tune trials. Ray's own output goes to a log file; what happens comes out as events."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sweep.errors import UserError
from sweep.provenance import CHECKOUT
from sweep.results import Results
from sweep.runs import WantedRun
from sweep.study import Resources
from trainables.cohort import Assignment, Event

NOT_SHIPPED = [".git", ".venv", "results", "data", "docs", "tests", "**/__pycache__"]
"""Left out of what a running cluster's workers get of the checkout."""

ANSWER_TIMEOUT_S = 10.0
"""A cluster that stays silent for so long counts as unreachable."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where trials run and what each holds."""

    resources: Resources
    address: str | None = None
    """Of a running Ray cluster, `auto` or `ray://...` or host:port; None: start Ray on this machine."""
    cpus: int | None = None
    """CPUs that a Ray started here may use; None: all."""

    @property
    def device(self) -> str:
        """`cuda` for trials that hold a GPU or a share of one, else `cpu`."""
        return "cuda" if self.resources.gpus_per_trial > 0 else "cpu"

    @property
    def devices_per_trial(self) -> float:
        """GPUs a trial holds, else CPUs."""
        return self.resources.gpus_per_trial or self.resources.cpus_per_trial


@dataclass(frozen=True, kw_only=True)
class TrialEvents:
    """What the caller does with what trials report. Called from the thread that runs Tune."""

    on_event: Callable[[Event], None]
    on_failure: Callable[[Sequence[str], str], None]
    """Run ids of a trial that failed for good, and why."""
    on_tick: Callable[[], None]
    """Called often."""


@contextmanager
def ray_session(placement: Placement, log_file: Path) -> Iterator[None]:
    """Start or join Ray, check that a trial fits somewhere, and leave it again.

    Raises:
        UserError: no cluster at the address, or a trial asks for more than any node has.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; silences its warning
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the record is ours to write
    os.environ.setdefault("TUNE_RESULT_BUFFER_LENGTH", "0")
    import ray

    _log_to_file(log_file)
    try:
        ray.init(**_init_arguments(placement))
    except ConnectionError as error:
        raise _no_cluster(placement.address, error) from error
    try:
        check_fit(placement, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        yield
    finally:
        ray.shutdown()


def _init_arguments(placement: Placement) -> dict[str, Any]:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if placement.address is not None:
        shipped = {"working_dir": str(CHECKOUT), "excludes": NOT_SHIPPED}
        return quiet | {"address": placement.address, "runtime_env": shipped}
    # Workers start in another folder; an absolute path, before all others, names our `datasets`.
    search = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    here = {"env_vars": {"PYTHONPATH": search}}
    # `local`: Ray would otherwise join a cluster that RAY_ADDRESS or an earlier `ray start` names.
    return quiet | {"address": "local", "num_cpus": placement.cpus, "include_dashboard": False, "runtime_env": here}


def _log_to_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logger = logging.getLogger("ray")
    logger.handlers, logger.propagate = [handler], False


def check_beforehand(placement: Placement) -> None:
    """Refuse, before anything is fetched, what this machine lacks or a cluster that does not answer.

    Raises:
        UserError: as `check_fit` and `ray_session`.
    """
    if placement.address is None:
        cpus, gpus = placement.cpus or os.cpu_count() or 1, torch.cuda.device_count()
        check_fit(placement, [{"CPU": cpus, "GPU": gpus}])
        return
    host, _, port = placement.address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():  # not `auto`
        try:
            socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S).close()  # Ray tries for minutes
        except OSError as error:
            raise _no_cluster(placement.address, error) from error


def _no_cluster(address: str | None, error: Exception) -> UserError:
    return UserError(
        f"no Ray cluster answers at --address {address}: {error}. Start one with `ray start --head` or "
        f"`ray up cluster.yaml`, or leave --address out to run on this machine."
    )


def check_fit(placement: Placement, nodes: Sequence[dict[str, float]]) -> None:
    """Refuse to wait for ever for resources that no node has.

    Args:
        placement: what a trial asks for.
        nodes: each living node's resources by Ray's names.

    Raises:
        UserError: no node can hold one trial.
    """
    wanted = {"CPU": placement.resources.cpus_per_trial, "GPU": placement.resources.gpus_per_trial}
    if any(all(node.get(name, 0) >= number for name, number in wanted.items()) for node in nodes):
        return
    have = "; ".join(f"{node.get('CPU', 0):g} CPU and {node.get('GPU', 0):g} GPU" for node in nodes)
    where = f"the cluster at {placement.address}" if placement.address else "this machine"
    raise UserError(
        f"a trial asks for {wanted['CPU']:g} CPU and {wanted['GPU']:g} GPU, but {where} has no such node (nodes: "
        f"{have}). Ask for less with --cpus-per-trial and --gpus-per-trial or in the study's `resources`, or use a "
        f"larger cluster."
    )


def assignment(run: WantedRun, placement: Placement, results: Results, data_dir: Path, every_s: float) -> Assignment:
    """Return what a worker needs to train a run."""
    return Assignment(
        content=run.run.content(),
        num_steps=run.num_steps,
        checkpoints=str(results.checkpoints(run.run_id)),
        data_dir=str(data_dir),
        weights=run.weights.as_dict() if run.weights else None,
        device=placement.device,
        checkpoint_every_s=every_s,
    )


def train_cohorts(
    cohorts: Sequence[Sequence[Assignment]],
    names: Sequence[str],
    placement: Placement,
    results: Results,
    events: TrialEvents,
    stop: threading.Event,
) -> bool:
    """Train every cohort as one trial, in the order given, as many at once as fit. Needs a `ray_session`.

    Args:
        cohorts: what each trial trains.
        names: of the trials, for Ray's logs; Tune's own cut learning rates to four decimals.
        placement: what each trial holds.
        results: Tune's own state goes below it, and is thrown away.
        events: what to do with what trials report.
        stop: when set, trials save where they are.

    Returns:
        Whether every trial came to its end; False: `stop` was set.

    Raises:
        UserError: a worker cannot write checkpoints.
    """
    from ray import tune

    from sweep.tune_callback import EventCallback, SweepStoppedError
    from trainables.ray_trainable import CohortTrainable

    callback = EventCallback(events, stop)
    resources = {"cpu": placement.resources.cpus_per_trial, "gpu": placement.resources.gpus_per_trial}
    configs = [
        {"name": name, "cohort": [each.as_dict() for each in cohort]}
        for name, cohort in zip(names, cohorts, strict=True)
    ]
    shutil.rmtree(results.tune, ignore_errors=True)
    tuner = tune.Tuner(
        tune.with_resources(CohortTrainable, resources),
        # One list under one key: Tune runs it in the order given, where several axes would be sorted by name.
        param_space={"trial": tune.grid_search(configs)},
        tune_config=tune.TuneConfig(
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
