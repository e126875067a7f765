"""A sweep that is killed: a `run` whose driver, workers and Ray get SIGKILL, and what must be equal afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from lr_sweep.analysis.record.read import read_curves, read_runs
from lr_sweep.sweep.mirror.client import open_client, tracking_uri
from lr_sweep.sweep.mirror.content import METRICS
from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment
from lr_sweep.trainables.checkpoint import checkpoints

TARGETS = ("driver", "worker", "raylet", "gcs_server")
WEIGHTS = (3, 5, 2, 1)
"""How often each is hit: a dead GCS takes 25 s to get over, a dead worker two."""

VOLATILE_COLUMNS = ["wall_s", "device_s", "started_at", "finished_at", "attempts", "lost_steps"]
VOLATILE_TAGS = {"sweep.wall_s", "sweep.device_s", "sweep.attempts", "sweep.mirrored_end_ms", "mlflow.parentRunId"}


@dataclass
class Sweep:
    """A `run` of a study that is started again whenever its driver is dead."""

    study: Path
    results: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    kills: list[tuple[str, float]] = field(default_factory=list)
    """What was killed, and how many seconds after the start."""

    def start(self) -> None:
        """Start `run`; failed runs are tried again, since three dead workers in a row are a failed run."""
        command = command_line("run", self.study, "--results", self.results, "--cpus", "2", "--retry-failed")
        command += ["--max-attempts", "1000", "--checkpoint-every-s", "0.5"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill_at_random(self, number: int, dice: random.Random) -> None:
        """Kill something at random moments, so many times; start again when the driver is dead."""
        began = time.monotonic()
        while len(self.kills) < number:
            if self.process is None or self.process.poll() is not None:
                assert self.process is None or self.process.returncode != 0, (
                    "the study ended before all kills were made"
                )
                self.start()
            time.sleep(dice.uniform(0.5, 12.0))
            target = dice.choices(TARGETS, WEIGHTS)[0]
            if self._kill(target, dice):
                self.kills.append((target, time.monotonic() - began))
                print(f"{self.kills[-1][1]:6.1f} s: killed {target} ({len(self.kills)} of {number})", flush=True)

    def kill_when_training(self, target: str, patience_s: float = 120.0) -> None:
        """Kill one of a kind once a worker has saved something new."""
        before, deadline = self._saved(), time.monotonic() + patience_s
        while self._saved() == before or not self._kill(target, random.Random(0)):
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        self.kills.append((target, 0.0))

    def wait_until_it_says(self, text: str, patience_s: float = 120.0) -> None:
        """Wait for a line of its log."""
        deadline = time.monotonic() + patience_s
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def _saved(self) -> set[str]:
        return {path.name for path in (self.results / "checkpoints").glob("*/step-*")}

    def _kill(self, target: str, dice: random.Random) -> bool:
        """Kill one of a kind, if there is one; at the driver's start there is no other."""
        assert self.process is not None
        victims = victims_of(self.process.pid)[target]
        if not victims:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(dice.choice(victims), signal.SIGKILL)
            if target == "driver":
                self.process.wait()
            return True
        return False

    def finish(self, max_starts: int = 5) -> int:
        """Let it come to its end, starting it again if it is dead or runs failed; return the last exit code."""
        for _ in range(max_starts):
            if self.process is None or self.process.poll() is not None:
                self.start()
            assert self.process is not None
            if self.process.wait() == 0:
                break
        assert self.process is not None
        return int(self.process.returncode)

    def end(self) -> None:
        """Leave nothing behind."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def victims_of(driver: int) -> dict[str, list[int]]:
    """Return the processes of a sweep by kind; workers are those that train, not Ray's idle ones and agents."""
    found: dict[str, list[int]] = {target: [] for target in TARGETS}
    found["driver"] = [driver]
    there = list(processes())
    for pid, parent, command in there:
        if parent == driver:
            for target in ("raylet", "gcs_server"):
                if f"/{target} " in command.split("--")[0] + " ":
                    found[target].append(pid)
    for pid, parent, command in there:
        if parent in found["raylet"] and command.startswith("ray::") and "Trainable" in command:
            found["worker"].append(pid)
    return found


def processes() -> Iterator[tuple[int, int, str]]:
    """Yield pid, parent's pid and command line of every process."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                yield int(folder.name), parent, command


def record_content(results: Path) -> dict[str, Any]:
    """All of the Parquet tables, sorted, without what depends on the clock."""
    runs = read_runs(results).drop(columns=VOLATILE_COLUMNS).sort_values("run_id")
    curves = read_curves(results).drop(columns=["time_ms", "elapsed_s"]).sort_values(["run_id", "step"])
    return {
        "runs": runs.astype(object).where(runs.notna(), None).to_dict("records"),
        "curves": curves.to_dict("records"),
    }


def final_weights(results: Path) -> dict[str, dict[str, bytes]]:
    """Every tensor of every run's one checkpoint, as bytes."""
    found = {}
    for folder in (results / "checkpoints").iterdir():
        (only,) = checkpoints(folder)
        found[folder.name] = {name: tensor.numpy().tobytes() for name, tensor in load_file(only).items()}
    return found


def mlflow_content(results: Path) -> dict[str, Any]:
    """Every MLflow run by what it mirrors, point for point; one that is there twice fails.

    Of results, only what they are now: a sweep that ended with a failed run, to be retried, has mirrored others before.
    """
    client = open_client(tracking_uri(results))
    experiment = client.get_experiment_by_name("lr-sweep")
    found: dict[str, Any] = {}
    for run in client.search_runs([experiment.experiment_id]):
        tags = run.data.tags
        name = tags.get("sweep.run_id") or f"study {tags['sweep.study']}"
        assert name not in found, f"{name} is in MLflow twice"
        found[name] = {
            "status": run.info.status,
            "params": run.data.params,
            "tags": {key: value for key, value in tags.items() if key not in VOLATILE_TAGS},
            "points": {
                metric: _points(client, run.info.run_id, metric) for metric in run.data.metrics if metric in METRICS
            },
            "results": {metric: value for metric, value in run.data.metrics.items() if metric not in METRICS},
        }
    return found


def _points(client: Any, mlflow_id: str, metric: str) -> list[tuple[int, float | None]]:
    history = client.get_metric_history(mlflow_id, metric)
    return sorted((point.step, None if metric == "elapsed_s" else point.value) for point in history)
