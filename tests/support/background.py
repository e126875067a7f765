"""A `run` in the background of a test: waited for, ended, killed with all that it started, or looked at meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, Self

import grpc
import psutil

from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment
from lr_sweep.tests.support.waiting import PATIENCE_S


class Background:
    """A `run` in a process group of its own, which is killed at the end of a `with` block; its output is in a file."""

    program: ClassVar[tuple[str, ...]] = ("-m", "sweep")
    settings: ClassVar[Mapping[str, str]] = {}

    def __init__(self, log: Path, *arguments: str | Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "run", *map(str, arguments)],
                cwd=ROOT,
                env=environment(**{**self.settings, **(env or {})}),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_until(self, happened: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not happened():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def ends(self, patience_s: float = PATIENCE_S) -> tuple[int, str]:
        try:
            return self.process.wait(patience_s), self.log.read_text()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(self.log.read_text()) from None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass(kw_only=True)
class Watched:
    folder: Path
    """Where Ray's folder is."""
    code: int = -1
    output: str = ""
    listening: set[tuple[str, str]] = field(default_factory=set)
    """Kind of process and IP address, of all TCP and UDP sockets that take connections."""
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    """Environments of the driver and of a process that trains: only what the command was given."""
    modes: dict[str, int] = field(default_factory=dict)
    """Permissions of Ray's folder, and of the token."""
    answers: dict[str, str] = field(default_factory=dict)
    """What Ray's GCS answered, by who asked: with `no token`, a `wrong token`, or `the token`."""
    commands: set[str] = field(default_factory=set)
    """Command lines of all processes that it started."""

    @property
    def files(self) -> Iterator[Path]:
        return (path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink())


@contextlib.contextmanager
def watched_run(*arguments: str | Path, env: Mapping[str, str]) -> Iterator[Watched]:
    """Run a command to its end, with a folder of its own for Ray, which is there as long as the block."""
    with tempfile.TemporaryDirectory(prefix="watched-", dir="/tmp") as folder:  # paths of sockets must be short
        seen, log = Watched(folder=Path(folder)), Path(folder) / "output"
        with log.open("w") as file:
            process = subprocess.Popen(
                command_line(*arguments),
                cwd=ROOT,
                env=environment(RAY_TMPDIR=folder, **env),
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + PATIENCE_S
        try:
            while process.poll() is None and time.monotonic() < deadline:
                _look(seen, process.pid, env)
                time.sleep(0.5)
        finally:
            process.kill()
        seen.code, seen.output = process.wait(), log.read_text()
        log.unlink()
        yield seen


def _look(seen: Watched, pid: int, given: Mapping[str, str]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        driver = psutil.Process(pid)
        for process in [driver, *driver.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                kind = "driver" if process == driver else process.name()
                seen.commands.add(" ".join(process.cmdline()))
                _look_at_sockets(seen, process, kind)
                if kind == "driver" or "Trainable" in kind:
                    has = process.environ()
                    kept = {name: has[name] for name in given if name in has}
                    seen.environments["driver" if kind == "driver" else "worker"] = kept


def _look_at_sockets(seen: Watched, process: psutil.Process, kind: str) -> None:
    for socket in process.net_connections(kind="inet"):
        takes = socket.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)  # the latter: UDP, if it has an address
        if takes and socket.laddr and not socket.raddr:
            seen.listening.add((kind, socket.laddr.ip))
            if kind == "gcs_server" and not seen.answers:
                _look_at_folder(seen, socket.laddr.port)


def _look_at_folder(seen: Watched, gcs_port: int) -> None:
    (ours,) = seen.folder.glob("lr-sweep-*")
    (token,) = ours.glob("r-*/token")
    seen.modes = {"folder": ours.stat().st_mode & 0o777, "token": token.stat().st_mode & 0o777}
    for who, shown in {"no token": None, "a wrong token": "0" * 64, "the token": token.read_text()}.items():
        seen.answers[who] = _ask(f"127.0.0.1:{gcs_port}", shown)


def _ask(gcs: str, token: str | None) -> str:
    """Ask Ray's GCS for names in its store; return the kind of its answer."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(gcs) as channel:
        keys = channel.unary_unary("/ray.rpc.InternalKVGcsService/InternalKVKeys")
        try:
            keys(b"", metadata=metadata, timeout=20)
        except grpc.RpcError as refused:
            return str(refused.code().name)
        return "OK"


def is_loopback(address: str) -> bool:
    """Return whether no other machine can reach an address; it may be IPv4 in IPv6's form."""
    parsed = ip_address(address)
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback
