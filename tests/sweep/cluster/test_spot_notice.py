"""AWS's notice before a spot machine's end: reported to Ray by cluster.yaml, and to `run` by docs/preemption.md."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lr_sweep.tests.support.small_cluster import load, write_program
from lr_sweep.tests.support.tiny_study import ROOT
from lr_sweep.tests.support.waiting import wait_until

ADDRESS = "169.254.169.254"
NOTICE = '{"action": "terminate", "time": "2026-11-21T12:00:00Z"}'


class MetadataService(ThreadingHTTPServer):
    """The metadata service of an AWS machine (IMDSv2), which has a notice once it is `warned`."""

    warned, looks = False, 0


class Machine(BaseHTTPRequestHandler):
    server: MetadataService

    def do_PUT(self) -> None:
        known = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "60"
        self.answer("a-token" if known else None)

    def do_GET(self) -> None:
        known = self.headers["X-aws-ec2-metadata-token"] == "a-token"
        known = known and self.path == "/latest/meta-data/spot/instance-action"
        self.server.looks += known
        self.answer(NOTICE if known and self.server.warned else None)

    def answer(self, text: str | None) -> None:
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with MetadataService(("127.0.0.1", 0), Machine) as service:
        Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()


def test_a_spot_machine_s_notice_reaches_ray(tmp_path: Path, service: MetadataService) -> None:
    (command,) = [line for line in load("aws")["worker_start_ray_commands"] if ADDRESS in line]
    home, said = tmp_path / "lr-sweep", tmp_path / "ray.log"
    write_program(home / ".venv" / "bin" / "ray", f'#!/bin/sh\necho "$RAY_AUTH_MODE $*" >> {said}\n')
    (home / "sweep").symlink_to(ROOT / "sweep")
    quick = command.replace(ADDRESS, f"127.0.0.1:{service.server_port}").replace("sleep 5", "sleep 0.1")
    for _ in range(2):  # a second `ray up` leaves the first one's watch alone
        subprocess.run(["bash", "-c", quick], env=os.environ | {"HOME": str(tmp_path)}, check=True, timeout=10)
    wait_until(lambda: service.looks >= 2, "the machine to ask", patience_s=30)
    assert not said.exists()
    service.warned = True
    wait_until(said.exists, "Ray to be notified", patience_s=30)
    reason = "--reason DRAIN_NODE_REASON_PREEMPTION --reason-message spot --deadline-remaining-seconds 110"
    assert said.read_text() == f"token drain-node {reason}\n"


@pytest.mark.parametrize("ends", ["by the notice", "before it"])
def test_a_single_machine_s_notice_ends_run(tmp_path: Path, service: MetadataService, ends: str) -> None:
    """`run` is a script that saves at SIGTERM, or one that is done."""
    page = (ROOT / "docs" / "preemption.md").read_text()
    (watch,) = [block for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) if ADDRESS in block]
    waits = "trap 'echo saved; exit 130' TERM; while :; do sleep 0.1; done" if ends == "by the notice" else "exit 0"
    write_program(tmp_path / "lr-sweep", f"#!/bin/bash\n{waits}\n")
    quick = watch.replace(ADDRESS, f"127.0.0.1:{service.server_port}").replace("sleep 5", "sleep 0.1")
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(["bash", "-c", quick], env=os.environ | path, stdout=subprocess.PIPE, text=True) as shell:
        if ends == "by the notice":
            wait_until(lambda: service.looks >= 2, "the machine to ask", patience_s=30)
            assert shell.poll() is None
            service.warned = True
        printed, _ = shell.communicate(timeout=30)
    assert (shell.returncode, "saved" in printed) == ((130, True) if ends == "by the notice" else (0, False))
