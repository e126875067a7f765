"""Jobs of a Ray cluster that train studies: found, followed, stopped. They run on whether anybody looks or not."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweep.errors import UserError
from sweep.network import check_answers

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
"""Of a cluster's job server as `ui --cluster` brings it here, and of a local `ray start --head`."""

STUDY_KEY = "lr_sweep_study"
RESULTS_KEY = "lr_sweep_results"

STOP_WAIT_S = 120
"""How long a stopped sweep may take to save its runs before Ray kills it; Ray's own default is 3 s."""

GOING_ON = ("PENDING", "RUNNING")
PATIENCE_S = 60.0
"""How long a connection that was lost is tried again."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the cluster knows it."""

    name: str
    """The study's name and a number: `mnist-small-2` is the second job of that study on this cluster."""
    study: str
    results: str
    """The results directory, on the cluster's machines."""
    status: str
    """PENDING, RUNNING, SUCCEEDED, STOPPED or FAILED."""
    exit_code: int | None
    """Of the driver; None: it goes on, or Ray ended it."""
    started_s: float
    """As time.time() tells it."""
    ended_s: float | None

    @property
    def number(self) -> int:
        """The number at the end of its name."""
        return int(self.name.rpartition("-")[2])

    @property
    def going_on(self) -> bool:
        """Whether it waits or trains."""
        return self.status in GOING_ON


class ClusterJobs:
    """The job server of a cluster.

    Args:
        address: its URL.

    Raises:
        UserError: it is no URL, or no job server of Ray answers there, or not to us.
    """

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        _check_answers(address)
        from ray._private.authentication import authentication_token_setup as token
        from ray.job_submission import JobSubmissionClient

        logging.getLogger("ray.dashboard").setLevel(logging.ERROR)
        for module in ("dashboard_sdk", "job.sdk"):
            logging.getLogger(f"ray.dashboard.modules.{module}").setLevel(logging.ERROR)
        # A token's mere presence makes `ray start` ask everybody for it, but not clients show it (2.60).
        logging.getLogger(token.__name__).setLevel(logging.ERROR)
        token.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        self.address = address
        with _problems(address), _without("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):  # which would win over ours
            self._client = JobSubmissionClient(address)

    def jobs(self, study: str | None = None) -> list[Job]:
        """Return the jobs of a study, or of all studies, oldest first."""
        with _problems(self.address):
            found = [_job(details) for details in self._client.list_jobs() if _is_ours(details)]
        return sorted((job for job in found if study in (None, job.study)), key=lambda job: job.started_s)

    def newest(self, study: str) -> Job:
        """Return the last job of a study.

        Raises:
            UserError: it has none on this cluster.
        """
        jobs = self.jobs()
        mine = [job for job in jobs if job.study == study]
        if not mine:
            others = ", ".join(sorted({job.study for job in jobs})) or "none"
            raise UserError(
                f"no job of study {study!r} on the cluster at {self.address}; studies with jobs there: {others}. "
                f"Submit it with `python -m sweep submit`."
            )
        return mine[-1]

    def get(self, name: str) -> Job:
        """Return a job by its name."""
        with _problems(self.address):
            return _job(self._client.get_job_info(name))

    def start(self, study: str, results: str, command: str, package: Path) -> str:
        """Start a job and return its name.

        Args:
            study: its name.
            results: the results directory, on the cluster's machines.
            command: for the shell of the cluster's head, in the folder that the package is unpacked to.
            package: a .zip.
        """
        number = max((job.number for job in self.jobs(study)), default=0) + 1
        with _problems(self.address):
            return str(
                self._client.submit_job(
                    entrypoint=command,
                    submission_id=f"{study}-{number}",
                    runtime_env={
                        "working_dir": str(package),
                        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)},
                    },
                    metadata={STUDY_KEY: study, RESULTS_KEY: results},
                )
            )

    def stop(self, name: str) -> None:
        """Ask a job to save its runs and end; returns at once."""
        with _problems(self.address):
            self._client.stop_job(name)

    def log(self, name: str) -> str:
        """Return all that a job printed so far."""
        with _problems(self.address):
            return str(self._client.get_job_logs(name))

    def follow(self, name: str, say: Callable[[str], None]) -> Job:
        """Hand on what a job prints, from its beginning, until it ends; return it then.

        Raises:
            UserError: the cluster was out of reach for a minute. The job goes on.
        """
        reader, heard_at = _Reader(say), time.monotonic()
        while True:
            try:
                with _problems(self.address):
                    asyncio.run(self._tail(name, reader))
                job = self.get(name)
                if not job.going_on:
                    reader.take_all(self.log(name))
                    return job
                heard_at = time.monotonic()
            except UserError as problem:
                if time.monotonic() - heard_at > PATIENCE_S:
                    raise UserError(
                        f"{problem} {name} goes on; `python -m sweep job logs` shows it again."
                    ) from problem
            time.sleep(1.0)

    async def _tail(self, name: str, reader: _Reader) -> None:
        reader.begin_again()
        async for text in self._client.tail_job_logs(name):
            reader.take(text)


class _Reader:
    """Hands a text on once, though it is read from its beginning after every loss of the connection."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told = self._read = 0

    def begin_again(self) -> None:
        """What is taken next is the beginning."""
        self._read = 0

    def take(self, text: str) -> None:
        """Hand on what is new of what comes next."""
        new = text[max(0, self._told - self._read) :]
        self._read += len(text)
        self._told = max(self._told, self._read)
        if new:
            self._say(new)

    def take_all(self, text: str) -> None:
        """Hand on what is new of the whole."""
        self.begin_again()
        self.take(text)


def _is_ours(details: Any) -> bool:
    return STUDY_KEY in (details.metadata or {}) and details.submission_id is not None


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


def _check_answers(address: str) -> None:
    """Fail early: Ray takes minutes over a silent host, and takes what is no URL for another kind of address."""
    try:
        parts = urlsplit(address)
        host, usual_port = parts.hostname, {"http": 80, "https": 443}.get(parts.scheme)
        port = parts.port or usual_port
    except ValueError:  # an unclosed bracket, a port over 65535
        host = port = usual_port = None
    if not host or port is None or usual_port is None:
        raise UserError(
            f"--address: got {address!r}, want the URL of a cluster's job server, such as {DEFAULT_ADDRESS}, which is "
            f"where `python -m sweep ui --cluster cluster.yaml` brings it."
        )
    try:
        check_answers(host, port)
    except OSError as error:
        raise UserError(
            f"nothing answers at --address {address}: {error}. Start a cluster with `ray up cluster.yaml` and a tunnel "
            f"to it with `python -m sweep ui --cluster cluster.yaml`, or one on this machine with `ray start --head`."
        ) from error


@contextmanager
def _problems(address: str) -> Iterator[None]:
    """Turn what Ray's client raises into a message."""
    import aiohttp
    import requests
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        raise UserError(
            f"the cluster at {address} does not let us in: {str(error).splitlines()[0]}. Its token should be in "
            f"~/.ray/auth_token here, and RAY_AUTH_MODE unset or `token`."
        ) from error
    except (requests.RequestException, aiohttp.ClientError, RuntimeError, OSError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:300]
        raise UserError(f"the job server at {address} fails: {reason}.") from error


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Hide environment variables."""
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
