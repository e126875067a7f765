"""A `run` in the background of a test, which is waited for, ended, or killed with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

from lr_sweep.tests.support.tiny_study import ROOT, environment


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

    def wait_until(self, happened: Callable[[], object], patience_s: float = 90.0) -> None:
        """Wait for something while it runs."""
        deadline = time.monotonic() + patience_s
        while not happened():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def ends(self, patience_s: float = 120.0) -> tuple[int, str]:
        """Return its exit code and all it printed."""
        try:
            return self.process.wait(patience_s), self.log.read_text()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(self.log.read_text()) from None

    def kill(self) -> None:
        """Kill it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
