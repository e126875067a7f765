"""The live page: a web server on loopback that answers only to those who have the link with its token."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Mount, Route

from lr_sweep.analysis.record.read import recorded_studies
from lr_sweep.analysis.report.page import filled, web_text
from lr_sweep.analysis.study_report import write_report
from lr_sweep.common.errors import UserError
from lr_sweep.common.source_code import version_here
from lr_sweep.common.text import Say
from lr_sweep.sweep.inspection.show import find_run, log_text
from lr_sweep.sweep.mirror.pages import PREFIX, MlflowPages, mlflow_pages
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import run_title

from .guard import LOOPBACK, Guard
from .state import MOST_RUNS, Live, Stamp, rows_stamp, study_stamp

WEB = Path(__file__).with_name("web")
TEMPLATES = Path(__file__).with_name("templates")
REPORT_POLICY = "frame-ancestors 'none'"
"""The policy that a report's page has besides its own."""
MOST_LOG = 200_000


class _Page:
    def __init__(self, live: Live, mlflow: MlflowPages) -> None:
        self.live, self.mlflow, self._lock = live, mlflow, threading.Lock()
        self._reports: dict[str, tuple[Stamp, bytes]] = {}
        """The last report of each study, with what it rests on."""

    def overview(self, request: Request) -> Response:
        """Answer with one study, by default the one that trains, and how far the others are."""
        asked = self._recorded(request) if request.path_params else ""
        view = self.live.view()
        study = next((study for study in view.studies if study.name == asked), None)
        values: dict[str, Any] = {
            "view": view,
            "study": study or next(iter(view.studies), None),
            "mlflow": self.mlflow.address,
            "pages": self.mlflow.of_studies(study.name for study in view.studies),
            "most": MOST_RUNS,
        }
        return self._html("overview.html", **values)

    def report(self, request: Request) -> Response:
        """Answer with a study's report, which is written again once another run has ended."""
        study, results = self._recorded(request), self.live.results
        with self._lock, storage_problems(results.root):
            stamp = study_stamp(results, study, rows_stamp(results))
            if study not in self._reports or self._reports[study][0] != stamp:
                page = write_report(results.root, study, version_here).page
                self._reports[study] = stamp, page.read_bytes()
            content = self._reports[study][1]
        return HTMLResponse(content, headers={"Content-Security-Policy": REPORT_POLICY})

    def run(self, request: Request) -> Response:
        """Answer with the end of a run's log."""
        run_id = str(request.path_params["run_id"])
        if not re.fullmatch("[0-9a-f]{16}", run_id):
            raise HTTPException(404, "no such run")
        run = find_run(self.live.results, run_id)
        try:
            log = log_text(self.live.results, run_id, MOST_LOG)
        except UserError as none:
            log = str(none)
        title = run_title(run.labels) if run.labels else run_id
        return self._html("run.html", run=run, title=title, log=log)

    def style(self, request: Request) -> Response:
        """Answer with the style of reports, and the live page's own."""
        text = web_text("page.css") + WEB.joinpath("live.css").read_text("utf-8")
        return Response(text, media_type="text/css")

    def script(self, request: Request) -> Response:
        """Answer with the script that reads the page again."""
        return FileResponse(WEB / "live.js")

    def refused(self, request: Request, error: Exception) -> Response:
        """Answer with a mistake."""
        return self._html("refused.html", status=400, problem=str(error))

    def _recorded(self, request: Request) -> str:
        study = str(request.path_params["study"])
        if study not in recorded_studies(self.live.results.root):
            raise HTTPException(404, "no such study")
        return study

    def _html(self, template: str, status: int = 200, **values: Any) -> Response:
        page = filled(template, TEMPLATES, results=self.live.results.location, **values)
        return HTMLResponse(page, status)


def live_app(live: Live, token: str, port: int, mlflow: MlflowPages) -> Starlette:
    """Return the page's application, with MLflow's."""
    page = _Page(live, mlflow)

    app = Starlette(
        routes=[
            Route("/", page.overview),
            Route("/live.css", page.style),
            Route("/live.js", page.script),
            Route("/studies/{study}", page.overview),
            Route("/studies/{study}/report", page.report),
            Route("/runs/{run_id}", page.run),
            Mount(PREFIX, mlflow),
        ],
        exception_handlers={UserError: page.refused},
    )
    app.add_middleware(Guard, token=token, port=port)
    app.state.live = live
    return app


def serve(results: Results, port: int, token: str, say: Say) -> None:
    """Serve the page of a results directory and MLflow's pages until a signal ends it; `say` as of `mlflow_pages`.

    No request is logged: the link has the token.
    """
    with (
        mlflow_pages(results.root, say, f"http://{LOOPBACK}:{port}") as pages,
        suppress(KeyboardInterrupt),
    ):
        app = live_app(Live(results), token, port, pages)
        config = uvicorn.Config(
            app,
            host=LOOPBACK,
            port=port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        uvicorn.Server(config).run()
