"""The live page: a web server on loopback that answers only to those who have the link with its token."""

from __future__ import annotations

import re
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import recorded_studies
from lr_sweep.analysis.report.blocks import SweepChart
from lr_sweep.analysis.report.chart import chart_caption
from lr_sweep.analysis.report.page import SCRIPTS, filled, web_text
from lr_sweep.analysis.study_report import chart_and_verdict, write_report
from lr_sweep.common.errors import UserError
from lr_sweep.common.source_code import version_here
from lr_sweep.common.text import Say
from lr_sweep.sweep.inspection.show import find_run, log_text
from lr_sweep.sweep.live.chart import running_chart
from lr_sweep.sweep.live.curves import MOST_CURVES
from lr_sweep.sweep.live.guard import LOOPBACK, Guard
from lr_sweep.sweep.live.state import (
    MOST_OF_A_CORE,
    MOST_RUNS,
    Live,
    Stamp,
    StudyView,
    View,
    rows_stamp,
    study_stamp,
)
from lr_sweep.sweep.mirror.pages import PREFIX, MlflowPages, mlflow_pages
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import run_title

WEB = Path(__file__).with_name("web")
REPORT_POLICY = "frame-ancestors 'none'"
"""The policy that a report's page has besides its own."""
MOST_LOG = 200_000
T = TypeVar("T")


class Latest(Generic[T]):
    """What takes long to compute of a study: for the next reader after a run has ended, with a tenth of a core."""

    def __init__(self, results: Results, compute: Callable[[str], T]) -> None:
        self._results, self._compute, self._lock = results, compute, threading.Lock()
        self.kept: dict[str, tuple[Stamp, T]] = {}
        """What was computed last, by study, with what it rests on."""
        self.kept_until: dict[str, float] = {}

    def of(self, study: str) -> tuple[Stamp, T]:
        """Return what there is of a study, as of the runs that have ended, or had ended a moment ago."""
        now = time.monotonic
        with self._lock:
            stamp, began = study_stamp(self._results, study, rows_stamp(self._results)), now()
            kept = self.kept.get(study)
            if kept is None or (kept[0] != stamp and began >= self.kept_until[study]):
                kept = self.kept[study] = stamp, self._compute(study)
                self.kept_until[study] = now() + (now() - began) / MOST_OF_A_CORE
            return kept


class _Page:
    def __init__(self, live: Live, mlflow: MlflowPages) -> None:
        self.live, self.mlflow, results = live, mlflow, live.results
        self.reports = Latest(results, self._write_report)
        self.figures = Latest(results, lambda study: chart_and_verdict(results.root, study))

    def overview(self, request: Request) -> Response:
        return HTMLResponse(self._overview(self._recorded(request) if request.path_params else ""))

    def state(self, request: Request) -> Response:
        """Answer with the parts that have changed since those that the reader names: page, figure, curves, problem."""
        seen, problem = request.query_params, ""
        found = dict[str, tuple[object, Any]]()
        if study := self._shown(self.live.view(), asked := seen.get("study", "")):
            try:
                stamp, (chart, _) = self.figures.of(study.name)
                shown = chart if study.is_over else running_chart(chart, study.runs)
                version = int(seen.get("curves") or 0)
                found = {
                    "figure": ((stamp, *study.counts.values()), shown),
                    "curves": self.live.newer_curves(study.name, version),
                }
            except RecordError as error:
                problem = str(error)
        page = self._overview(asked)
        found |= {"page": (zlib.crc32(page.encode()), page), "problem": (problem, problem)}
        news = {part: each for part, each in found.items() if str(each[0]) != seen.get(part, "")}
        return JSONResponse(
            {
                part: {"version": str(version), "content": new}
                for part, (version, new) in news.items()
            }
        )

    def report(self, request: Request) -> Response:
        study = self._recorded(request)
        with storage_problems(self.live.results.root):
            _, page = self.reports.of(study)
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
        return HTMLResponse(self._html("run.html", run=run, title=title, log=log))

    def file(self, request: Request) -> Response:
        style, script, curves = (
            WEB.joinpath(name).read_text("utf-8") for name in ("live.css", "live.js", "curves.js")
        )
        if request.url.path == "/live.css":
            return Response(web_text("page.css") + style, media_type="text/css")
        # In a function, as the chart begins once its first data are there; in a block, for names of its own.
        chart = "\n".join([*map(web_text, SCRIPTS), f"{{\n{curves}}}"])
        return Response(
            f"{script}\nfunction drawn() {{\n{chart}\n}}\n", media_type="text/javascript"
        )

    def refused(self, request: Request, error: Exception) -> Response:
        return HTMLResponse(self._html("refused.html", problem=str(error)), 400)

    def _recorded(self, request: Request) -> str:
        study = str(request.path_params["study"])
        if study not in recorded_studies(self.live.results.root):
            raise HTTPException(404, "no such study")
        return study

    def _write_report(self, study: str) -> bytes:
        return write_report(self.live.results.root, study, version_here).page.read_bytes()

    def _shown(self, view: View, asked: str) -> StudyView | None:
        return next(
            (each for each in view.studies if each.name == asked), next(iter(view.studies), None)
        )

    def _overview(self, asked: str) -> str:
        view, mlflow = self.live.view(), self.mlflow
        pages, study = (
            mlflow.of_studies(study.name for study in view.studies),
            self._shown(view, asked),
        )
        stamp, (_, verdict) = self.figures.kept.get(study.name if study else "", (None, ({}, None)))
        # A template's block, which needs what the page's script does not change.
        chart = SweepChart(chart_caption(study.metric) if study else "")
        return self._html(
            "overview.html",
            view=view,
            study=study,
            asked=asked,
            chart=chart,
            # Of an earlier record it could be another.
            verdict=verdict if study and study.is_over and stamp == study.stamp else None,
            mlflow=mlflow.address,
            pages=pages,
            most=MOST_RUNS,
            most_curves=MOST_CURVES,
        )

    def _html(self, template: str, **values: Any) -> str:
        folder = Path(__file__).with_name("templates")
        return filled(template, folder, results=self.live.results.location, **values)


def live_app(live: Live, token: str, port: int, mlflow: MlflowPages) -> Starlette:
    """Return the page's application, with MLflow's."""
    page = _Page(live, mlflow)

    app = Starlette(
        routes=[
            Route("/", page.overview),
            Route("/live.css", page.file),
            Route("/live.js", page.file),
            Route("/state", page.state),
            Route("/studies/{study}", page.overview),
            Route("/studies/{study}/report", page.report),
            Route("/runs/{run_id}", page.run),
            Mount(PREFIX, mlflow),
        ],
        exception_handlers={UserError: page.refused},
    )
    app.add_middleware(Guard, token=token, port=port)
    app.state.live, app.state.page = live, page
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
