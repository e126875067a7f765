"""An S3 server on this machine, and simulated machines that share nothing else."""

from __future__ import annotations

import http.client
import logging
import random
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from lr_sweep.tests.support.waiting import free_port

SECRET = "a-key-that-must-not-be-written-down"


class S3Server:
    """moto's, in a thread; objects outlive a stop."""

    def __init__(self) -> None:
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    @contextmanager
    def away(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.start()

    def empty(self, bucket: str) -> None:
        """Forget everything, and make a bucket."""
        for method, path in (("POST", "moto-api/reset"), ("PUT", bucket)):
            urllib.request.urlopen(urllib.request.Request(f"{self.url}/{path}", method=method)).close()


def environment_of(server: S3Server | FaultyServer, cache: Path) -> dict[str, str]:
    """Return the variables that reach the server, and hide this machine's own settings."""
    return {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "XDG_CACHE_HOME": str(cache),
    }


class Machines:
    """Lets this process act as one of several machines, each with its own cache."""

    def __init__(self, server: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self._folder, self._monkeypatch = server, folder, monkeypatch

    def be(self, name: str, server: S3Server | FaultyServer | None = None) -> Path:
        """Become a machine, which may see S3 through another server; returns its cache folder."""
        cache = self._folder / name
        for key, value in environment_of(server or self.server, cache).items():
            self._monkeypatch.setenv(key, value)
        return cache


@contextmanager
def faulty(server: S3Server, *, cut: float = 0.0, overloaded: float = 0.0, first: int = 0) -> Iterator[FaultyServer]:
    """Give a server before S3 that cuts a share of the bodies, and answers 503 to a share and to the first requests."""
    between = FaultyServer(server, cut, overloaded, first)
    thread = threading.Thread(target=between.serve_forever, daemon=True)
    thread.start()
    try:
        yield between
    finally:
        between.shutdown()
        between.server_close()


class FaultyServer(ThreadingHTTPServer):
    """Passes requests on, and counts them by method, folder and fate."""

    def __init__(self, server: S3Server, cut: float, overloaded: float, first: int) -> None:
        super().__init__(("127.0.0.1", 0), _Between)
        self.behind, self.cut, self.overloaded, self.first = server, cut, overloaded, first
        self.dice = random.Random(0)
        self.seen: Counter[tuple[str, str, str]] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Between(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def _pass_on(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fate, server = self.server.dice.random(), self.server
        if fate < server.overloaded or server.seen.total() < server.first:
            return self._answer(
                503, {}, b"<Error><Code>SlowDown</Code><Message>Please reduce your rate.</Message></Error>"
            )
        behind = http.client.HTTPConnection("127.0.0.1", server.behind.port, timeout=60)
        behind.request(self.command, self.path, sent, dict(self.headers))
        found = behind.getresponse()
        body = found.read()
        behind.close()
        self._answer(found.status, dict(found.headers), body, cut=self.command == "GET" and fate > 1 - server.cut)

    def _answer(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
        folder = self.path.partition("?")[0].split("/")[-2]
        fate = "cut" if cut else "whole" if status < 500 else "overloaded"
        self.server.seen[self.command, folder, fate] += 1
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass
