"""How much MLflow slows training: a database beside the results, or a server that never answers, against none.

Runs one study again and again, each time into a new directory, the conditions in turn, and compares the time that its
runs say they trained. Start it on an idle machine: `python -m benchmarks.mirror_slowdown --rounds 5`.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lr_sweep.analysis.record.read import read_runs
from lr_sweep.benchmarks.sweep_speed import NO_MIRROR, run_study

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


@contextmanager
def silent_server() -> Iterator[str]:
    """Yield the address of a server that takes requests and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        metavar="N",
        help="times that each condition is run; default: 5",
    )
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, silent_server() as silent:
        conditions = {"none": NO_MIRROR, "database": {}, "silent": {"MLFLOW_TRACKING_URI": silent}}
        times: dict[str, list[float]] = {name: [] for name in conditions}
        for number in range(rounds):
            for name, variables in conditions.items():
                place = Path(folder) / f"{name}-{number}"
                place.mkdir()
                # One trial at a time: the driver, and the mirror in it, have cores of their own, as beside a GPU.
                run_study(STUDY, place, "--cpus", "1", **variables)
                times[name].append(float(read_runs(place / "results")["wall_s"].sum()))
                print(f"round {number + 1}: {name} {times[name][-1]:.2f} s", flush=True)
    print(
        f"\n{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    for name, seconds in times.items():
        ratios = [mine / base for mine, base in zip(seconds, times["none"], strict=True)]
        print(
            f"{name:9} median {statistics.median(seconds):7.2f} s, ratio to none {statistics.median(ratios):.4f}"
        )


if __name__ == "__main__":
    main()
