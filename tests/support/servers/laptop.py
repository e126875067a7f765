"""A laptop beside a cluster of ssh hosts: `ray up`, tunnels, and studies that it submits there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lr_sweep.tests.support.chaos import final_weights, record_content
from lr_sweep.tests.support.servers.ssh_hosts import SHARED, Hosts
from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment, rows, sweep, write_study
from lr_sweep.tests.support.waiting import PATIENCE_S, wait_until

TOKEN = "0123456789abcdef" * 4
RESULTS = SHARED / "results"


@dataclass
class Follower:
    process: subprocess.Popen[bytes]
    log: Path

    def printed(self) -> str:
        return self.log.read_text()


class Laptop:
    """A machine that is no part of the cluster."""

    def __init__(self, hosts: Hosts, cluster_file: Path) -> None:
        home = hosts.folder / "laptop"
        (home / ".ray").mkdir(exist_ok=True)
        (home / ".ray" / "auth_token").write_text(TOKEN)
        self.cluster_file, self.log = cluster_file, hosts.folder / "laptop.log"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ray = {"TMPDIR": str(home), "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
        self.environment = environment(HOME=str(home), PATH=path, **ray)

    def ray_up(self) -> None:
        self._ray("up", "--no-config-cache")

    def ray_down(self) -> None:
        self._ray("down")

    def ray_up_that_fails(self) -> None:
        text = self.cluster_file.read_text()
        self.cluster_file.write_text(text.replace("\nsetup_commands:\n", "\nsetup_commands:\n  - sh -c false\n"))
        self._ray("up", "--no-config-cache", code=1)
        self.cluster_file.write_text(text)

    def _ray(self, command: str, *options: str, code: int = 0) -> None:
        began = time.monotonic()
        with self.log.open("ab") as log:
            words = ["ray", command, "-y", *options, str(self.cluster_file)]
            done = subprocess.run(words, cwd=ROOT, env=self.environment, stdout=log, stderr=log, timeout=PATIENCE_S)
        assert done.returncode == code, self.log.read_text()
        print(f"ray {command} took {time.monotonic() - began:.0f} s", flush=True)

    @contextmanager
    def tunnels(self) -> Iterator[None]:
        """Open the tunnels by the command that the documentation gives."""
        command = command_line("ui", self.cluster_file)
        earlier = len(self.log.read_text())  # earlier tunnels printed into the same file
        with (
            self.log.open("ab") as log,
            subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True
            ) as held,
        ):
            try:
                wait_until(lambda: self._tunnels_are_open(held, earlier), "tunnels")
                yield
            finally:
                os.killpg(held.pid, signal.SIGKILL)  # with its ssh, which would hold on to the ports

    @contextmanager
    def following(self, *arguments: str | Path) -> Iterator[Follower]:
        """Start a command that follows a job; its output goes to a file."""
        with (
            (self.cluster_file.parent / "followed.log").open("w+") as log,
            subprocess.Popen(
                command_line(*arguments), cwd=ROOT, env=self.environment, stdout=log, stderr=log
            ) as process,
        ):
            try:
                yield Follower(process, Path(log.name))
            except BaseException:
                print(Path(log.name).read_text(), flush=True)  # why what was waited for did not come
                raise
            finally:
                process.kill()

    def _tunnels_are_open(self, held: subprocess.Popen[bytes], earlier: int) -> bool:
        printed = self.log.read_text()[earlier:]
        assert held.poll() is None, printed[-2000:]
        return "Ctrl-C closes the tunnels" in printed

    def sweep(self, *arguments: str | Path) -> str:
        code, printed = sweep(*arguments, env=self.environment, timeout_s=3 * PATIENCE_S)
        assert TOKEN not in printed
        assert code == 0, printed
        return printed


def accepted(printed: str) -> str:
    found = re.search(r"(tiny-\d{8}-\d{6}-\d{6}) was accepted", printed)
    assert found is not None, printed
    return found[1]


def study_of(num_steps: int, rates: Sequence[float] = (1e-3, 3e-3, 1e-2, 3e-2)) -> dict[str, Any]:
    return {
        "rates": rates,
        "variants": ("unfrozen-random", "frozen-random"),
        "num_steps": num_steps,
        "protocol": f"{{evaluate_every: {num_steps // 40}, train_examples_evaluated: 100}}",
        "resources": "{runs_per_trial: 1, retries: 0}",
    }


def steps_within(duration_s: float, folder: Path) -> int:
    """Return how many steps a run of `study_of` makes in so long on a CPU of this machine; measure that in `folder`."""
    tried = 800
    study = write_study(folder, **study_of(tried, rates=(1e-3,)))
    code, printed = sweep("run", study, "--results", folder / "results", "--cpus", "1", timeout_s=3 * PATIENCE_S)
    assert code == 0, printed
    seconds = min(row["wall_s"] for row in rows(folder / "results").values())
    num_steps = 40 * round(tried * duration_s / seconds / 40)  # `study_of` evaluates 40 times
    print(f"{num_steps} steps in {duration_s:.0f} s on a CPU", flush=True)
    return num_steps


def report_moment(moment: str, began: float) -> None:
    print(f"{time.monotonic() - began:5.0f} s: {moment}", flush=True)


def check_as_if_undisturbed(study: Path, reference: Path) -> None:
    code, printed = sweep("run", study, "--results", reference, "--cpus", "2", timeout_s=8 * PATIENCE_S)
    assert code == 0, printed
    assert record_content(RESULTS) == record_content(reference)
    assert final_weights(RESULTS) == final_weights(reference)
    attempts = [row["attempts"] for row in rows(RESULTS).values()]
    print(f"attempts: {sorted(attempts)}, lost steps: {sorted(row['lost_steps'] for row in rows(RESULTS).values())}")
    code, printed = sweep("verify", "--results", RESULTS)
    assert code == 0, printed
