"""The command `ui` in a process of its own, and the addresses that it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lr_sweep.tests.support.tiny_study import ROOT, environment
from lr_sweep.tests.support.waiting import free_port


@dataclass
class LivePage:
    process: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list)
    """Output of the page, up to the last address that was asked for."""

    def link(self) -> str:
        """Return the address of the page, with its token."""
        return self._address("live page  ")

    def mlflow(self) -> str:
        """Return the address of MLflow's page, once it is served."""
        return self._address("MLflow  ")

    def _address(self, name: str) -> str:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.match(rf"{name}(http\S+)$", line):
                return found[1]
        raise AssertionError("".join(self.lines))


@contextmanager
def live_page(
    results: Path, program: Sequence[str | Path] = (sys.executable, "-m", "sweep"), folder: Path = ROOT
) -> Iterator[LivePage]:
    """Start `ui` on a free port, in a process group of its own; it gets a SIGTERM at the end of the block."""
    port = free_port()
    with subprocess.Popen(
        [*program, "ui", "--results", results, "--port", str(port)],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield LivePage(process, port)
        finally:
            process.terminate()  # a failure must not leave us waiting for it
            process.wait(timeout=120)
