"""The section "Try it without a cloud" of docs/cluster.md, typed into the shell that it opens; `make cluster-test`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from lr_sweep.tests.support.servers.ssh_hosts import what_is_missing
from lr_sweep.tests.support.tiny_study import ROOT
from lr_sweep.tests.support.waiting import PATIENCE_S

DONE = "exit code of the command:"
MLFLOW = "http://127.0.0.1:5000/mlflow/api/2.0/mlflow/experiments/get-by-name?experiment_name=lr-sweep"
ASKS_MLFLOW = (
    f"curl -s -o /dev/null -w '%{{http_code}}\\n' '{MLFLOW}'",
    f"curl -s -H \"Authorization: Bearer $(sha256sum < ~/.ray/auth_token | cut -c-64)\" '{MLFLOW}'",
)
"""Through the tunnel, without the token of the cluster and with it."""


def commands() -> list[str]:
    """Return the commands of the section, without their comments; the first opens the shell, the last ends it."""
    section = re.compile(r"^## Try it without a cloud\n(.*?)^## ", re.DOTALL | re.MULTILINE)
    found = section.search((ROOT / "docs" / "cluster.md").read_text())
    assert found is not None
    blocks = re.findall(r"```bash\n(.*?)```", found[1], re.DOTALL)
    return [re.sub(r"\s+# .*", "", line) for block in blocks for line in block.splitlines()]


def test_the_section_begins_with_the_shell_and_ends_it() -> None:
    assert commands()[0] == "sudo make hosts"
    assert commands()[-1] == "exit"


class Shell:
    """A shell whose commands are typed one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def type(self, command: str) -> str:
        """Run a command to its end, or until it says that its tunnels are open; return what it printed."""
        if command.endswith("&"):
            self._write(command)
            return self._read_until("Ctrl-C closes the tunnels")
        self._write(f"{command} < /dev/null; echo '{DONE}' $?")
        printed = self._read_until(DONE)
        assert printed.endswith(f"{DONE} 0\n"), f"{command}\n{printed}"
        return printed

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read_until(self, text: str) -> str:
        assert self._process.stdout is not None
        printed, deadline = "", time.monotonic() + 4 * PATIENCE_S
        for line in self._process.stdout:
            printed += line
            if text in line:
                return printed
            assert time.monotonic() < deadline, f"waited for {text!r}:\n{printed}"
        raise AssertionError(f"the shell ended before it printed {text!r}:\n{printed}")


@contextmanager
def opened() -> Iterator[Shell]:
    """Open what `make hosts` opens: the namespaces around it are those of the test."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    words = [sys.executable, "-m", "lr_sweep.tests.support.servers.hosts_shell"]
    with subprocess.Popen(words, cwd=ROOT, text=True, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield Shell(process)
            assert process.stdin is not None
            process.stdin.close()  # ends the shell
            assert process.wait(timeout=PATIENCE_S) == 0
        finally:
            # The tunnels, whose ports the next test needs; `make hosts` ends them with its namespace.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.hosts
def test_a_first_sweep_by_the_page_alone() -> None:
    if reason := what_is_missing():
        pytest.skip(reason)
    _, *typed, _ = commands()
    times, printed = [], {}
    with opened() as shell:
        *typed, down = typed
        for command in [*typed, *ASKS_MLFLOW, down]:
            began = time.monotonic()
            printed[command] = shell.type(command)
            times.append((time.monotonic() - began, command))
            print(f"{times[-1][0]:5.0f} s  {command}\n{printed[command][-1500:]}", flush=True)
    everything = "".join(printed.values())
    assert "132 runs wanted: 12 complete, 0 diverged, 0 failed, 120 missing." in everything
    without, with_token = (printed[command] for command in ASKS_MLFLOW)
    assert without.startswith("403")
    assert '"name": "lr-sweep"' in with_token  # the driver has mirrored the sweep there
    print("\n".join(f"{took_s:5.0f} s  {command}" for took_s, command in times))
    print(f"{sum(took_s for took_s, _ in times):5.0f} s  together")
