"""The jobs of a Ray cluster that train studies: submit, list, follow and stop them.

A job gets a copy of the program, and trains its study with `run`; this machine may be switched off then.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import logging
import os
import shlex
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import HttpUrl, TypeAdapter, ValidationError

from lr_sweep.common.errors import UserError, reason, translated
from lr_sweep.common.network import check_answers
from lr_sweep.common.object_store import checked, local_path
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.common.source_code import CHECKOUT
from lr_sweep.common.text import Say, gigabytes
from lr_sweep.sweep.results.provenance import PACKED, origin
from lr_sweep.trainables.worker.job_secrets import SECRETS_KEY, sealed
from lr_sweep.trainables.worker.ray_internals import use_token_file

if TYPE_CHECKING:
    from lr_sweep.sweep.study.study import Study
    from lr_sweep.trainables.own.run import OwnFiles

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
"""URL of the job server at the end of `ui FILE`'s tunnel, and of a local `ray start --head`."""

MAX_NODES = 10_000
ACTIVE = ("PENDING", "RUNNING")
STUDY_KEY, RESULTS_KEY, OWNER_KEY = "lr_sweep_study", "lr_sweep_results", "lr_sweep_owner"
"""Keys of a job's metadata, which Ray stores and shows."""

DRIVER_BYTES = 1_000_000_000
"""Memory that Ray sets aside for a driver, which takes 0.6 to 0.9 GB: more drivers than fit on the head wait there."""
ON_HEAD = {"node:__internal_head__": 0.001}
"""A part of what the head alone has: a job that asks for memory alone may start on any node."""

STOP_WAIT_S = 120
"""Seconds that a stopped sweep may take to save its runs before Ray kills it; Ray's own default is 3 s."""

FOLLOW_EVERY_S = 1.0

SENT = ("__init__.py", "analysis", "common", "datasets", "sweep", "trainables")
"""Folders of the program, and its file, that a cluster's machines get, below `lr_sweep`."""
START = "lr_sweep/sweep/cluster/start.sh"
"""The script in the folder that is sent; it finds the interpreter."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the cluster reports it."""

    name: str
    """The study's name and the time of its submission (UTC), such as `quickstart-20261123-041500-123456`."""
    study: str
    results: str
    """The results directory, on the cluster's machines."""
    status: str
    """PENDING, RUNNING, SUCCEEDED, STOPPED or FAILED."""
    exit_code: int | None
    """The driver's exit code, negative for a signal; None while it runs, or if Ray ended it."""
    message: str = ""
    """Ray's message about the status."""
    owner: str = ""
    """USER@HOST that submitted it; empty: an earlier version of the program did."""
    started_s: float
    """Seconds since the epoch."""
    ended_s: float | None

    @property
    def active(self) -> bool:
        """Whether it waits or runs."""
        return self.status in ACTIVE


