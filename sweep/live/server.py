"""The live page: a web server on loopback that answers only to those who have the link with its token."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from lr_sweep.analysis.record.read import recorded_studies
from lr_sweep.analysis.report.page import web_text
from lr_sweep.analysis.study_report import write_report
from lr_sweep.common.errors import UserError
from lr_sweep.common.source_code import version_here
from lr_sweep.common.text import Say, command
from lr_sweep.sweep.inspection.show import find_run, log_text
from lr_sweep.sweep.live.guard import LOOPBACK, Guard
from lr_sweep.sweep.live.state import HEIGHT, MOST_OF_A_CORE, WIDTH, Live, rows_stamp, study_stamp
from lr_sweep.sweep.mirror.pages import PREFIX, MlflowPages, mlflow_pages
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import run_title

WEB = Path(__file__).with_name("web")
REPORT_POLICY = "frame-ancestors 'none'"
"""The policy that a report's page has besides its own."""
MOST_LOG = 200_000
POLL_S = 1.0


class _Reports:
    """Reports of studies, written again for the next reader once their record has changed."""

    def __init__(self, live: Live) -> None:
        self.live, self._lock = live, threading.Lock()
        self._seen: dict[str, tuple[int, int | None]] = {}
        self.written_until: dict[str, float] = {}

    def page(self, study: str) -> bytes:
        """Return a study's page, as of the runs that have ended, or had ended a moment ago."""
        results, now = self.live.results, time.monotonic
        with self._lock:
            seen = study_stamp(results, study, rows_stamp(results))
            if self._seen.get(study) != seen and (began := now()) >= self.written_until.get(study, began):
                with storage_problems(results.root):
                    write_report(results.root, study, version_here)
                self._seen[study] = seen
                self.written_until[study] = now() + (now() - began) / MOST_OF_A_CORE
            return (results.report(study) / "index.html").read_bytes()


class _Page:
    def __init__(self, live: Live, mlflow: MlflowPages) -> None:
        self.live, self.mlflow, self.reports = live, mlflow, _Reports(live)
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).with_name("templates")),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )

    def overview(self, request: Request) -> Response:
        size = {"width": WIDTH, "height": HEIGHT}
        view, mlflow = self.live.view(), self.mlflow
        pages = mlflow.of_studies(study.name for study in view.studies)
        return self._html("overview.html", view=view, mlflow=mlflow.address, pages=pages, size=size)

    def report(self, request: Request) -> Response:
        study = str(request.path_params["study"])
        if study not in recorded_studies(self.live.results.root):
            raise HTTPException(404, "no such study")
        page = self.reports.page(study)
        return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY})

    def run(self, request: Request) -> Response:
        run_id = str(request.path_params["run_id"])
        if not re.fullmatch("[0-9a-f]{16}", run_id):
            raise HTTPException(404, "no such run")
        run = find_run(self.live.results, run_id)
        try:
            log = log_text(self.live.results, run_id, MOST_LOG)
        except UserError as none:
            log = str(none)
        title = run_title(run.labels) if run.labels else run_id
        stop = command("stop", run_id, "--results", self.live.results.location) if self.live.holder() else ""
        return self._html("run.html", run=run, title=title, log=log, stop=stop)

    async def events(self, request: Request) -> Response:
        """Send a line whenever what the overview shows has changed; the page then reads itself again."""

        async def changes() -> AsyncIterator[str]:
            seen = None
            while not request.app.state.closing():
                now = await run_in_threadpool(self.live.view), self.mlflow.address
                yield "data: changed\n\n" if now != seen else ": \n\n"  # which notices that the page was closed
                seen = now
                await asyncio.sleep(POLL_S)

        return StreamingResponse(changes(), media_type="text/event-stream")

    def file(self, request: Request) -> Response:
        if request.url.path == "/live.js":
            return Response((WEB / "live.js").read_text(encoding="utf-8"), media_type="text/javascript")
        return Response(web_text("page.css") + (WEB / "live.css").read_text(encoding="utf-8"), media_type="text/css")

    def refused(self, request: Request, error: Exception) -> Response:
        return self._html("refused.html", status=400, problem=str(error))

    def _html(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(
            self._templates.get_template(template).render(values, results=self.live.results.location), status
        )


def live_app(live: Live, token: str, port: int, mlflow: MlflowPages) -> Starlette:
    """Return the page's application, with MLflow's."""
    page = _Page(live, mlflow)

    app = Starlette(
        routes=[
            Route("/", page.overview),
            Route("/live.css", page.file),
            Route("/live.js", page.file),
            Route("/events", page.events),
            Route("/studies/{study}/report", page.report),
            Route("/runs/{run_id}", page.run),
            Mount(PREFIX, mlflow),
        ],
        exception_handlers={UserError: page.refused},
    )
    app.add_middleware(Guard, token=token, port=port)
    app.state.closing, app.state.live, app.state.reports = (lambda: False), live, page.reports
    return app


def serve(results: Results, port: int, token: str, say: Say) -> None:
    """Serve the page of a results directory and MLflow's pages until a signal ends it; `say` as of `mlflow_pages`.

    No request is logged: the link has the token.
    """
    with mlflow_pages(results.root, say, f"http://{LOOPBACK}:{port}") as pages, suppress(KeyboardInterrupt):
        app = live_app(Live(results), token, port, pages)
        config = uvicorn.Config(
            app, host=LOOPBACK, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=5
        )
        server = uvicorn.Server(config)
        app.state.closing = lambda: server.should_exit
        server.run()
