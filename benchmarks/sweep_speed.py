"""A whole sweep by the plain engine, one run a trial, against the default: the quickstart's grid, through Ray.

Runs 4 variants x 5 learning rates x 3 seeds by either engine in turn, each time into a new directory; pretraining comes
before the first run and is not timed. Start it on an idle machine: `python -m benchmarks.sweep_speed --rounds 3`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from lr_sweep.analysis.record.read import read_runs
from lr_sweep.benchmarks.engine_speed import machine

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
resources: {{engine: {engine}}}
"""
NUM_RUNS = 60


def sweep(engine: str, num_steps: int, folder: Path) -> tuple[float, float]:
    """Run the study; return the seconds from the first run's start to the last one's end, and those of the command."""
    study = folder / "speed.yaml"
    study.write_text(STUDY.format(engine=engine, num_steps=num_steps))
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "MLFLOW_TRACKING_URI": "nothing://here"}
    began = time.monotonic()
    command = [sys.executable, "-m", "sweep", "run", str(study), "--results", str(folder / "results")]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    whole_s = time.monotonic() - began
    runs = read_runs(folder / "results")
    assert len(runs) == NUM_RUNS
    return (runs["finished_at"].max() - runs["started_at"].min()).total_seconds(), whole_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-steps", type=int, default=600, help="of each run, a multiple of 100")
    chosen = parser.parse_args()
    print(machine(torch.device("cpu")))
    ratios = []
    for number in range(1, chosen.rounds + 1):
        seconds = {}
        for engine in ("plain", "stacked"):
            with tempfile.TemporaryDirectory() as folder:
                seconds[engine], whole_s = sweep(engine, chosen.num_steps, Path(folder))
            speed = NUM_RUNS * chosen.num_steps / seconds[engine]
            print(
                f"round {number}: {engine:8} {seconds[engine]:7.1f} s of training, {whole_s:7.1f} s in all, "
                f"{speed:7.0f} run-steps/s",
                flush=True,
            )
        ratios.append(seconds["plain"] / seconds["stacked"])
    print(f"plain / stacked: median {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
