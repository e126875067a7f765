"""How much MLflow slows training: with a database beside the results, with a server that never answers, and without.

Runs one study again and again, each time into a new directory, in each condition in turn, and compares
the seconds of training. Start it on an idle machine: `python -m benchmarks.mirror_slowdown --rounds 5`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lr_sweep.analysis.record.read import read_runs
from lr_sweep.benchmarks.shared import machine, options, ratio_text, spread

STUDY = """\
study: mirrored
title: Many evaluations, so that there is much to mirror
tasks: {digits: {num_steps: 1000}}
models: {small: {size: {layers: 2, heads: 2, width: 32, positions: 64}}}
variants: [frozen-random, unfrozen-random]
learning_rates: [1e-3, 1e-2]
seeds: 1
protocol: {evaluate_every: 50, train_examples_evaluated: 100}
"""
NO_MIRROR = "nothing://here"
"""An address that MLflow refuses at once: the mirror cannot be left out."""


@contextmanager
def silent_server() -> Iterator[str]:
    """Yield the address of a server that takes requests and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def training_s(tracking_uri: str) -> float:
    """Run the study into a new directory, and return the seconds of its runs; an empty URI: a database."""
    variables = os.environ | {"MLFLOW_TRACKING_URI": tracking_uri}
    if not tracking_uri:
        del variables["MLFLOW_TRACKING_URI"]
    with tempfile.TemporaryDirectory() as folder:
        study, results = Path(folder) / "mirrored.yaml", Path(folder) / "results"
        study.write_text(STUDY)
        # One trial at a time: the driver with its mirror has a core of its own, as beside a GPU.
        command = ["-m", "sweep", "run", study, "--results", results, "--cpus", "1"]
        subprocess.run(
            [sys.executable, *command], env=variables, check=True, stdout=subprocess.DEVNULL
        )
        return float(read_runs(results)["wall_s"].sum())


def main() -> None:
    """Measure and print."""
    rounds = options(__doc__, rounds=5).rounds
    times = defaultdict(list)
    with silent_server() as silent:
        for number in range(1, rounds + 1):
            for name, uri in {"none": NO_MIRROR, "database": "", "silent": silent}.items():
                times[name].append(training_s(uri))
                print(f"round {number}: {name} {times[name][-1]:.2f} s", flush=True)
    print(machine())
    for name, seconds in times.items():
        print(f"{name}: {spread(seconds)} s, ratio to none {ratio_text(seconds, times['none'])}")


if __name__ == "__main__":
    main()
