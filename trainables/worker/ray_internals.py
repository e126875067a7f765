"""Every use of what Ray and Tune do not document: what to look at when Ray has a new version.

Written for Ray 2.60, tried with the versions that pyproject.toml allows. Ray is imported where it is used, since
training itself needs none. Each docstring ends with the test that fails without it.
"""

from __future__ import annotations

import json
import os
import sys
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

SAVING_S = 3600.0
"""Seconds that a trial which is asked to stop may take to end the step or evaluation under way, and to save."""


class RefusedError(UserError):
    """`ray up` would refuse a cluster file."""


def outlive_raylet() -> None:
    """Let this process live on, and start Ray again, after its raylet has died; call it before Ray is imported.

    Ray takes the parent of a process for its raylet, and ends a process whose parent has ended, as after `nohup`, if
    the raylet dies. Workers have the id of their raylet already.

    Test: `test_ray_session.py`, `test_a_process_whose_parent_has_ended_leaves_ray_and_works_on`.
    """
    if "ray" not in sys.modules:
        os.environ["RAY_RAYLET_PID"] = str(os.getpid())


def leaving_nodes() -> set[str]:
    """Return the ids of nodes that are to go, by Ray's head, as `ray drain-node` announces it; nothing starts there.

    Test: `test_node_loss.py`, `test_runs_leave_a_machine_that_will_be_taken_away`.
    """
    from ray._private.state import state

    return set(state.get_draining_nodes())


def node_of_trial(trial: Any) -> str:
    """Return the id of the node where a trial of Tune is; Ray no longer knows once the trial is dead.

    Test: `test_node_loss.py`, `test_runs_of_a_lost_machine_go_on_elsewhere`.
    """
    from ray._private.state import actors

    return str(actors(trial.temporary_state.ray_actor._actor_id.hex())["Address"]["NodeID"])


def exchanged(text: str, namespace: str) -> tuple[dict[str, str], str]:
    """Publish a text in the cluster's own store for as long as this job runs.

    Returns the texts of all running jobs by job id, the oldest first, and the id of this job.

    Test: `test_node_loss.py`, `test_a_study_that_comes_later_gets_its_share_at_once`.
    """
    import ray
    from ray._private.state import jobs
    from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

    own = str(ray.get_runtime_context().get_job_id())
    _internal_kv_put(own, text, overwrite=True, namespace=namespace)
    running = [job["JobID"] for job in jobs() if not job["IsDead"]]
    # Ids are counted up, lowest byte first.
    oldest_first = sorted(running, key=lambda job: bytes.fromhex(job)[::-1])
    texts = {job: _internal_kv_get(job, namespace=namespace) for job in oldest_first}
    return {job: content.decode() for job, content in texts.items() if content}, own


def num_nodes(address: str) -> int:
    """Return how many nodes a cluster has, without joining it; 0: its head does not answer yet.

    Test: `test_slurm.py`, `test_a_sweep_on_two_nodes_loses_one_and_completes`.
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Ray's stub lacks it
    from ray.core.generated.gcs_pb2 import GcsNodeInfo
    from ray.exceptions import RpcError

    try:
        nodes = GcsClient(address=address).get_all_node_info(timeout=5).values()
    except RpcError:
        return 0
    return sum(node.state == GcsNodeInfo.GcsNodeState.ALIVE for node in nodes)


def prepared(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return a cluster file with Ray's defaults; raises RefusedError, without the schema that `ray up` would print.

    Test: `test_tunnels.py`, `test_mistakes`.
    """
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
    """End a cluster's machines as `ray down` does; return the ids of those that the cloud reports afterwards.

    Test: `test_down.py`, `test_machines_of_a_cloud_are_ended_and_looked_for`.
    """
    from ray.autoscaler._private.providers import _get_node_provider
    from ray.autoscaler.sdk import teardown_cluster

    try:
        teardown_cluster(str(cluster_file))
        provider = _get_node_provider(cluster["provider"], cluster["cluster_name"])
        return list(provider.non_terminated_nodes({}))
    except Exception as error:  # Ray's own, or any error of a cloud's library
        raise UserError(f"{cluster_file}: Ray cannot end its machines: {reason(error)}") from error


def use_token_file() -> None:
    """Send the token of ~/.ray/auth_token, if it exists: `ray start` requires it then, but clients do not send it.

    Test: `test_ray_up.py`, `test_a_study_outlives_hosts_and_their_network`.
    """
    from ray._private.authentication import authentication_token_setup as token

    token.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def cluster_token() -> str:
    """Return the token that this user sends to clusters; raises UserError if there is none.

    Test: `test_submit.py`, `test_a_secret_is_sent_encrypted_alone`.
    """
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]  # Ray's stub lacks it

    try:
        return str(AuthenticationTokenLoader.instance().get_raw_token(ignore_auth_mode=True))
    except Exception as error:
        raise UserError(
            f"no token: {reason(error)}. `ray get-auth-token --generate` makes one"
        ) from error


