"""The jobs of a Ray cluster that train studies: list, start, follow and stop them."""

from __future__ import annotations

import logging
import math
import os
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import HttpUrl, TypeAdapter, ValidationError

from lr_sweep.common.errors import UserError, reason, translated
from lr_sweep.common.network import check_answers
from lr_sweep.trainables.worker.ray_internals import use_token_file

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
"""URL of the job server at the end of `ui --cluster`'s tunnel, and of a local `ray start --head`."""

MAX_NODES = 10_000
"""Most machines that Ray's job server lists."""
ACTIVE = ("PENDING", "RUNNING")
STUDY_KEY = "lr_sweep_study"
RESULTS_KEY = "lr_sweep_results"

STOP_WAIT_S = 120
"""Seconds that a stopped sweep may take to save its runs before Ray kills it; Ray's own default is 3 s."""

RECONNECT_S = 600.0
"""Seconds for which a lost connection is tried again: a head that boots takes some minutes."""
FOLLOW_EVERY_S = 1.0
"""Seconds between two looks at what a job has printed."""

START = "lr_sweep/sweep/cluster/start.sh"
"""The script in the folder that is sent; it finds the interpreter."""
KEPT = Path("~/lr-sweep-jobs").expanduser()
"""The folder, on a head, of the submitted jobs that are to resume when Ray starts again."""
RESTARTED = "started again"
"""Words of the line that a job prints when its driver was killed."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the cluster reports it."""

    name: str
    """The study's name and the time of its submission (UTC), such as `quickstart-20261123-041500`."""
    study: str
    results: str
    """The results directory, on the cluster's machines."""
    status: str
    """PENDING, RUNNING, SUCCEEDED, STOPPED or FAILED."""
    exit_code: int | None
    """The driver's exit code; None while it runs, or if Ray ended it."""
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
        os.environ["RAY_API_SERVER_ADDRESS"] = address  # overrides RAY_ADDRESS, which overrides the argument (2.60)
        with _problems(address):
            self._client = JobSubmissionClient(address)

    def jobs(self) -> list[Job]:
        """Return the jobs of all studies, oldest first."""
        with _problems(self.address):
            found = [_job(details) for details in self._client.list_jobs() if STUDY_KEY in (details.metadata or {})]
        return sorted(found, key=lambda job: job.started_s)

    def drivers(self) -> int:
        """Return how many drivers run or wait: submitted jobs, and programs that joined the cluster by its address."""
        with _problems(self.address):
            return sum(str(each.status.value) in ACTIVE for each in self._client.list_jobs())

    def newest(self, study: str) -> Job:
        """Return the newest job of a study; raises UserError if it has none on this cluster."""
        jobs = self.jobs()
        mine = [job for job in jobs if job.study == study]
        if not mine:
            others = ", ".join(sorted({job.study for job in jobs})) or "none"
            raise UserError(
                f"no job of study {study!r} on the cluster at {self.address}; studies with jobs there: {others}. "
                f"Submit it with `submit`."
            )
        return mine[-1]

    def get(self, name: str) -> Job:
        """Return a job by its name."""
        with _problems(self.address):
            return _job(self._client.get_job_info(name))

    def machines(self) -> int:
        """Return how many machines of the cluster are there now, its head included."""
        with _problems(self.address):
            response = self._client._do_request("GET", f"/api/v0/nodes?limit={MAX_NODES}")
            response.raise_for_status()
            return sum(node["state"] == "ALIVE" for node in response.json()["data"]["result"]["result"])

    def start(self, study: str, results: str, command: str, folder: Path, name: str | None = None) -> str:
        """Start a job and return its name, a new one or that of a job that is lost.

        `command` is a shell command that the cluster's head runs in its copy of `folder`, from where it imports, too.
        """
        environment = {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}
        with _problems(self.address):
            return self._client.submit_job(
                entrypoint=command,
                submission_id=name or job_name(study, datetime.now(UTC)),
                runtime_env={"working_dir": str(folder), "env_vars": environment},
                metadata={STUDY_KEY: study, RESULTS_KEY: results},
            )

    def stop(self, name: str) -> None:
        """Ask a job to save its runs and end; do not wait for it."""
        with _problems(self.address):
            self._client.stop_job(name)

    def log(self, name: str) -> str:
        """Return all that a job has printed."""
        with _problems(self.address):
            return str(self._client.get_job_logs(name))

    def follow(self, name: str, write: Callable[[str], None], say: Callable[[str], None] = print) -> Job:
        """Write what a job prints, from its beginning, until it ends; return its final state.

        `say` receives what happens to the connection. Raises UserError if the cluster was out of reach for ten
        minutes, which ends no job on a head that is still up.
        """
        shown, started_s, lost_at = 0, 0.0, math.inf
        while True:
            try:
                job, text = self.get(name), self.log(name)  # in this order: the log of an ended job is whole
                if lost_at < math.inf:
                    say("connected again")
                lost_at = math.inf
                if job.started_s > started_s:  # the first time, or a head that was lost has started it again
                    shown, started_s = 0, job.started_s
                write(text[shown:])
                shown = len(text)
                if not job.active:
                    return job
            except UserError as problem:
                if lost_at == math.inf:
                    lost_at = time.monotonic()
                    say(f"connection lost, tried again for {RECONNECT_S / 60:.0f} minutes: {problem}")
                if time.monotonic() - lost_at > RECONNECT_S:
                    raise UserError(
                        f"{problem} If the head is up, {name} is running, and `cluster logs` follows it again."
                    ) from problem
            time.sleep(FOLLOW_EVERY_S)


def driver_command(arguments: Sequence[str]) -> str:
    """Return the shell command of a job whose driver has these arguments."""
    return f"exec sh {START} {shlex.join(arguments)}"  # `exec`: a stop signals Python, not a shell


def job_name(study: str, submitted: datetime) -> str:
    """Name a job by its second, not by a number: a head that was lost takes its list of jobs with it."""
    return f"{study}-{submitted:%Y%m%d-%H%M%S}"


def _job(details: Any) -> Job:
    return Job(
        name=details.submission_id,
        study=details.metadata[STUDY_KEY],
        results=details.metadata[RESULTS_KEY],
        status=str(details.status.value),
        exit_code=details.driver_exit_code,
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
            f"`ui --cluster cluster.yaml` makes it available."
        ) from error
    try:
        check_answers(str(url.host).strip("[]"), url.port or 80)
    except OSError as error:
        raise UserError(
            f"nothing answers at --address {address}: {error}. Start a cluster with `ray up cluster.yaml` and a tunnel "
            f"to it with `ui --cluster cluster.yaml`, or one on this machine with `ray start --head`."
        ) from error


def _problems(address: str) -> AbstractContextManager[None]:
    import aiohttp
    from ray.exceptions import AuthenticationError

    def explain(error: Exception) -> UserError:
        if not isinstance(error, AuthenticationError):
            return UserError(f"the job server at {address} fails: {reason(error)}.")
        return UserError(
            f"the cluster at {address} refuses our token: {reason(error)}. Its token should be in "
            f"~/.ray/auth_token here, and RAY_AUTH_MODE unset or `token`."
        )

    kinds = (AuthenticationError, aiohttp.ClientError, RuntimeError, OSError)
    return translated(kinds, explain)