class ClusterJobs:
    """The job server of a cluster, by its URL; raises UserError if none of Ray's answers, or it refuses our token."""

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        _check_address(address)
        from ray.job_submission import JobSubmissionClient

        for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
            logging.getLogger(name).setLevel(logging.ERROR)
        use_token_file()
        self.address = address
        # It overrides RAY_ADDRESS, which overrides the client's argument (2.60).
        os.environ["RAY_API_SERVER_ADDRESS"] = address
        with _problems(address):
            self._client = JobSubmissionClient(address)

    def jobs(self) -> list[Job]:
        """Return the jobs of all studies, oldest first."""
        jobs = [
            _job(details) for details in self._listed() if STUDY_KEY in (details.metadata or {})
        ]
        return sorted(jobs, key=lambda job: job.started_s)

    def drivers(self) -> int:
        """Return how many drivers run or wait: submitted jobs, and programs that joined the cluster by its address."""
        return sum(details.status in ACTIVE for details in self._listed())

    def _listed(self) -> list[Any]:
        with _problems(self.address):
            return list(self._client.list_jobs())

    def newest(self, study: str) -> Job:
        """Return the job of this name, or a study's newest one, one's own first; raises UserError if there is none."""
        jobs = self.jobs()
        named = [job for job in jobs if study in (job.study, job.name)]
        if not named:
            others = ", ".join(sorted({job.study for job in jobs})) or "none"
            raise UserError(
                f"no job of study {study!r} on the cluster at {self.address}; studies with jobs there: {others}. "
                f"Submit it with `submit`."
            )
        return max(named, key=lambda job: (job.owner == owner_here(), job.started_s))

    def get(self, name: str) -> Job:
        """Return a job by its name."""
        with _problems(self.address):
            return _job(self._client.get_job_info(name))

    def machines(self) -> int:
        """Return how many machines of the cluster are there now, its head included."""
        from ray.util.state import list_nodes

        with _problems(self.address):
            # Ray's own filter takes the lost machines for data that was cut off, and raises (2.60).
            nodes = list_nodes(self.address, limit=MAX_NODES)
        return sum(node.state == "ALIVE" for node in nodes)

    def start(
        self, study: str, results: str, command: str, folder: Path, more: Mapping[str, str]
    ) -> str:
        """Start a job as soon as the head has memory for it, and return its name.

        `command` is a shell command that the cluster's head runs in its copy of `folder`, from where it imports, too.
        `more` is added to the job's metadata.
        """
        # A moment, not a number: a head that was lost takes its list of jobs with it.
        name = f"{study}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
        environment = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}
        with _problems(self.address):
            return self._client.submit_job(
                entrypoint=command,
                submission_id=name,
                runtime_env={"working_dir": str(folder), "env_vars": environment},
                metadata={STUDY_KEY: study, RESULTS_KEY: results, OWNER_KEY: owner_here(), **more},
                entrypoint_memory=DRIVER_BYTES,  # and no CPU: a head may have none, or a single one that trains
                entrypoint_resources=ON_HEAD,
            )

    def stop(self, name: str) -> None:
        """Ask a job to save its runs and end; do not wait for it."""
        with _problems(self.address):
            self._client.stop_job(name)

    def follow(self, name: str, write: Say) -> Job:
        """Write what a job prints, from its beginning, until it ends; return its final state.

        Raises UserError if the connection is lost, which ends no job.
        """
        try:
            with _problems(self.address):
                asyncio.run(self._tail(name, write))
            while (job := self.get(name)).active:  # its last line is there before its status
                time.sleep(FOLLOW_EVERY_S)
        except UserError as problem:
            again = f"If the head is up, {name} is running, and `cluster logs` follows it again."
            raise UserError(f"{problem} {again}") from problem
        return job

    async def _tail(self, name: str, write: Say) -> None:
        async for text in self._client.tail_job_logs(name):
            write(text)


