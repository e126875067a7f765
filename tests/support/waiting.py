"""Waiting for what other processes and threads do, and ports for servers on this machine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.error import URLError
from urllib.request import Request, urlopen

import psutil

PATIENCE_S = float(os.environ.get("CLUSTER_TEST_PATIENCE_S", "600"))
"""Long enough for a busy machine: a deadline ends a test that hangs, and says nothing about speed."""
T = TypeVar("T")


def wait_until(happened: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """Call `happened` until it returns something true, and return that."""
    deadline = time.monotonic() + patience_s
    while not (found := happened()):
        assert time.monotonic() < deadline, f"waited {patience_s:.0f} s for {what}"
        time.sleep(0.1)
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process is there, and not only its entry in a list that nothing reads."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_ports(number: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


def free_port() -> int:
    return free_ports(1)[0]


def mlflow_answers(port: int, token: str = "") -> bool:
    """Return whether MLflow answers, behind a server of ours if there is a token."""
    prefix = "/mlflow" if token else ""
    asked = Request(f"http://127.0.0.1:{port}{prefix}/health", headers={"Authorization": f"Bearer {token}"})
    try:
        return bool(urlopen(asked, timeout=5).read())
    except (URLError, OSError):
        return False
