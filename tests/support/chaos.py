"""A sweep that is killed: a `run` whose driver, workers and Ray get SIGKILL, and what must be equal afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from safetensors.torch import load_file

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record.read import read_curves, read_judgements, read_runs
from lr_sweep.analysis.record.study import Judgement
from lr_sweep.sweep.mirror.client import open_client, tracking_uri
from lr_sweep.sweep.mirror.content import metric_names
from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment
from lr_sweep.tests.support.waiting import free_port
from lr_sweep.trainables.checkpoint import checkpoints

TARGETS = ("driver", "worker", "raylet", "gcs_server", "group")
"""What is killed; `group`: the driver and all that it has started, at once."""
DECK = [target for target, number in zip(TARGETS, (3, 4, 2, 2, 2), strict=True) for _ in range(number)]
"""How often each is killed in so many kills: a dead GCS takes 25 s to get over, a dead worker two."""
RANKS_DECK = [target for target in (*TARGETS, "rank") for _ in range({"rank": 4, "worker": 3}.get(target, 2))]
"""The same, of a study whose runs train in several processes; `rank`: one of these."""
COMMAND_DECK = [target for target in (*TARGETS, "command") for _ in range({"command": 5, "worker": 3}.get(target, 1))]
"""The same, of a study of a command; `command`: its supervisor, `torchrun`, or a process that this has started."""
PAGE_DECK = [target for target in (*TARGETS, "page") for _ in range(4 if target == "page" else 1)]
"""The same, of a study beside which `ui` serves its page; `page`: that server."""
IN_CURVES = metric_names(ACCURACY)
"""Metrics of MLflow with a value at each evaluation; of a study's own metric only the last value is compared."""
VOLATILE_COLUMNS = ["wall_s", "device_s", "started_at", "finished_at", "attempts", "lost_steps", "resumed"]
VOLATILE_TAGS = {f"sweep.{name}" for name in ("wall_s", "device_s", "attempts", "resumed", "mirrored_end_ms")}
VOLATILE_TAGS |= {"mlflow.parentRunId"}


@dataclass
class Sweep:
    """A `run` of a study that is started again whenever its driver is dead."""

    study: Path
    results: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    kills: list[str] = field(default_factory=list)
    """What was killed and when, in words."""
    decisions: list[list[Judgement]] = field(default_factory=list)
    """What early stopping had decided, after each kill."""
    span_s: float = 0.0
    """From the first file that was saved to the end; of an undisturbed sweep."""
    has_page: bool = False
    """Whether `ui` serves its page meanwhile, and is started again when it is killed."""
    page: subprocess.Popen[bytes] | None = None
    python: Path | None = None
    """Of another version of the program, which then trains."""

    @property
    def log(self) -> Path:
        return self.results.with_suffix(".log")

    def start(self) -> None:
        """Start `run`; failed runs are tried again, since three dead workers in a row are a failed run."""
        command = command_line("run", self.study, "--results", self.results, "--cpus", "2", "--retry-failed")
        command += ["--checkpoint-every-s", "0.5"]
        if self.python is not None:
            command[:3] = [str(self.python), "-m", "lr_sweep.sweep"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.starts += 1
        if self.has_page and self.page is None:
            self._serve()

    def _serve(self) -> None:
        """Start `ui` on what the sweep has recorded so far."""
        self._wait(lambda: bool(self._saved()))
        command = command_line("ui", "--results", self.results, "--port", str(free_port()))
        with self.log.with_suffix(".ui.log").open("ab") as log:
            self.page = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=log, stderr=subprocess.STDOUT)

    def undisturbed(self) -> Path:
        """Run it once to its end; return its results."""
        try:
            self.start()
            self._wait(lambda: bool(self._saved()))
            began = time.monotonic()
            assert self.process is not None
            assert self.process.wait() == 0, self.log.read_text()
            self.span_s = time.monotonic() - began
        finally:
            self.end()
        return self.results

    def disturb(self, targets: Sequence[str], dice: random.Random, pause_s: float) -> int:
        """Kill one after another at random moments, until the study has ended; return how many were killed.

        Most moments are within `pause_s` of the first file that is saved after a kill, the others within 10 s of the
        kill: while Ray starts, for most of them.
        """
        began = time.monotonic()
        for number, target in enumerate(targets):
            soon, moment = dice.random() < 0.25, dice.random()
            if not (self._moment(soon, moment * (10.0 if soon else pause_s)) and self._kill(target, dice)):
                return number
            when = f"{time.monotonic() - began:.1f} s, {len(list(self.results.glob('runs/*')))} runs recorded"
            self.kills.append(f"{target} at {when}")
            self.decisions.append(self.judgements())
            print(f"  killed {self.kills[-1]}", flush=True)
        return len(targets)

    def judgements(self) -> list[Judgement]:
        """What early stopping has decided so far; nothing in most studies."""
        return read_judgements(self.results, self.study.stem)

    def _moment(self, soon: bool, pause_s: float) -> bool:
        """Wait for a moment to kill at; return whether the study is still under way then."""
        before = self._saved()
        if not (soon or self._wait(lambda: self._saved() != before)):
            return False
        until = time.monotonic() + pause_s
        return self._wait(lambda: time.monotonic() >= until)

    def _wait(self, happened: Callable[[], bool], patience_s: float = 600.0) -> bool:
        """Wait for something, starting the sweep again if it is dead; return False if it has ended before."""
        deadline = time.monotonic() + patience_s
        while not happened():
            if self.process is None or self.process.poll() not in (None, 0):
                self.start()
            assert self.process is not None
            if self.process.poll() == 0:
                return False
            assert time.monotonic() < deadline, f"{self.log} ends with:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.02)
        return True

    def kill_when_training(self, target: str) -> None:
        assert self._moment(soon=False, pause_s=0.0), self.log.read_text()
        assert self._kill(target, random.Random(0)), self.log.read_text()

    def kill_when(self, happened: Callable[[], bool], target: str) -> None:
        assert self._wait(happened), self.log.read_text()
        assert self._kill(target, random.Random(0)), self.log.read_text()

    def wait_until_it_says(self, text: str) -> None:
        assert self._wait(lambda: text in self.log.read_text()), self.log.read_text()

    def _saved(self) -> set[tuple[str, int]]:
        """Names and times of checkpoints, of ended runs, and of a study's rounds and rungs."""
        patterns = ("checkpoints/*/step-*", "runs/*.parquet", "studies/*/proposals.parquet", "studies/*/rungs.parquet")
        found = set()
        for path in (path for pattern in patterns for path in self.results.glob(pattern)):
            with contextlib.suppress(FileNotFoundError):
                found.add((path.name, path.stat().st_mtime_ns))
        return found

    def _kill(self, target: str, dice: random.Random) -> bool:
        """Kill one of a kind as soon as there is one; return False if the study has ended before."""
        if target == "page":
            assert self.page is not None
            self.page.kill()
            self.page.wait()
            self._serve()
            return True

        def victims() -> list[int]:
            return victims_of(self.process.pid)[target] if self.process is not None else []

        while self._wait(lambda: bool(victims())):
            assert self.process is not None
            with contextlib.suppress(ProcessLookupError, IndexError):
                (os.killpg if target == "group" else os.kill)(dice.choice(victims()), signal.SIGKILL)
                if target in ("driver", "group"):
                    self.process.wait()
                return True
        return False

    def finish(self, max_starts: int = 5) -> int:
        """Let it come to its end, starting it again if it is dead or runs failed; return the last exit code."""
        for _ in range(max_starts):
            if self.process is None or self.process.poll() not in (None, 0):
                self.start()
            assert self.process is not None
            if self.process.wait() == 0:
                break
        assert self.process is not None
        return int(self.process.returncode)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.page is not None:
            self.page.kill()
            self.page.wait()


