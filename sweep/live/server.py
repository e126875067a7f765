"""The live page: a web server on loopback that answers only to those who have the link with its token."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import signal
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lr_sweep.analysis.record.read import recorded_studies
from lr_sweep.analysis.report.page import web_text
from lr_sweep.analysis.study_report import write_report
from lr_sweep.analysis.watch import REFRESH_S, Stamp, record_stamp
from lr_sweep.common.errors import UserError
from lr_sweep.common.source_code import version_here
from lr_sweep.sweep.inspection.show import find_run, log_text
from lr_sweep.sweep.inspection.stop import request_stop
from lr_sweep.sweep.live.resume import Resumed
from lr_sweep.sweep.live.state import HEIGHT, MOST_OF_A_CORE, WIDTH, Live
from lr_sweep.sweep.results.directory import storage_problems
from lr_sweep.sweep.results.run_state import run_title

LOOPBACK = "127.0.0.1"
WEB = Path(__file__).with_name("web")
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = "frame-ancestors 'none'"
"""A report's page has the rest of its own."""
HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff"}
"""Without any referrer, browsers would send the origin `null` with the page's own forms."""
ENTER = '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><a href="/">The page</a>'
"""Answers the link: a redirect would be sent without the cookie where the link stood on another site's page."""
MOST_LOG = 200_000
"""Bytes of a log's end that are shown."""
POLL_S = 1.0
"""Between looks for changes, while a page is open."""


class Guard:
    """Answers 403 to requests without the token, for another host, or that change something from another origin."""

    def __init__(self, app: ASGIApp, token: str, hosts: tuple[str, ...]) -> None:
        self.app, self.token, self.hosts = app, token, hosts
        self.cookie = f"lr-sweep-{hosts[0].partition(':')[2]}"  # a browser shares cookies between the ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in (HEADERS | {"Content-Security-Policy": POLICY}).items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._refusal(scope) or self.app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self.hosts:  # the name of another host that leads here
            return PlainTextResponse("refused: open the link that `ui` printed", 403)
        if scope["method"] not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("refused: another page sent this", 403)
        if self._is_token(_cookie(headers, self.cookie)):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] != "/" or scope["method"] != "GET" or not self._is_token(given):
            return PlainTextResponse("refused: open the link that `ui` printed; its token is needed", 403)
        entered = HTMLResponse(ENTER)
        entered.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
        return entered

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


class Reports:
    """Reports of studies, written again for the next reader once their record has changed."""

    def __init__(self, live: Live) -> None:
        self.live, self._lock = live, threading.Lock()
        self._seen: dict[str, tuple[Stamp, bool]] = {}
        self.written_until: dict[str, float] = {}

    def page(self, study: str) -> bytes:
        """Return a study's page; it reads itself again while a sweep runs."""
        results, now = self.live.results, self.live.monotonic
        with self._lock:
            seen = record_stamp(results.root, study), results.being_written()
            if self._seen.get(study) != seen and (began := now()) >= self.written_until.get(study, began):
                with storage_problems(results.root):
                    write_report(results.root, study, version_here, refresh_s=REFRESH_S if seen[1] else None)
                self._seen[study] = seen
                self.written_until[study] = now() + (now() - began) / MOST_OF_A_CORE
            return (results.report(study) / "index.html").read_bytes()

    def close(self) -> None:
        """Write those that read themselves again once more, without that."""
        for study, (_, refreshes) in self._seen.items():
            if refreshes:
                with suppress(UserError, OSError):  # the results may be gone
                    write_report(self.live.results.root, study, version_here)


