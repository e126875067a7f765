"""Lets through to a server on a loopback address only those who have its token."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")
"""Host names that a browser may ask for; a hostile page could make any other name lead here."""
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
REFUSED = "refused: want the token: open the link that `ui` printed, or set MLFLOW_TRACKING_TOKEN"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
ENTER = '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><a href="/">The page</a>'
"""The answer to the link. After a redirect, a browser that came from another site would not send the cookie."""


class Guard:
    """Answers 403 to requests without the token, for another host, or that change something from another origin.

    A browser has the token as a cookie, from the link `/?token=TOKEN`; a program sends `Authorization: Bearer TOKEN`.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.cookie = f"lr-sweep-{port}"  # a browser shares cookies between the ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":  # nothing here has one
            return await send({"type": "websocket.close"})

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
        if host.partition(":")[0] not in HOSTS:
            return PlainTextResponse("refused: open the link that `ui` printed", 403)
        if self._is_token(headers.get("authorization", "").removeprefix("Bearer ")):
            return None  # no page of another origin can send that
        if scope["method"] not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("refused: another page sent this", 403)
        if self._is_token(_cookie(headers, self.cookie)):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] != "/" or scope["method"] != "GET" or not self._is_token(given):
            return PlainTextResponse(REFUSED, 403)
        entered = HTMLResponse(ENTER)
        entered.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
        return entered

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _cookie(headers: Headers, name: str) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def link(port: int, token: str) -> str:
    """Return the address that gives a browser the token."""
    return f"http://{LOOPBACK}:{port}/?token={token}"
