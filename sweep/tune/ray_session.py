"""Starts or joins Ray, sends its output to a log file, and notices its death."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from lr_sweep.common.scratch import scratch_folder
from lr_sweep.sweep.cluster.package import copy_program
from lr_sweep.sweep.plan.placement import Placement, check_fit, cpus_here, no_cluster
from lr_sweep.sweep.terminal import GROUP_SIGNALS, blocked
from lr_sweep.sweep.tune.nodes import cluster_nodes, exchange_claims
from lr_sweep.sweep.tune.private_ray import private_ray
from lr_sweep.sweep.tune.shares import Share
from lr_sweep.trainables.ray_internals import (
    dead_processes,
    end_without_waiting,
    kill_processes,
    without_sigterm_handler,
)

RAY_S_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it for the driver of a submitted job, whose checkout its workers have already."""

VITAL = ("raylet", "gcs_server")
"""Processes of a Ray started here that it cannot run without."""


class RayLostError(Exception):
    """The Ray started here died, or did not start. Runs resume from their checkpoints.

    `killed`: whether a signal ended it that no process can catch, which the system sends when memory runs out.
    """

    def __init__(self, message: str, *, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed


@contextmanager
def ray_session(
    placement: Placement,
    log_file: Path,
    excluded: Set[str] = frozenset(),
    starting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[Share]:
    """Start or join Ray, check that a trial fits somewhere, yield this sweep's share of it, and leave it again.

    `excluded`: ids of nodes that are left out, read again at each look. `starting`: around what starts Ray; may raise.
    Raises UserError if no cluster is at the address or no node has what a trial asks for, RayLostError if a Ray started
    here died while it started.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; silences its warning
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the record is ours to write
    os.environ.setdefault("TUNE_RESULT_BUFFER_LENGTH", "0")
    _log_to_file(log_file)
    with private_ray() if placement.address is None else nullcontext() as folder, _sigterm_kept() as keep_sigterm:
        try:
            _start(placement, folder, starting)
            keep_sigterm()
            nodes = partial(cluster_nodes, placement, excluded)
            check_fit(placement, nodes())
            yield Share(placement, nodes, exchange_claims if placement.address is not None else None)
        finally:
            _end(folder)


def _start(placement: Placement, folder: Path | None, starting: Callable[[], AbstractContextManager[None]]) -> None:
    import ray

    try:
        with scratch_folder("program-") as scratch, starting(), blocked(GROUP_SIGNALS):
            ray.init(**_init_arguments(placement, folder, scratch))
    except Exception as error:  # Ray (2.60) raises that very class where its processes die during the start
        if placement.address is None:
            problem = f"Ray did not start ({str(error) or type(error).__name__})"
            raise RayLostError(problem, killed=was_killed()) from error
        # Without the token, Ray (2.60) reports that no cluster is there.
        hint = " (a cluster asks for a token by default where ~/.ray/auth_token is: if so, set RAY_AUTH_MODE=token)"
        raise no_cluster(placement.address, f"{error}{'' if 'RAY_AUTH_MODE' in os.environ else hint}") from error


def _end(folder: Path | None) -> None:
    """Leave Ray; kill one that was started here, in `folder`: runs are saved, and its own state is a cache.

    Ray (2.60) itself waits up to a second for each of its processes.
    """
    import ray

    if died := lost_processes():  # the others wait for these, and `ray.shutdown` would wait for them
        logging.getLogger("ray").error("died: %s", ", ".join(died))
        kill_processes()
    if folder is not None:
        _kill_processes(folder, but_gcs=end_without_waiting())
    ray.shutdown()


def _kill_processes(folder: Path, *, but_gcs: bool) -> None:
    """Kill the processes of the Ray that this process started in a folder.

    `but_gcs`: leave out Ray's GCS, to which `ray.shutdown` would try to connect for five seconds.
    """
    import psutil  # type: ignore[import-untyped]  # comes with Ray

    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if str(folder) in "\0".join(child.cmdline()):
                gone = [*child.children(recursive=True), *([] if but_gcs and child.name() == VITAL[1] else [child])]
                for process in gone:
                    process.kill()


@contextmanager
def _sigterm_kept() -> Iterator[Callable[[], object]]:
    """Keep this process's handler of SIGTERM; yield a function that restores it, to be called when Ray has started.

    Ray (2.60) sets one in Python as it starts, and others in C++ up to its shutdown.
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with without_sigterm_handler():
            yield partial(signal.signal, signal.SIGTERM, handler)
    finally:
        signal.signal(signal.SIGTERM, handler)


def lost_processes() -> list[str]:
    """Return the names of vital processes of the Ray started here that have died; none if a cluster was joined.

    Ray (2.60) itself notices after 12 s that its raylet is dead; trials then fail through no fault of theirs, and Tune
    waits forever for the rest.
    """
    return [kind for kind, _ in dead_processes() if kind in VITAL]


def was_killed() -> bool:
    """Return whether SIGKILL ended a vital process of the Ray started here."""
    return any(process.returncode == -signal.SIGKILL for kind, process in dead_processes() if kind in VITAL)


def _init_arguments(placement: Placement, folder: Path | None, scratch: Path) -> dict[str, Any]:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if placement.address is not None:
        if RAY_S_JOB in os.environ:
            return quiet | {"address": placement.address}
        copy_program(scratch)
        return quiet | {"address": placement.address, "runtime_env": {"working_dir": str(scratch)}}
    return quiet | {
        "address": "local",  # Ray would otherwise join a cluster that RAY_ADDRESS or an earlier `ray start` names
        "num_cpus": placement.cpus or cpus_here(),
        "include_dashboard": False,
        "_temp_dir": str(folder),
    }


def _log_to_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logger = logging.getLogger("ray")
    logger.handlers, logger.propagate = [handler], False
