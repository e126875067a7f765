"""Starts or joins Ray, sends its output to a log file, and notices its death.

A Ray that is started here is private to its user: loopback only, its own token, a folder of mode 0700.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from lr_sweep.common.collector import without_collector
from lr_sweep.common.errors import UserError
from lr_sweep.common.scratch import locked_folder, own_folder, remove_dead, scratch_folder
from lr_sweep.sweep.cluster.jobs import copy_program
from lr_sweep.sweep.plan.placement import Placement, check_fit, cpus_here, no_cluster
from lr_sweep.sweep.terminal import GROUP_SIGNALS, blocked
from lr_sweep.trainables.worker.ray_internals import (
    RAY_S_JOB,
    dead_processes,
    end_without_waiting,
    job_without_paths,
    loopback_alone,
    read_token_settings_again,
    without_dashboard,
    without_sigterm_handler,
)

from .nodes import Share, cluster_nodes, exchange_claims

VITAL = ("raylet", "gcs_server")
"""Processes of a Ray started here that it cannot run without."""
_LONGEST_PATH = "/r-99/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""Longest path of one of Ray's sockets below our folder."""
_MAX_FOLDER_BYTES = 103 - len(_LONGEST_PATH)
"""The path of a socket has at most 103 bytes on macOS, 107 on Linux."""


class RayLostError(Exception):
    """The Ray started here died, or did not start. Runs resume from their checkpoints."""


@contextmanager
def ray_session(
    placement: Placement,
    log_file: Path,
    excluded: Set[str] = frozenset(),
    starting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[Share]:
    """Start or join Ray, yield this sweep's share of it, and leave it again.

    `excluded`: ids of nodes that are left out, read again at each look. `starting`: around what starts Ray; may raise.
    Raises UserError if no cluster is at the address or this machine lacks what a trial asks for, RayLostError if a Ray
    started here died while it started.
    """
    os.environ.setdefault(
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
    )  # Ray's future default; silences its warning
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the record is ours to write
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = (
        "0"  # a Tune that is left behind would start a Ray of its own
    )
    os.environ.setdefault("TUNE_RESULT_BUFFER_LENGTH", "0")
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = "inf"  # Tune's own state is never restored
    _log_to_file(log_file)
    with (
        private_ray() if placement.address is None else nullcontext() as folder,
        _sigterm_kept() as keep_sigterm,
    ):
        try:
            _start(placement, folder, starting)
            keep_sigterm()
            nodes = partial(cluster_nodes, placement, excluded)
            if (
                placement.address is None
            ):  # on a cluster, workers may be to come: `Share` waits for them
                check_fit(placement, nodes())
            yield Share(
                placement, nodes, exchange_claims if placement.address is not None else None
            )
        finally:
            _end(folder)


def _start(
    placement: Placement, folder: Path | None, starting: Callable[[], AbstractContextManager[None]]
) -> None:
    import ray

    with scratch_folder("program-") as scratch:  # outside: it may raise what is the user's to mend
        try:
            with starting(), blocked(GROUP_SIGNALS):
                ray.init(**_init_arguments(placement, folder, scratch))
        except (
            Exception
        ) as error:  # Ray (2.60) raises that very class where its processes die during the start
            if placement.address is None:
                problem = f"Ray did not start ({str(error) or type(error).__name__})"
                raise RayLostError(problem) from error
            # Without the token, Ray (2.60) reports that no cluster is there.
            hint = " (a cluster asks for a token by default where ~/.ray/auth_token is: if so, set RAY_AUTH_MODE=token)"
            raise no_cluster(
                placement.address, f"{error}{'' if 'RAY_AUTH_MODE' in os.environ else hint}"
            ) from error


def _end(folder: Path | None) -> None:
    """Leave Ray; kill one that was started here, in `folder`: runs are saved, and its own state is a cache.

    Ray (2.60) itself waits up to a second for each of its processes.
    """
    import ray

    if died := lost_processes():
        logging.getLogger("ray").error("died: %s", ", ".join(died))
    started = _processes(folder) if folder is not None else []
    end_without_waiting(at_once=bool(died))
    gc.collect()
    # The raylet lives until then: without it, Ray ends a driver whose parent has ended, as after `nohup`. Ray (2.60)
    # also ends the process if one of its objects is freed meanwhile.
    with without_collector():
        ray.shutdown()
    for process in started:
        with suppress(psutil.Error):
            process.kill()


def _processes(folder: Path) -> list[psutil.Process]:
    processes = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if str(folder) in "\0".join(child.cmdline()):
                processes += [child, *child.children(recursive=True)]
    return processes


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


def _init_arguments(placement: Placement, folder: Path | None, scratch: Path) -> dict[str, Any]:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if placement.address is not None:
        if RAY_S_JOB in os.environ:
            return quiet | {"address": placement.address}
        copy_program(scratch)
        return quiet | {"address": placement.address, "runtime_env": {"working_dir": str(scratch)}}
    return (
        quiet
        | {
            "address": "local",  # Ray would otherwise join a cluster that RAY_ADDRESS or an earlier `ray start` names
            "num_cpus": placement.cpus or cpus_here(),
            "include_dashboard": False,
            "job_config": job_without_paths(),
            "_temp_dir": str(folder),
        }
    )


@contextmanager
def private_ray() -> Iterator[Path]:
    """Prepare this process for starting a Ray that no other user of the machine or the network can use or read.

    Ray's processes take these settings from the environment, which stays changed until the block ends. Yields the
    folder for Ray's sessions, logs and Unix sockets, which the user's next Ray removes; raises UserError if it cannot
    be made.
    """
    with locked_folder(_ours(), "r-") as folder:
        (token := folder / "token").touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        # Without a mode, Ray (2.60) asks for a token; one in the environment would be that of the user's cluster.
        settings = {
            "RAY_AUTH_MODE": None,
            "RAY_AUTH_TOKEN": None,
            "RAY_AUTH_TOKEN_PATH": str(token),
        }
        try:
            settings["RAY_idle_worker_killing_time_threshold_ms"] = (
                "60000"  # else those started beforehand may go
            )
            settings["RAY_task_events_report_interval_ms"] = (
                "0"  # its head would keep events of 100,000 tasks
            )
            with (
                loopback_alone() as loopback,
                _environment(settings | {loopback: "0"}),
                without_dashboard(),
            ):
                read_token_settings_again()
                yield folder
        finally:
            read_token_settings_again()
            token.unlink(missing_ok=True)


def _ours() -> Path:
    """Return a folder that only this user can enter, and remove what ended processes left there.

    Ray makes folders that all users can enter; inside this one they cannot.
    """
    try:
        parent = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
        folder = own_folder(parent, _MAX_FOLDER_BYTES)
        remove_dead(folder)
    except OSError as error:
        raise UserError(
            f"cannot make a folder for Ray's logs and sockets: {error}. Set RAY_TMPDIR to a folder that is writable."
        ) from error
    return folder


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.pop(name, None) for name in changes}
    os.environ.update({name: value for name, value in changes.items() if value is not None})
    try:
        yield
    finally:
        for name in changes:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})


def _log_to_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logger = logging.getLogger("ray")
    logger.handlers, logger.propagate = [handler], False
