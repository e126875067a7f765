"""An S3 server on this machine, and simulated machines that use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lr_sweep.tests.support.servers.s3_server import Machines, S3Server


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def machines(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Empty S3, and a machine to begin with."""
    server.empty("bucket")
    machines = Machines(server, tmp_path / "machines", monkeypatch)
    machines.be("first")
    return machines