def owner_here() -> str:
    """Return USER@HOST, by which a cluster knows who submitted a job."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _job(details: Any) -> Job:
    return Job(
        name=details.submission_id,
        study=details.metadata[STUDY_KEY],
        results=details.metadata[RESULTS_KEY],
        status=str(details.status.value),
        exit_code=details.driver_exit_code,
        message=details.message or "",
        owner=details.metadata.get(OWNER_KEY, ""),
        started_s=(details.start_time or 0) / 1000,
        ended_s=details.end_time / 1000 if details.end_time else None,
    )


def _check_address(address: str) -> None:
    """Fail early: Ray waits minutes for a silent host, and takes other strings for other kinds of address."""
    try:
        url = TypeAdapter(HttpUrl).validate_python(address)
    except ValidationError as error:
        raise UserError(
            f"--address: got {address!r}, want the URL of a cluster's job server, such as {DEFAULT_ADDRESS}, where "
            f"`ui cluster.yaml` makes it available."
        ) from error
    try:
        check_answers(str(url.host).strip("[]"), url.port or 80)
    except OSError as error:
        raise UserError(
            f"nothing answers at --address {address}: {error}. Start a cluster with `ray up cluster.yaml` and a tunnel "
            f"to it with `ui cluster.yaml`, or one on this machine with `ray start --head`."
        ) from error


def _problems(address: str) -> AbstractContextManager[None]:
    import aiohttp
    from ray.exceptions import AuthenticationError
    from ray.util.state.exception import RayStateApiException

    def explain(error: Exception) -> UserError:
        if not isinstance(error, AuthenticationError):
            return UserError(f"the job server at {address} fails: {reason(error)}.")
        return UserError(
            f"the cluster at {address} refuses our token: {reason(error)}. Its token should be in "
            f"~/.ray/auth_token here, and RAY_AUTH_MODE unset or `token`."
        )

    of_ray = (AuthenticationError, RayStateApiException)
    return translated((*of_ray, aiohttp.ClientError, RuntimeError, OSError), explain)


def submit_study(
    study: Study,
    results: str,
    data_dir: str,
    server: ClusterJobs,
    options: Sequence[str],
    say: Say,
    secrets: Mapping[str, str] | None = None,
) -> Job:
    """Start a job that trains the runs of a study that the record on the cluster lacks; do not wait for its end.

    Args:
        study: what to train.
        results: the results directory, on a disk that all of the cluster's machines see, or a store.
        data_dir: where data sets are or are downloaded to, on such a disk.
        server: the cluster's job server.
        options: further options of `run`, such as `["--gpus-per-trial", "0.5"]`.
        say: receives a line about what is sent.
        secrets: environment variables of this job's driver and workers, which reach the cluster encrypted.

    Raises UserError while a job that writes there waits or runs, or if secrets cannot be encrypted.
    """
    from lr_sweep.sweep.study.file import study_to_yaml
    from lr_sweep.trainables.own.run import write_code

    _refuse_a_second(server, results)
    more = {SECRETS_KEY: sealed(secrets)} if secrets else {}
    with scratch_folder("copy-") as folder:
        size = copy_program(folder, files=study.files)
        sent = f"{study.study}.yaml"  # with all defaults and absolute paths
        (folder / sent).write_text(study_to_yaml(study), encoding="utf-8")
        if study.files is not None:  # data files are looked for in the data directory
            write_code(study.files, folder)
        say(f"sending {CHECKOUT}, {gigabytes(size)}, to {server.address}")
        where = ["--address", "auto", "--results", results, "--data-dir", data_dir]
        run = shlex.join(["run", sent, *where, *options])
        command = f"exec sh {START} {run}"  # `exec`: a stop signals Python, not a shell
        name = server.start(study.study, results, command, folder, more)
    return server.get(name)


def _refuse_a_second(cluster: ClusterJobs, results: str) -> None:
    for job in cluster.jobs():
        if not job.active or PurePosixPath(job.results) != PurePosixPath(results):
            continue
        raise UserError(
            f"{job.name} of {job.owner or 'another user'} writes to {results}, and a results directory has one writer "
            f"at a time; nothing was sent. Submit the study after its end, for which `cluster logs {job.name}` waits, "
            f"or give the study a directory of its own with --results (`rsync` joins them later)."
        )


def check_paths(results: str, data_dir: str) -> None:
    """Raise UserError for relative paths, which mean nothing on other machines, StoreError for URIs of no store."""
    paths = {"--results": results, "--data-dir": data_dir}
    if local_path(results) is None:
        checked(paths.pop("--results"))
    relative = [
        f"{option} {path}" for option, path in paths.items() if not Path(path).is_absolute()
    ]
    if relative:
        raise UserError(
            f"got {' and '.join(relative)}, want absolute paths: they are folders on a disk that all of the cluster's "
            f"machines see, such as /shared/results. The job itself runs in a temporary folder."
        )


def copy_program(folder: Path, program: Path = CHECKOUT, files: OwnFiles | None = None) -> int:
    """Copy the program to `folder`/lr_sweep, record there the `origin` of what runs; return its size in bytes.

    Ray's job server refuses more than 100 MiB (2.60), packed.
    """
    copy = folder / "lr_sweep"

    def left_out(parent: str, names: list[str]) -> set[str]:
        sent = {*SENT} if Path(parent) == program else {*names} - {"__pycache__"}
        return {*names} - sent

    shutil.copytree(program, copy, ignore=left_out, copy_function=shutil.copyfile)
    (copy / PACKED).write_text(json.dumps(origin(files)))
    return sum(path.stat().st_size for path in copy.rglob("*") if path.is_file())
