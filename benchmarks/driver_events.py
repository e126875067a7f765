"""What one driver costs while stub trials report to it at the rate of one GPU each.

`run` is real: its Ray with live actors, Tune, its record, its MLflow in SQLite and its uploads to an S3 server (moto's,
a process of its own). Each actor reports for many trials (`stub_trials.py`), because so many actors fit on no machine.
A machine that is too slow or busy for the rate trains less: `python -m benchmarks.driver_events --trials 2000
--minutes 60`.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import psutil

from lr_sweep.benchmarks.shared import machine, options
from lr_sweep.benchmarks.stub_trials import EVALUATE_EVERY, EVALUATE_EVERY_S, StubTrainable
from lr_sweep.common.network import check_answers
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.store.results import StoredResults
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.tune import driver, tuner
from lr_sweep.sweep.tune.run_study import run_study
from lr_sweep.sweep.tune.trials import TrialEvent, report_every_s
from lr_sweep.sweep.tune.tuner import train_cohorts
from lr_sweep.sweep.tune.work import Options
from lr_sweep.trainables.worker import ray_trainable
from lr_sweep.trainables.worker.messages import Advanced, Finished

STUDY = """\
study: fleet
title: Nothing is trained
tasks: {{digits: {{num_steps: {num_steps}}}}}
models: {{tiny: {{size: {{layers: 1, heads: 1, width: 8, positions: 16}}}}}}
variants: [unfrozen-random]
learning_rates: [{rates}]
seeds: 1
protocol: {{evaluate_every: {evaluate_every}}}
resources: {{runs_per_trial: {runs_per_trial}}}
"""


class Used(NamedTuple):
    """What this process has used by a moment."""

    at_s: float
    cpu_s: float
    """CPU seconds of all threads, also of those that have ended."""
    num_reports: int

    @classmethod
    def now(cls, num_reports: int) -> Used:
        """Look at the clocks."""
        return cls(time.monotonic(), time.process_time(), num_reports)

    def since(self, before: Used) -> str:
        """Describe what a report cost since then."""
        num, cpu_s = self.num_reports - before.num_reports, self.cpu_s - before.cpu_s
        share = cpu_s / (self.at_s - before.at_s)
        return (
            f"{num} reports, {1000 * cpu_s / max(num, 1):.2f} ms of CPU each, {share:.0%} of a core"
        )


class Watch:
    """Counts what `train_cohorts` yields; `say` is called with a line each minute, and one at the end."""

    def __init__(self, num_expected: int, say: Callable[[str], None]) -> None:
        self._num_expected, self._say = num_expected, say
        self.num_reports = 0

    def train(self, *arguments: Any) -> Iterator[TrialEvent | None]:
        """Yield what happens, as `train_cohorts` does."""
        first = latest = Used.now(0)
        late_s, num_ended = 0.0, 0
        with contextlib.closing(train_cohorts(*arguments)) as events:
            for event in events:
                num_ended += isinstance(event, Finished)
                if isinstance(event, Advanced):
                    self.num_reports += 1
                    if event.evaluation:
                        late_s = max(late_s, time.time() - event.evaluation.time_ms / 1000)
                if time.monotonic() - latest.at_s >= 60:
                    before, latest = latest, Used.now(self.num_reports)
                    self._say(f"{latest.since(before)}; {late_s:.1f} s late; {_memory()}")
                    late_s = 0.0
                yield event
        self.num_reports -= num_ended  # each run's end has one more
        done = self.num_reports / self._num_expected
        self._say(
            f"in all: {Used.now(self.num_reports).since(first)}; {done:.1%} of the real rate; {_memory()}"
        )


def _memory() -> str:
    return f"{psutil.Process().memory_info().rss / 2**20:.0f} MiB"


@contextlib.contextmanager
def s3_server(folder: Path, port: int = 5599) -> Iterator[str]:
    """Start moto's server with a bucket; give its URI."""
    keys = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    keys |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
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


def measure_fleet(
    folder: Path, num_trials: int, num_live: int, minutes: float, say: Callable[[str], None]
) -> Watch:
    """Let `run` train a study of so many runs, all of which report at once, from `num_live` actors."""
    num_evaluations = max(1, int(60 * minutes / EVALUATE_EVERY_S))
    every_s = report_every_s(num_trials)
    watch, study = (
        Watch(num_evaluations * round(EVALUATE_EVERY_S / every_s) * num_trials, say),
        folder / "fleet.yaml",
    )
    given = {
        "rates": ", ".join(f"{rate:.9g}" for rate in np.logspace(-6, -2, num_trials)),
        "num_steps": EVALUATE_EVERY * num_evaluations,
        "evaluate_every": EVALUATE_EVERY,
        "runs_per_trial": math.ceil(num_trials / num_live),
    }
    study.write_text(STUDY.format(**given))
    with (
        s3_server(folder) as uri,
        patch.object(tuner, "train_cohorts", watch.train),
        patch.object(
            driver, "report_every_s", lambda _: every_s
        ),  # of the runs, each of which stands for a trial
        patch.object(ray_trainable, "CohortTrainable", StubTrainable),
    ):
        loaded = load_study(str(study))
        placement = Placement(resources=loaded.resources, cpus=num_live, force=True)
        run_study(
            loaded, Options(results=StoredResults(uri), data_dir=folder, placement=placement), print
        )
    return watch


def main() -> None:
    """Measure and print."""
    given = options(__doc__, trials=500, live=8, minutes=8.0)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with (
        tempfile.TemporaryDirectory() as scratch,
        os.fdopen(os.dup(1), "w", buffering=1) as printed,  # `run` sends its own output to a file
    ):
        say = partial(print, file=printed)
        every_s = report_every_s(given.trials)
        say(
            f"{machine()}; {given.trials} trials, a report every {every_s:.0f} s, {given.live} actors"
        )
        measure_fleet(Path(scratch), given.trials, given.live, given.minutes, say)


if __name__ == "__main__":
    main()