def job_metadata() -> dict[str, str]:
    """Return the metadata of the job that this process drives or works for; empty outside of Ray.

    Test: `test_submit.py`, `test_a_secret_is_sent_encrypted_alone`.
    """
    from ray._private.worker import global_worker

    if given := os.environ.get(RAY_S_JOB):
        return dict(json.loads(given)["metadata"])
    return (
        dict(global_worker.core_worker.get_job_config().metadata) if global_worker.connected else {}
    )


def read_token_settings_again() -> None:
    """Make Ray forget what it read of tokens from an earlier environment.

    Test: `test_sweep_end_to_end.py`, `test_other_users_of_the_machine_are_kept_out_of_ray`.
    """
    from ray._private.authentication import authentication_token_setup as token

    token.Config.initialize("")
    token.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def loopback_alone() -> Iterator[str]:
    """Let a Ray that this process starts listen on the loopback address alone; yield the variable for its processes.

    Test: `test_sweep_end_to_end.py`, `test_nothing_listens_on_the_network`.
    """
    from ray._private import ray_constants

    with patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False):
        yield ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR


def job_without_paths() -> Any:
    """Return settings of a job whose workers do not import from the driver's current folder, which Ray puts first.

    Test: `test_sweep_end_to_end.py`, `test_datasets_is_the_other_package_in_driver_and_workers`.
    """
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

    Test: `test_sweep_end_to_end.py`, `test_only_what_a_sweep_uses_of_ray_is_started`.
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
    """Keep Ray from handling SIGTERM in Python, as it does from its start on.

    Test: `test_ray_session.py`, `test_sigterm_stays_ours`.
    """
    from ray._private import utils

    with patch.object(utils, "set_sigterm_handler", lambda handler: None):
        yield


def dead_processes() -> list[tuple[str, Any]]:
    """Return what has died of the Ray started here, kinds and processes; nothing if a cluster was joined.

    Test: `test_chaos.py`.
    """
    from ray._private import worker

    node = worker._global_node
    return list(node.dead_processes()) if node else []


def end_without_waiting(*, at_once: bool) -> None:
    """Let `ray.shutdown` kill the processes of the Ray started here, if there is one, without waiting.

    `at_once`: kill them before, since it would wait for those that wait for a dead one.

    Test: `test_chaos.py`.
    """
    from ray._private import worker

    if node := worker._global_node:
        kill = partial(node.kill_all_processes, check_alive=False)
        if at_once:
            kill()
        node.kill_all_processes = lambda **_: kill()


def give_retry_back(trial: Any) -> None:
    """Let a failure of a trial of Tune use up no retry.

    Test: `test_node_loss.py`, `test_runs_of_a_lost_machine_go_on_elsewhere`.
    """
    trial.run_metadata.num_failures -= 1


def replace_parts_of_tune() -> None:
    """Replace what no setting of Tune changes, in this process; a second call changes nothing.

    Tests: `test_sweep_end_to_end.py`, `test_secrets_are_in_no_file_and_reach_workers`; `test_memory_killer.py`;
    `test_tune_internals.py`, `test_a_trial_that_is_asked_to_stop_saves_when_its_step_is_over_however_long_it_takes`,
    `test_the_driver_holds_few_results`.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager
    from ray.tune.execution import class_cache, tune_controller

    class ActorManager(RayActorManager):
        def _actor_task_resolved(self, tracked_actor_task: Any, result: Any) -> None:
            # Tune would keep each result until the actor ends.
            futures = self._tracked_actors_to_task_futures[tracked_actor_task._tracked_actor]
            futures &= self._actor_task_events.get_futures()
            super()._actor_task_resolved(tracked_actor_task, result)

        def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
            # Tune would raise, and end every trial, for some deaths.
            super()._actor_task_failed(tracked_actor_task, _as_death(exception))

        def _actor_start_failed(self, tracked_actor: Any, exception: Exception) -> None:
            super()._actor_start_failed(tracked_actor, _as_death(exception))

    # Tune would copy the driver's AWS keys, among others, into what Ray keeps and logs of each worker. An environment
    # of its own would keep a trial out of the workers that Ray starts beforehand.
    class_cache.ENV_VARS_TO_PROPAGATE, class_cache.DEFAULT_ENV_VARS = frozenset(), {}
    # Tune would kill a trial 10 s after asking it to stop, in the middle of an evaluation for one.
    timeout = property(lambda _: SAVING_S, lambda *_: None)
    tune_controller.TuneController._actor_force_cleanup_timeout = timeout
    tune_controller.RayActorManager = ActorManager


def _as_death(exception: Exception) -> Exception:
    """Return another error of Ray's than a task's, such as a kill by its memory monitor, as the death of an actor."""
    from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError

    if isinstance(exception, RayActorError | RayTaskError) or not isinstance(exception, RayError):
        return exception
    what = KILLED if isinstance(exception, OutOfMemoryError) else type(exception).__name__
    return RayActorError(error_msg=f"{what}: {str(exception).strip().splitlines()[0]}")
