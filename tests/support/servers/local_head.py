"""A Ray head on this machine that requires a token; other Rays on the machine are unaffected."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from lr_sweep.tests.support.tiny_study import environment
from lr_sweep.tests.support.waiting import PATIENCE_S, free_ports

TOKEN = "0123456789abcdef" * 4
MEMORY_BYTES = 1_900_000_000
"""Enough for one driver."""


@dataclass(frozen=True)
class LocalHead:
    address: str
    """URL of its job server."""
    ray_address: str
    """Its address in Ray's own protocol, for `run`."""
    sessions: Path
    """Folder of Ray's files."""
    environment: dict[str, str]
    """Environment of programs that connect to it: the token is in its default file, and no variable enables it."""


@contextmanager
def local_head(folder: Path, num_cpus: int = 1) -> Iterator[LocalHead]:
    """Start a head and end it; `ray stop` would end every Ray of the machine."""
    token = folder / "home" / ".ray" / "auth_token"
    token.parent.mkdir(parents=True)
    token.write_text(TOKEN)
    env = environment(HOME=str(folder / "home"), PATH="/usr/bin:/bin")  # `python`, if there is one, lacks Ray
    env = {name: value for name, value in env.items() if not name.startswith("RAY_")}
    ports = free_ports(4)
    # Paths of sockets must be short; a process of Ray's that is ending may still write a file.
    scratch = tempfile.TemporaryDirectory(prefix="head-", dir="/tmp", ignore_cleanup_errors=True)
    with (
        scratch as sessions,
        (folder / "head.log").open("w") as log,
        subprocess.Popen(
            start_command(ports, Path(sessions), num_cpus),
            env=env | {"RAY_USAGE_STATS_ENABLED": "0"},  # the token's file makes the head require it
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as head,
    ):
        try:
            wait_for_answer(f"http://127.0.0.1:{ports[1]}", head, folder / "head.log")
            yield LocalHead(f"http://127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}", Path(sessions), env)
        finally:
            head.send_signal(signal.SIGTERM)  # with --block it ends what it started
            head.wait(timeout=60)


def start_command(ports: list[int], sessions: Path, num_cpus: int) -> list[str]:
    options = {
        "port": ports[0],
        "dashboard-port": ports[1],
        "dashboard-agent-listen-port": ports[2],
        "metrics-export-port": ports[3],
        "dashboard-host": "127.0.0.1",
        "node-ip-address": "127.0.0.1",
        "num-cpus": num_cpus,
        "num-gpus": 0,
        "object-store-memory": 100 * 2**20,
        "memory": MEMORY_BYTES,
        "temp-dir": sessions,
    }
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    return ray + [f"--{name}={value}" for name, value in options.items()]


def wait_for_answer(address: str, head: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            urlopen(f"{address}/api/version", timeout=5).close()
            return
        except HTTPError as refused:
            if refused.code == 401:
                return
        except (URLError, OSError):
            pass
        assert head.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.3)
