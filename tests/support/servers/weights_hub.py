"""A Hugging Face hub on this machine, with one repository."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lr_sweep.trainables.pretraining.weights import WeightsSource

COMMIT = "c0ffee" + "0" * 34
MINE = WeightsSource(hub="lab/mine")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, list[str]]]:
    """A hub on this machine: the folder of its repository `lab/mine`, and what it was asked to send."""
    served, sent = tmp_path / "served", list[str]()
    served.mkdir()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            name = self.path.rpartition("/")[2]
            found = self.path.startswith("/lab/mine/resolve/") and (served / name).is_file()
            self.send_response(200 if found else 404)
            content = (served / name).read_bytes() if found else b""
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            if not found:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.end_headers()
            if self.command == "GET":
                sent.append(name)
                self.wfile.write(content)

        do_GET = do_HEAD  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    for name, value in {
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
    }.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield served, sent
    server.shutdown()
    server.server_close()
