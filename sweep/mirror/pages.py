"""MLflow's pages and its API as part of a server of ours, behind its token.

MLflow (3.17) asks no caller who they are, and lets each read and write any file of its user: through an experiment
that keeps its artifacts elsewhere, or a symbolic link among them. So it never listens by itself. Only its Flask
application is served, which has what its tracking page needs, and not its assistant, gateway and job runner.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch
from urllib.parse import parse_qs, quote, unquote, urlsplit

from a2wsgi import WSGIMiddleware
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.common.network import shown_uri
from lr_sweep.common.text import Say
from lr_sweep.sweep.mirror.client import (
    EXPERIMENT,
    VIEW_TAG,
    MirrorError,
    database_exists,
    is_server,
    open_client,
    owner_in,
    store_problems,
    tracking_uri,
)
from lr_sweep.sweep.mirror.content import view_key

PREFIX = "/mlflow"
READS = tuple(
    f"{PREFIX}/{end}" for end in ("get-artifact", "api/2.0/mlflow/artifacts/list", "ajax-api/2.0/mlflow/artifacts/list")
)
STORED = f"{PREFIX}/api/2.0/mlflow-artifacts/artifacts"
"""The start of the addresses by which clients store and read artifacts in the one folder for them."""
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'self'"
"""What MLflow's pages may load: scripts and styles of many kinds, but nothing from another host."""

_LOOK_EVERY_S = 2.0


class MlflowPages:
    """MLflow below `PREFIX`; answers 404 until it is opened. Among artifacts only those in one folder can be read."""

    def __init__(self, *, takes_artifacts: bool = False) -> None:
        self.address = ""
        """The page of all runs, relative to the server, or on a server of the user's; empty: there is none yet."""
        self.owner = ""
        """The id of the results directory in a store that may have others' runs, too."""
        self._takes_artifacts = takes_artifacts
        self._app: ASGIApp = PlainTextResponse("There is nothing in MLflow yet.", 404)
        self._client: Any = None
        self._folder = Path()
        self._threads: Executor | None = None

    def open(self, uri: str, artifacts: Path) -> None:
        """Serve the store at `uri`, whose runs keep their artifacts in a folder; takes seconds. Raises MirrorError."""
        client = open_client(uri)
        root = "mlflow-artifacts:/" if self._takes_artifacts else artifacts.as_uri()
        with store_problems(uri), patch.dict(os.environ), warnings.catch_warnings(action="ignore"):
            # MLflow's imports warn of what it uses itself, and it sets the address for all of this process.
            from mlflow.server import app, handlers

            handlers.initialize_backend_stores(uri, uri, root)
        if self._takes_artifacts:
            from mlflow.server.constants import ARTIFACTS_DESTINATION_ENV_VAR, SERVE_ARTIFACTS_ENV_VAR

            os.environ |= {SERVE_ARTIFACTS_ENV_VAR: "true", ARTIFACTS_DESTINATION_ENV_VAR: str(artifacts)}
        served = WSGIMiddleware(app)
        self._threads, self._app = served.executor, cast(ASGIApp, served)
        self._folder, self._client = artifacts.resolve(), client

    def of_studies(self, studies: Iterable[str]) -> dict[str, str]:
        """Return the pages of the runs of those studies that the store has; none of a server of the user's."""
        views: Mapping[str, str] = {}
        with suppress(MirrorError), store_problems(self.address):
            views = self._client.get_experiment_by_name(EXPERIMENT).tags if self._client else {}
        keys = {study: view_key(study, self.owner) for study in studies}
        shown = {study: key for study, key in keys.items() if f"{VIEW_TAG}{key}" in views}
        return {study: f"{self.address}&viewStateShareKey={quote(key)}" for study, key in shown.items()}

    def close(self) -> None:
        """Let the threads that answered end."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Content-Security-Policy"] = POLICY
            await send(message)

        app = self._app
        if not await run_in_threadpool(self._is_allowed, scope["path"], scope["query_string"].decode("latin-1")):
            app = PlainTextResponse(f"refused: only artifacts in {self._folder} are shown", 403)
        await app(scope, receive, with_policy)

    def _is_allowed(self, path: str, query: str) -> bool:
        if "artifact" not in path and "promptlab" not in path:
            return True
        if path.startswith(STORED):
            return self._takes_artifacts
        given = parse_qs(query)
        runs, within = given.get("run_uuid", []) + given.get("run_id", []), given.get("path", [""])
        return (
            self._client is not None
            and path in READS
            and len(runs) == len(within) == 1
            and self._holds(runs[0], within[0])
        )

    def _holds(self, run: str, within: str) -> bool:
        try:
            location = urlsplit(self._client.get_run(run).info.artifact_uri)
        except Exception:  # MLflow's own, for a run that is not there
            return False
        root = self._folder if location.scheme == "mlflow-artifacts" else Path("/")
        file = (root / unquote(location.path).lstrip("/") / within).resolve()
        return location.scheme in ("file", "mlflow-artifacts") and file.is_relative_to(self._folder)


@contextmanager
def mlflow_pages(results: Path, say: Say, server: str) -> Iterator[MlflowPages]:
    """Look for what the mirror writes for as long as the block runs; yield its pages, for a server of ours.

    They appear once the mirror has written them; `say` is then given a line with the page's address, which begins with
    `server`, and before that one for what is wrong with the store. Of a server of the user's, the address is given.
    """
    uri, pages = tracking_uri(results), MlflowPages()
    if is_server(uri):
        pages.address = shown_uri(uri)
        say(f"MLflow  {shown_uri(uri)}")
        yield pages
        return
    ended = threading.Event()
    follower = threading.Thread(target=_open, args=(pages, uri, results, say, server, ended), daemon=True)
    follower.start()
    try:
        yield pages
    finally:
        ended.set()
        follower.join()
        pages.close()


def _open(pages: MlflowPages, uri: str, results: Path, say: Say, server: str, ended: threading.Event) -> None:
    problem = ""
    while not (pages.address or ended.is_set()):
        try:
            address = runs_page(uri)
            pages.open(uri, Paths(results.resolve()).mlflow_artifacts)
            pages.owner, pages.address = owner_in(uri, results), address
            say(f"MLflow  {server}{address}")
        except MirrorError as error:
            if problem != (problem := str(error)) and database_exists(uri):
                say(f"MLflow  not served: {problem}")
            ended.wait(_LOOK_EVERY_S)


def runs_page(uri: str) -> str:
    """Return the address, on an MLflow server, of the page of all runs; MLflow's own first page is for language models.

    Raises MirrorError if the store at `uri` holds nothing of ours.
    """
    if not database_exists(uri):
        raise MirrorError(f"there is no MLflow store at {shown_uri(uri)}; `run` makes one")
    client = open_client(uri)
    with store_problems(uri):
        experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        raise MirrorError(f"MLflow at {shown_uri(uri)} has no experiment {EXPERIMENT}; `run` makes it")
    return f"{PREFIX}/#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning"
