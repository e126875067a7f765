"""Ray, started here or joined: its output goes to a log file, and its death is noticed."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sweep.machines import RayBoard
from sweep.package import NOT_SHIPPED
from sweep.placement import Nodes, Placement, check_fit, no_cluster
from sweep.private_ray import private_ray
from sweep.provenance import CHECKOUT
from sweep.sharing import Share

RAY_S_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it for the driver of a submitted job, whose checkout its workers have already."""

CLUSTER_FILE = Path("~/ray_bootstrap_config.yaml")
"""On the head of a cluster that `ray up` started, where submitted sweeps are: what its autoscaler goes by."""

VITAL = ("raylet", "gcs_server")
"""Processes of a Ray started here that it cannot go on without."""


class RayLostError(Exception):
    """The Ray started here died, or did not come up: killed, by the system for want of memory for one.

    Runs go on from their checkpoints.
    """


@contextmanager
def ray_session(placement: Placement, log_file: Path) -> Iterator[Share]:
    """Start or join Ray, check that a trial fits somewhere, yield this sweep's share of it, and leave it again.

    Raises:
        UserError: no cluster at the address, or a trial asks for more than any node has.
        RayLostError: a Ray started here died while it started.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; silences its warning
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the record is ours to write
    os.environ.setdefault("TUNE_RESULT_BUFFER_LENGTH", "0")
    _log_to_file(log_file)
    with private_ray() if placement.address is None else nullcontext() as folder, _sigterm_kept() as keep_sigterm:
        import ray

        try:
            ray.init(**_init_arguments(placement, folder))
        except Exception as error:  # Ray (2.60) raises that very class where its processes die during the start
            if placement.address is None:
                raise RayLostError(f"Ray did not start ({str(error) or type(error).__name__})") from error
            raise no_cluster(placement.address, f"{error}{_token_hint()}") from error
        try:
            keep_sigterm()
            nodes = partial(_nodes, placement)
            check_fit(placement, nodes())
            yield Share(placement, nodes, RayBoard() if placement.address is not None else None)
        finally:
            if died := lost_processes():
                _kill_the_rest(died)
            ray.shutdown()


@contextmanager
def _sigterm_kept() -> Iterator[Callable[[], object]]:
    """Keep the handler of SIGTERM: Ray (2.60) sets one in Python as it starts, and others in C++ up to its shutdown.

    Yields:
        Puts the handler back; to be called when Ray has started.
    """
    from ray._private import utils

    handler, set_by_ray = signal.getsignal(signal.SIGTERM), utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield partial(signal.signal, signal.SIGTERM, handler)
    finally:
        utils.set_sigterm_handler = set_by_ray
        signal.signal(signal.SIGTERM, handler)


def _nodes(placement: Placement) -> Nodes:
    import ray

    there = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    coming = nodes_to_come(there, CLUSTER_FILE.expanduser()) if placement.address is not None else []
    return [*there, *coming]


def _token_hint() -> str:
    """Say what Ray does not: without the token a cluster looks to it as if it were not there (2.60)."""
    if "RAY_AUTH_MODE" in os.environ:
        return ""
    return " (a cluster asks for a token by default where ~/.ray/auth_token is: if so, set RAY_AUTH_MODE=token)"


def nodes_to_come(there: Sequence[dict[str, float]], cluster_file: Path) -> list[dict[str, float]]:
    """Return what the autoscaler may start besides the nodes that are there, each node's resources by Ray's names.

    Args:
        there: the same of those; all of a kind have its CPUs and GPUs.
        cluster_file: what Ray's autoscaler was given; none where there is no autoscaler.
    """
    if not cluster_file.is_file():
        return []
    coming = []
    for kind in YAML(typ="safe").load(cluster_file)["available_node_types"].values():
        resources = {name: float(number) for name, number in kind["resources"].items()}
        if not resources:
            continue  # of machines of one's own: Ray knows when they are up
        up = sum(all(node.get(name, 0) == resources.get(name, 0) for name in ("CPU", "GPU")) for node in there)
        coming += [resources] * (kind.get("max_workers", 0) - up)
    return coming


def lost_processes() -> list[str]:
    """Return the names of vital processes of the Ray started here that have died; of a cluster joined: none.

    Ray itself notices after 12 s that its raylet is dead (2.60); trials then fail that have done no wrong, and Tune
    waits for ever for the rest.
    """
    from ray._private import worker

    node = worker._global_node
    return [kind for kind, _ in node.dead_processes() if kind in VITAL] if node else []


def _kill_the_rest(died: list[str]) -> None:
    """Leave nothing behind that waits for the dead, nor has to be waited for by `ray.shutdown`."""
    from ray._private import worker

    logging.getLogger("ray").error("died: %s", ", ".join(died))
    worker._global_node.kill_all_processes(check_alive=False)


def _init_arguments(placement: Placement, folder: Path | None) -> dict[str, Any]:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if placement.address is not None and RAY_S_JOB in os.environ:
        return quiet | {"address": placement.address}
    if placement.address is not None:
        shipped = {"working_dir": str(CHECKOUT), "excludes": NOT_SHIPPED}
        return quiet | {"address": placement.address, "runtime_env": shipped}
    # Workers start in another folder; an absolute path, before all others, names our `datasets`.
    search = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    here = {"env_vars": {"PYTHONPATH": search}}
    return quiet | {
        "address": "local",  # Ray would otherwise join a cluster that RAY_ADDRESS or an earlier `ray start` names
        "num_cpus": placement.cpus,
        "include_dashboard": False,
        "runtime_env": here,
        "_temp_dir": str(folder),
    }


def _log_to_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logger = logging.getLogger("ray")
    logger.handlers, logger.propagate = [handler], False
