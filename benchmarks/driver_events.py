"""What one driver costs: Ray Tune's CPU time for a result, and a whole driver's while stub trials report to it.

First, actors that train nothing report 2,000 times through Tune and the sweep's callback, while others wait. Then `run`
gets reports of trials that are no processes, at the rate of one GPU each: its record, its MLflow in SQLite and its
uploads to an S3 server (moto's, a process of its own) are real. `python -m benchmarks.driver_events --trials 500
--minutes 8`; what a trial costs besides is measured by `benchmarks.trial_overhead`. A machine that is too slow or busy
for the rate trains less in that time: each minute's line says how much.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
import torch
from ray import tune

from lr_sweep.benchmarks.engine_speed import machine
from lr_sweep.common.network import check_answers
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.store.results import StoredResults
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.resources import Resources
from lr_sweep.sweep.terminal import output_to
from lr_sweep.sweep.tune import driver
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.options import Options
from lr_sweep.sweep.tune.ray_session import ray_session
from lr_sweep.sweep.tune.run_study import run_study
from lr_sweep.sweep.tune.shares import Share
from lr_sweep.sweep.tune.trial_events import Leave, Reported, TrialEvent
from lr_sweep.sweep.tune.trials import report_every_s
from lr_sweep.sweep.tune.tuner import EventCallback, SweepStoppedError
from lr_sweep.trainables.cohort import Cohort
from lr_sweep.trainables.curve import Evaluation
from lr_sweep.trainables.events import Advanced, Finished, Started

NUM_RESULTS = 2000
EVALUATE_EVERY, EVALUATE_EVERY_S = 2000, 20
"""Steps and seconds between a run's evaluations: GPT-2, frozen, at 10 ms a step, the fastest of the paper's mix."""
LOSSES = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_loss", "test_accuracy")
STUDY = """\
study: fleet
title: Nothing is trained
tasks: {{digits: {{num_steps: {num_steps}}}}}
models: {{tiny: {{size: {{layers: 1, heads: 1, width: 8, positions: 16}}}}}}
variants: [unfrozen-random]
learning_rates: [{rates}]
seeds: 1
protocol: {{evaluate_every: {evaluate_every}}}
resources: {{runs_per_trial: 1}}
"""


class Reporting(tune.Trainable):
    """Trains nothing and says so."""

    def setup(self, config: dict[str, Any]) -> None:
        """Nothing to set up."""

    def step(self) -> dict[str, Any]:
        """Report progress of one run, as a cohort of one does every two seconds."""
        return {"events": [Advanced(run_id="0" * 16, step=self.iteration, step_s=1.0, evaluation_s=1.0)]}


def result_s(folder: Path, num_live: int, num_waiting: int) -> float:
    """Return this process's CPU seconds for a result of `num_live` actors, which report at once."""
    seen: list[float] = []
    stop = Leave()

    def put(event: TrialEvent) -> None:
        seen.append(time.process_time())
        if len(seen) == NUM_RESULTS:
            stop.set()

    callback = EventCallback(put, stop, Machines())
    trials = [{"cohort": SimpleNamespace(run_ids=[f"{number:016x}"])} for number in range(num_live + num_waiting)]
    tuner = tune.Tuner(
        tune.with_resources(Reporting, {"cpu": 1 / num_live}),
        param_space={"trial": tune.grid_search(trials)},
        run_config=tune.RunConfig(name="trials", storage_path=str(folder), callbacks=[callback], verbose=0),
    )
    log_file = folder / "ray.log"
    placement = Placement(resources=Resources(), cpus=1)
    with output_to(log_file), ray_session(placement, log_file), contextlib.suppress(SweepStoppedError):
        tuner.fit()
    first = NUM_RESULTS // 2  # by then all actors have started
    return (seen[NUM_RESULTS - 1] - seen[first]) / (NUM_RESULTS - 1 - first)


@dataclass(frozen=True)
class Used:
    """What this process has used by a moment."""

    at_s: float
    all_s: float
    """CPU seconds of all threads, also of those that have ended."""
    cpu_s: dict[str, float]
    """CPU seconds of each thread that lives, by name."""
    num_reports: int

    @classmethod
    def now(cls, num_reports: int) -> Used:
        """Look at the threads; those of C++ libraries have no name."""
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        cpu_s: Counter[str] = Counter()
        for thread in psutil.Process().threads():
            cpu_s[names.get(thread.id, "without a name")] += thread.user_time + thread.system_time
        return cls(time.monotonic(), time.process_time(), dict(cpu_s), num_reports)

    def since(self, before: Used) -> str:
        """Say what a report cost since then."""
        num, spent_s = self.num_reports - before.num_reports, self.all_s - before.all_s
        cost_ms = {name: 1000 * (cpu_s - before.cpu_s.get(name, 0)) / max(num, 1) for name, cpu_s in self.cpu_s.items()}
        threads = ", ".join(f"{name} {ms:.2f}" for name, ms in sorted(cost_ms.items()) if ms >= 0.005)
        share = spent_s / (self.at_s - before.at_s)
        return f"{num} reports, {1000 * spent_s / max(num, 1):.2f} ms of CPU each ({threads}), {share:.0%} of a core"


