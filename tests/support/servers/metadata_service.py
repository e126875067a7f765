"""The metadata service of an AWS machine (IMDSv2), as far as the notice before a spot machine ends."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ADDRESS = "169.254.169.254"
NOTICE = '{"action": "terminate", "time": "2026-11-21T12:00:00Z"}'


class MetadataService(ThreadingHTTPServer):
    """Serves in its own thread until `end`."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__((address, port), _Machine)
        self.warned: set[str] = set()
        """Addresses of machines that get the notice."""
        self.looks: list[str] = []
        """Addresses of machines that have asked for a notice."""
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.shutdown()
        self.server_close()


class _Machine(BaseHTTPRequestHandler):
    server: MetadataService

    def do_PUT(self) -> None:
        known = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "60"
        self._answer("a-token" if known else None)

    def do_GET(self) -> None:
        address = self.client_address[0]
        if (
            self.path != "/latest/meta-data/spot/instance-action"
            or self.headers["X-aws-ec2-metadata-token"] != "a-token"
        ):
            return self._answer(None)
        self.server.looks.append(address)
        return self._answer(NOTICE if address in self.server.warned else None)

    def _answer(self, text: str | None) -> None:
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *arguments: Any) -> None:
        pass
