"""What a GPU machine of cluster.yaml does when AWS says that it will be taken away."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.tiny_study import ROOT

CLUSTER: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text())


class Notices(BaseHTTPRequestHandler):
    """A machine's metadata as AWS serves it, which asks for a token: a notice comes at the second look."""

    looks = 0

    def do_PUT(self) -> None:
        assert self.path == "/latest/api/token"
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "60"
        self._answer(200, "a-token")

    def do_GET(self) -> None:
        assert self.path == "/latest/meta-data/spot/instance-action"
        Notices.looks += 1
        known = self.headers["X-aws-ec2-metadata-token"] == "a-token"
        notice = '{"action": "terminate", "time": "2026-11-21T12:00:00Z"}'
        self._answer(*((200, notice) if known and Notices.looks > 1 else (404, "")))

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *arguments: Any) -> None:
        pass


def test_a_spot_machine_s_notice_reaches_ray(tmp_path: Path) -> None:
    (command,) = [line for line in CLUSTER["worker_start_ray_commands"] if "169.254.169.254" in line]
    programs = tmp_path / "lr-sweep" / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "ray").write_text(f'#!/bin/sh\necho "$RAY_AUTH_MODE $*" >> {tmp_path}/ray.log\n')
    (programs / "ray").chmod(0o755)
    with ThreadingHTTPServer(("127.0.0.1", 0), Notices) as server:
        threading.Thread(target=server.serve_forever).start()
        quick = command.replace("169.254.169.254", f"127.0.0.1:{server.server_port}").replace("sleep 5", "sleep 0.1")
        for _ in range(2):  # a second `ray up` leaves the first one's watch alone
            subprocess.run(["bash", "-c", quick], env=os.environ | {"HOME": str(tmp_path)}, check=True, timeout=10)
        deadline = time.monotonic() + 30
        while not (tmp_path / "ray.log").exists():
            assert time.monotonic() < deadline, (tmp_path / "notice.log").read_text()
            time.sleep(0.1)
        server.shutdown()
    said = (
        "token drain-node --reason DRAIN_NODE_REASON_PREEMPTION --reason-message spot --deadline-remaining-seconds 110"
    )
    assert (tmp_path / "ray.log").read_text() == f"{said}\n"
    assert Notices.looks == 2