def victims_of(driver: int) -> dict[str, list[int]]:
    """Return the processes of a sweep by kind; workers are those that train, not Ray's idle ones and agents."""
    found: dict[str, list[int]] = {target: [] for target in (*TARGETS, "rank", "command")}
    found["driver"] = found["group"] = [driver]
    there = list(processes())
    for pid, parent, command in there:
        if parent == driver:
            for target in ("raylet", "gcs_server"):
                if f"/{target} " in command.split("--")[0] + " ":
                    found[target].append(pid)
    for pid, parent, command in there:
        if parent in found["raylet"] and command.startswith("ray::") and "Trainable" in command:
            found["worker"].append(pid)
    parents = {pid: parent for pid, parent, _ in there}
    for pid, _, command in there:
        if set(found["worker"]) & set(_ancestors(pid, parents)):
            found["command"] += [pid] if "train.py" in command and may_die(command) else []
            found["rank"] += [pid] if "own.function " in command and "supervisor.py" not in command else []
    return found


def may_die(command: str) -> bool:
    """Whether a run is tried again after the death of a process: not of a rank before the first evaluation.

    `torchrun` ends with exit code 1 then, as after a mistake in the script, and such a run is not tried again.
    """
    return "torch.distributed.run" in command or any(Path(word, "state.json").exists() for word in command.split())


def _ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def processes() -> Iterator[tuple[int, int, str]]:
    """Yield pid, parent's pid and command line of every process, a space behind each word."""
    for process in psutil.process_iter(["ppid", "cmdline"]):
        words = process.info["cmdline"] or []
        yield process.pid, process.info["ppid"], "".join(f"{word} " for word in words)


def record_content(results: Path) -> dict[str, Any]:
    """All of the Parquet tables of runs, sorted, without what depends on the clock."""
    runs = read_runs(results).drop(columns=VOLATILE_COLUMNS).sort_values("run_id")
    curves = read_curves(results).drop(columns=["time_ms", "elapsed_s"]).sort_values(["run_id", "step"])
    return {"runs": _records(runs), "curves": _records(curves)}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def whole_content(results: Path, study: str) -> dict[str, Any]:
    """All that a sweep leaves, by what it is."""
    folder = results / "studies" / study
    found = record_content(results) | {"weights": final_weights(results), "MLflow": mlflow_content(results)}
    tables = (folder / f"{name}.parquet" for name in ("wanted", "proposals", "rungs"))
    found |= {path.name: _records(pd.read_parquet(path)) for path in tables if path.exists()}
    return found | {path.name: path.read_text() for path in folder.glob("report/*.csv")}


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
                metric: _points(client, run.info.run_id, metric) for metric in run.data.metrics if metric in IN_CURVES
            },
            "results": {metric: value for metric, value in run.data.metrics.items() if metric not in IN_CURVES},
        }
    return found


def _points(client: Any, mlflow_id: str, metric: str) -> list[tuple[int, float | None]]:
    history = client.get_metric_history(mlflow_id, metric)
    return sorted((point.step, None if metric == "elapsed_s" else point.value) for point in history)