class Fleet:
    """Trials that only report: in place of `train_cohorts`, which would have Tune start them.

    `say` is called with a line each minute, and one at the end.
    """

    def __init__(self, duration_s: float, say: Callable[[str], None]) -> None:
        self._duration_s, self._say = duration_s, say
        self._num_evaluations = max(1, int(duration_s / EVALUATE_EVERY_S))
        self.num_reports = 0

    @property
    def num_steps(self) -> int:
        """Of each run."""
        return EVALUATE_EVERY * self._num_evaluations

    def train(self, cohorts: Sequence[Cohort], *_: object) -> Iterator[TrialEvent | None]:
        """Yield what the trials report, each event when it is due."""
        runs = [run_id for cohort in cohorts for run_id in cohort.run_ids]
        yield from (Started(run_id=run_id, step=0) for run_id in runs)
        every_s = report_every_s(len(runs))
        per_run = round(EVALUATE_EVERY_S / every_s)  # reports up to an evaluation, with its own
        first = latest = Used.now(0)
        minute, late_s = 1, 0.0
        for number in range(self._num_evaluations * per_run * len(runs)):
            turn, index = divmod(number, len(runs))
            past_s = time.monotonic() - first.at_s
            if past_s >= self._duration_s + every_s:
                break
            time.sleep(max(0.0, number * every_s / len(runs) - past_s))
            late_s = max(0.0, past_s - number * every_s / len(runs))
            if past_s >= 60 * minute:
                before, latest, minute = latest, Used.now(number), int(past_s / 60) + 1
                self._say(f"minute {minute - 1}: {latest.since(before)}; {late_s:.1f} s late; {_memory()}")
            since, due = divmod(turn + index % per_run + 1, per_run)  # not all in the same two seconds
            point = _point(since * EVALUATE_EVERY) if due == 0 and since <= self._num_evaluations else None
            yield Advanced(run_id=runs[index], step=turn, evaluation=point, step_s=0.01, evaluation_s=1.0)
            if point:
                yield Reported()
            self.num_reports = number + 1
        used = Used.now(self.num_reports)
        done = self.num_reports * every_s / len(runs) / (used.at_s - first.at_s)
        self._say(f"in all: {used.since(first)}; {done:.0%} of the real rate; {_memory()}")
        ends = {"step": self.num_steps, "status": "complete", "elapsed_s": 1.0, "engine": "plain", "device": "none"}
        last = _point(self.num_steps)  # a late fleet has not got there
        for run_id in runs:
            yield Advanced(run_id=run_id, step=self.num_steps, evaluation=last, step_s=0.01, evaluation_s=1.0)
            yield Finished(run_id=run_id, **ends)


def _memory() -> str:
    return f"{psutil.Process().memory_info().rss / 2**20:.0f} MiB"


def _point(step: int) -> Evaluation:
    return Evaluation(step=step, time_ms=int(1000 * time.time()), elapsed_s=step / 100, **dict.fromkeys(LOSSES, 0.5))


@contextlib.contextmanager
def no_ray(placement: Placement, *_: object) -> Iterator[Share]:
    """Stand for `ray_session`."""
    yield Share(placement, lambda: [{"CPU": 1.0}], None)


@contextlib.contextmanager
def s3_server(folder: Path, port: int = 5599) -> Iterator[str]:
    """Start moto's server with a bucket; give its URI."""
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    keys |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with patch.dict(os.environ, keys), subprocess.Popen(command, **silent) as server:
        try:
            while True:
                with contextlib.suppress(OSError):
                    check_answers("127.0.0.1", port)
                    break
                time.sleep(0.2)
            request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
            urllib.request.urlopen(request).close()
            yield "s3://bucket/fleet"
        finally:
            server.terminate()


def measure_fleet(folder: Path, num_trials: int, duration_s: float, say: Callable[[str], None]) -> Fleet:
    """Let `run` train a study of so many runs, all of which report at once."""
    fleet, study = Fleet(duration_s, say), folder / "fleet.yaml"
    rates = ", ".join(f"{rate:.9g}" for rate in np.logspace(-6, -2, num_trials))
    study.write_text(STUDY.format(num_steps=fleet.num_steps, rates=rates, evaluate_every=EVALUATE_EVERY))
    with (
        s3_server(folder) as uri,
        patch.object(driver, "train_cohorts", fleet.train),
        patch.object(driver, "ray_session", no_ray),
    ):
        loaded = load_study(str(study))
        placement = Placement(resources=loaded.resources, cpus=1)
        run_study(loaded, Options(results=StoredResults(uri), data_dir=folder, placement=placement), print)
    return fleet


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=8)
    given = parser.parse_args()
    print(machine(torch.device("cpu")))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory() as scratch:
        with os.fdopen(os.dup(1), "w", buffering=1) as printed:  # `run` sends its own output to a file
            every_s = report_every_s(given.trials)
            print(
                f"{given.trials} trials, a report every {every_s:.0f} s, an evaluation every {EVALUATE_EVERY_S} s",
                file=printed,
            )
            measure_fleet(Path(scratch), given.trials, 60 * given.minutes, partial(print, file=printed))
        for num_live, num_waiting in ((1, 0), (1, 1500), (8, 1500)):
            taken_s = result_s(Path(scratch), num_live, num_waiting)
            print(f"Tune: {1000 * taken_s:.2f} ms of CPU a result, {num_live} live, {num_waiting} waiting", flush=True)


if __name__ == "__main__":
    main()
