"""A whole sweep by the plain engine, one run a trial, against the default: the quickstart's grid, through Ray.

Runs 4 variants x 5 learning rates x 3 seeds by either engine in turn, each time into a new directory; pretraining comes
before the first run and is not timed. Start it on an idle machine: `python -m benchmarks.sweep_speed --rounds 3`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from lr_sweep.analysis.record.read import read_runs
from lr_sweep.benchmarks.engine_speed import machine, ratio_text

STUDY = """\
study: speed
title: The quickstart's grid
tasks: {{digits: {{num_steps: {num_steps}}}}}
models:
  tiny:
    size: {{layers: 2, heads: 4, width: 64, positions: 256}}
    pretrained: {{pretrain: {{text: python-stdlib}}}}
variants: [frozen-random, frozen-pretrained, unfrozen-random, unfrozen-pretrained]
learning_rates: {{low: 1e-5, high: 1e-1, per_decade: 1}}
seeds: 3
protocol: {{evaluate_every: 100}}
resources: {resources}
"""
NUM_RUNS = 60
ENGINES = {"plain": "{engine: plain}", "stacked": "{engine: stacked}"}
"""What a study's `resources` say."""


NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
NO_MIRROR = {"MLFLOW_TRACKING_URI": "nothing://here"}
"""The mirror cannot be left out; an address that MLflow refuses at once is as good as none."""


def run_study(
    study: str, folder: Path, *options: str, command: str = "run", **variables: str
) -> float:
    """Write a study, whose text begins with its name, into a folder and carry out a command on it there.

    Return the seconds that it took.
    The environment is this process's, without the address of MLflow and settings of OpenMP, but with `variables`.
    """
    path = folder / f"{study.splitlines()[0].removeprefix('study: ')}.yaml"
    path.write_text(study)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MLFLOW_TRACKING_URI", "OMP_", "GOMP_"))
    }
    words = [
        sys.executable,
        "-m",
        "sweep",
        command,
        str(path),
        "--results",
        str(folder / "results"),
        *options,
    ]
    began = time.monotonic()
    subprocess.run(words, env=kept | variables, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def sweep(engine: str, num_steps: int, folder: Path) -> tuple[float, float]:
    """Run the study; return the seconds from the first run's start to the last one's end, and those of the command."""
    whole_s = run_study(
        STUDY.format(resources=ENGINES[engine], num_steps=num_steps), folder, **NO_GPU, **NO_MIRROR
    )
    runs = read_runs(folder / "results")
    assert len(runs) == NUM_RUNS
    return (runs["finished_at"].max() - runs["started_at"].min()).total_seconds(), whole_s


def measured(name: str, engine: str, num_steps: int) -> float:
    """Run the study in a new directory and print what it took; return the seconds of training."""
    with tempfile.TemporaryDirectory() as folder:
        training_s, whole_s = sweep(engine, num_steps, Path(folder))
    speed = NUM_RUNS * num_steps / training_s
    print(
        f"{name}: {engine:8} {training_s:7.1f} s of training, {whole_s:7.1f} s in all, {speed:7.0f} run-steps/s",
        flush=True,
    )
    return training_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-steps", type=int, default=600, help="of each run, a multiple of 100")
    chosen = parser.parse_args()
    print(machine(torch.device("cpu")))
    rounds = [
        {engine: measured(f"round {number}", engine, chosen.num_steps) for engine in ENGINES}
        for number in range(1, chosen.rounds + 1)
    ]
    ratios = ratio_text(
        [seconds["plain"] for seconds in rounds], [seconds["stacked"] for seconds in rounds]
    )
    print(f"plain / stacked: median {ratios}")


if __name__ == "__main__":
    main()
