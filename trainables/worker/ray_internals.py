"""Every use of what Ray does not document, beside `tune_internals`: what to look at when Ray has a new version.

Written for Ray 2.60, tried with the versions that pyproject.toml allows. Ray is imported where it is used, since
training itself needs none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lr_sweep.common.errors import UserError, reason

RAY_S_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it for the driver of a submitted job, whose checkout its workers have already."""
KILLED = "killed by Ray's memory monitor"
"""In the reason of a trial whose machine had little memory left, to which other processes may have contributed."""


class RefusedError(UserError):
    """`ray up` would refuse a cluster file."""


def leaving_nodes() -> set[str]:
    """Return the ids of nodes that are to go, by Ray's head, as `ray drain-node` announces it; nothing starts there."""
    from ray._private.state import state

    return set(state.get_draining_nodes())


def node_of_trial(trial: Any) -> str:
    """Return the id of the node where a trial of Tune is; Ray no longer knows once the trial is dead."""
    from ray._private.state import actors

    return str(actors(trial.temporary_state.ray_actor._actor_id.hex())["Address"]["NodeID"])


def running_jobs() -> list[str]:
    """Return the ids of the jobs that run in the cluster, the oldest first."""
    from ray._private.state import jobs

    running = [job["JobID"] for job in jobs() if not job["IsDead"]]
    return sorted(
        running, key=lambda job: bytes.fromhex(job)[::-1]
    )  # ids are counted up, lowest byte first


def store(key: str, text: str, namespace: str) -> None:
    """Write a text into the cluster's own store."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key, text, overwrite=True, namespace=namespace)


def stored(key: str, namespace: str) -> bytes | None:
    """Return a text of the cluster's own store; None: there is none."""
    from ray.experimental.internal_kv import _internal_kv_get

    content: bytes | None = _internal_kv_get(key, namespace=namespace)
    return content


def num_nodes(address: str) -> int:
    """Return how many nodes a cluster has, without joining it; 0: its head does not answer yet."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Ray's stub lacks it
    from ray.core.generated.gcs_pb2 import GcsNodeInfo
    from ray.exceptions import RpcError

    try:
        nodes = GcsClient(address=address).get_all_node_info(timeout=5).values()
    except RpcError:
        return 0
    return sum(node.state == GcsNodeInfo.GcsNodeState.ALIVE for node in nodes)


def prepared(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return a cluster file with Ray's defaults; raises RefusedError, without the schema that `ray up` would print."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    try:
        with redirect_stdout(StringIO()):  # a warning for each file in `file_mounts`
            complete: dict[str, Any] = prepare_config(cluster)
            validate_config(complete)
    except Exception as error:  # values of other types fail anywhere in it
        place = ".".join(map(str, getattr(error, "absolute_path", ()))) or "the file"
        raise RefusedError(
            f"{place}: Ray refuses it: {getattr(error, 'message', error)}"
        ) from error
    return complete


def end_cloud_machines(cluster_file: Path, cluster: dict[str, Any]) -> list[str]:
    """End a cluster's machines as `ray down` does; return the ids of those that the cloud reports afterwards."""
    from ray.autoscaler._private.providers import _get_node_provider
    from ray.autoscaler.sdk import teardown_cluster

    try:
        teardown_cluster(str(cluster_file))
        provider = _get_node_provider(cluster["provider"], cluster["cluster_name"])
        return list(provider.non_terminated_nodes({}))
    except Exception as error:  # Ray's own, or any error of a cloud's library
        raise UserError(f"{cluster_file}: Ray cannot end its machines: {reason(error)}") from error


def use_token_file() -> None:
    """Send the token of ~/.ray/auth_token, if it exists: `ray start` requires it then, but clients do not send it."""
    from ray._private.authentication import authentication_token_setup as token

    token.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def cluster_token() -> str:
    """Return the token that this user sends to clusters; raises UserError if there is none."""
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]  # Ray's stub lacks it

    try:
        return str(AuthenticationTokenLoader.instance().get_raw_token(ignore_auth_mode=True))
    except Exception as error:
        raise UserError(
            f"no token: {reason(error)}. `ray get-auth-token --generate` makes one"
        ) from error


def job_metadata() -> dict[str, str]:
    """Return the metadata of the job that this process drives or works for; empty outside of Ray."""
    from ray._private.worker import global_worker

    if given := os.environ.get(RAY_S_JOB):
        return dict(json.loads(given)["metadata"])
    return (
        dict(global_worker.core_worker.get_job_config().metadata) if global_worker.connected else {}
    )


def read_token_settings_again() -> None:
    """Make Ray forget what it read of tokens from an earlier environment."""
    from ray._private.authentication import authentication_token_setup as token

    token.Config.initialize("")
    token.AuthenticationTokenLoader.instance().reset_cache()


def temp_dir() -> Path:
    """Return the folder in which Ray makes its own."""
    from ray._common.utils import get_default_system_temp_dir

    return Path(get_default_system_temp_dir())


@contextmanager
def loopback_alone() -> Iterator[str]:
    """Let a Ray that this process starts listen on the loopback address alone; yield the variable for its processes."""
    from ray._private import ray_constants

    with patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False):
        yield ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR


def job_without_paths() -> Any:
    """Return settings of a job whose workers do not import from the driver's current folder, which Ray puts first."""
    from ray.job_config import JobConfig

    class Nowhere(list[str]):
        def extend(self, folders: Iterable[str]) -> None:
            """Add none of the driver's folders."""

    job = JobConfig()
    job._py_driver_sys_path = Nowhere()
    return job


@contextmanager
def without_dashboard() -> Iterator[None]:
    """Let a Ray that this process starts leave out autoscaler, dashboard, copied logs and most of the raylet's agent.

    Their imports took 5 of the 7 s of its start (two cores, Ray 2.60). Ray runs so without its `default` extra.
    """
    from ray._private import utils
    from ray._private.node import Node

    left_out = ImportError("left out")
    nothing: dict[str, Any] = {
        "start_monitor": lambda self: None,
        "start_log_monitor": lambda self: None,
        "start_api_server": lambda self, **_: setattr(self, "_webui_url", ""),
    }
    with (
        patch.multiple(Node, **nothing),
        patch.object(utils, "get_dashboard_dependency_error", lambda: left_out),
    ):
        yield


@contextmanager
def without_sigterm_handler() -> Iterator[None]:
    """Keep Ray from handling SIGTERM in Python, as it does from its start on."""
    from ray._private import utils

    with patch.object(utils, "set_sigterm_handler", lambda handler: None):
        yield


def dead_processes() -> list[tuple[str, Any]]:
    """Return what has died of the Ray started here, kinds and processes; nothing if a cluster was joined."""
    from ray._private import worker

    node = worker._global_node
    return list(node.dead_processes()) if node else []


def kill_processes() -> None:
    """Kill the processes of the Ray started here, without waiting for them; none if a cluster was joined."""
    from ray._private import worker

    if node := worker._global_node:
        node.kill_all_processes(check_alive=False)


def end_without_waiting() -> None:
    """Let `ray.shutdown` kill the processes of the Ray started here, if there is one, without waiting."""
    from ray._private import worker

    if node := worker._global_node:
        kill = partial(node.kill_all_processes, check_alive=False)
        node.kill_all_processes = lambda **_: kill()


def in_notebook() -> bool:
    """Return whether Tune would take this process for a notebook's."""
    from ray.widgets.util import in_notebook as found

    return bool(found())
