"""A PostgreSQL server on this machine, which asks for a password."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lr_sweep.tests.support.waiting import free_port

PASSWORD = "a-secret"


@contextmanager
def postgres_database() -> Iterator[str]:
    """Yield the address of an empty database, as docs/cluster.md spells it; skip the test where there is no server."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: float(path.parts[-3]))
    if not installed:
        pytest.skip("needs PostgreSQL (Debian: postgresql)")
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
    folder, port = Path(tempfile.mkdtemp(prefix="postgres-")), free_port()
    (folder / "password").write_text(PASSWORD)
    if user is not None:
        shutil.chown(folder, user)
        shutil.chown(folder / "password", user)

    def control(*words: str) -> None:
        command = [installed[-1], "--pgdata", folder / "data", "--log", folder / "log", *words]
        subprocess.run(command, cwd=folder, user=user, check=True, timeout=120, stdout=subprocess.DEVNULL)

    try:
        control("initdb", "-o", f"--no-sync --auth scram-sha-256 --username me --pwfile {folder / 'password'}")
        control("start", "-o", f"-p {port} -h 127.0.0.1 -k ''")
        try:
            yield f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            control("stop", "--mode", "immediate")
    finally:
        shutil.rmtree(folder)