class Page:
    """The answers."""

    def __init__(self, live: Live, mlflow: Mapping[str, str]) -> None:
        self.live, self.mlflow, self.reports, self.resumed = live, mlflow, Reports(live), Resumed(live.results)
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).with_name("templates")),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )

    def overview(self, request: Request) -> Response:
        """Show all studies."""
        size = {"width": WIDTH, "height": HEIGHT}
        return self._html("overview.html", view=self.live.view(), mlflow=self.mlflow, resumed=self.resumed, size=size)

    def report(self, request: Request) -> Response:
        """Show the report of a study."""
        page = self.reports.page(self._study(request))
        return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY})

    def run(self, request: Request) -> Response:
        """Show the log of a run."""
        run = find_run(self.live.results, run_id := self._run_id(request))
        try:
            log = log_text(self.live.results, run_id, MOST_LOG)
        except UserError as none:
            log = str(none)
        title = run_title(run.labels) if run.labels else run_id
        return self._html("run.html", run=run, title=title, log=log)

    def stop_run(self, request: Request) -> Response:
        """Ask the sweep to stop a run."""
        self._check_here()
        request_stop(self.live.results, self._run_id(request))
        return self._changed()

    def stop_sweep(self, request: Request) -> Response:
        """Ask the sweep to stop, as Ctrl-C does: once, since a second time would break it off."""
        holder = self.live.holder()
        if holder.get("host") != socket.gethostname():
            raise UserError("no sweep is running on this machine")
        asked = self.live.results.sweep_stop
        asked.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError, ProcessLookupError):  # asked already, or it has just ended
            asked.touch(exist_ok=False)
            os.kill(int(holder["pid"]), signal.SIGTERM)
        return self._changed()

    def resume(self, request: Request) -> Response:
        """Train what is left of a study, or also what failed or was stopped, in a process that outlives this one."""
        self._check_here()
        study = self._study(request)
        self.resumed.start(study, retry=request.url.path.endswith("/retry"))
        return self._changed()

    async def events(self, request: Request) -> Response:
        """Send a line whenever what the overview shows has changed; the page then reads itself again."""

        async def changes() -> AsyncIterator[str]:
            seen = None
            while not request.app.state.closing():
                now = await run_in_threadpool(self.live.view), self.resumed.is_running(), dict(self.mlflow)
                yield "data: changed\n\n" if now != seen else ": \n\n"  # which notices that the page was closed
                seen = now
                await asyncio.sleep(POLL_S)

        return StreamingResponse(changes(), media_type="text/event-stream")

    def file(self, request: Request) -> Response:
        """Return the style, or the script."""
        if request.url.path == "/live.js":
            return Response((WEB / "live.js").read_text(encoding="utf-8"), media_type="text/javascript")
        return Response(web_text("page.css") + (WEB / "live.css").read_text(encoding="utf-8"), media_type="text/css")

    def refused(self, request: Request, error: Exception) -> Response:
        """Show what the user can put right."""
        return self._html("refused.html", status=400, problem=str(error))

    def _html(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(
            self._templates.get_template(template).render(values, results=self.live.results.location), status
        )

    def _changed(self) -> Response:
        self.live.expire()
        return RedirectResponse("/", 303)

    def _check_here(self) -> None:
        if self.live.results.uri is not None:
            raise UserError(f"{self.live.results.uri} is shown from a copy: stop and resume where the sweep runs")

    def _study(self, request: Request) -> str:
        study = str(request.path_params["study"])
        if study not in recorded_studies(self.live.results.root):
            raise HTTPException(404, "no such study")
        return study

    def _run_id(self, request: Request) -> str:
        run_id = str(request.path_params["run_id"])
        if not re.fullmatch("[0-9a-f]{16}", run_id):
            raise HTTPException(404, "no such run")
        return run_id


def live_app(live: Live, token: str, port: int, mlflow: Mapping[str, str]) -> Starlette:
    """Return the page's application; `mlflow`: addresses of MLflow's pages by study, and under "" that of all runs."""
    page = Page(live, mlflow)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(page.reports.close)

    app = Starlette(
        routes=[
            Route("/", page.overview),
            Route("/live.css", page.file),
            Route("/live.js", page.file),
            Route("/events", page.events),
            Route("/studies/{study}/report", page.report),
            Route("/studies/{study}/resume", page.resume, methods=["POST"]),
            Route("/studies/{study}/retry", page.resume, methods=["POST"]),
            Route("/runs/{run_id}", page.run),
            Route("/runs/{run_id}/stop", page.stop_run, methods=["POST"]),
            Route("/stop", page.stop_sweep, methods=["POST"]),
        ],
        exception_handlers={UserError: page.refused},
        lifespan=lifespan,
    )
    app.add_middleware(Guard, token=token, hosts=(f"{LOOPBACK}:{port}", f"localhost:{port}"))
    app.state.closing, app.state.live, app.state.reports = (lambda: False), live, page.reports
    return app


def link(port: int, token: str) -> str:
    """Return the address that opens the page."""
    return f"http://{LOOPBACK}:{port}/?token={token}"


def serve(live: Live, port: int, token: str, mlflow: Mapping[str, str]) -> None:
    """Serve the page until a signal ends it. Logs no request: the link has the token."""
    app = live_app(live, token, port, mlflow)
    quiet = partial(uvicorn.Config, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
    server = uvicorn.Server(quiet(app, host=LOOPBACK, port=port))
    app.state.closing = lambda: server.should_exit
    server.run()
