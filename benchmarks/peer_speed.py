"""The quickstart's grid by a plain Ray Tune script (`plain_ray_tune.py`) against `sweep run`, as whole commands.

Both get the same pretrained weights, made beforehand and not timed: 60 runs of 600 steps, evaluated every 100.
`sweep run` also saves checkpoints and writes the record, MLflow's store and a report. Start it on an idle machine:
`python -m benchmarks.peer_speed --rounds 3`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.record.read import read_runs
from lr_sweep.benchmarks.shared import machine, options, ratio_text

STUDY = """\
study: speed
title: The quickstart's grid
tasks: {digits: {num_steps: 600}}
models:
  tiny:
    size: {layers: 2, heads: 4, width: 64, positions: 256}
    pretrained: {pretrain: {text: python-stdlib}}
variants: [frozen-random, frozen-pretrained, unfrozen-random, unfrozen-pretrained]
learning_rates: {low: 1e-5, high: 1e-1, per_decade: 1}
seeds: 3
protocol: {evaluate_every: 100}
resources: {engine: stacked}
"""
NUM_RUNS = 60
PEER = Path(__file__).with_name("plain_ray_tune.py")


def timed(command: list[str | Path], folder: Path) -> float:
    """Run a command without a GPU; return its seconds. Its output is shown only if it fails."""
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    began = time.monotonic()
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(map(str, command))} in {folder} failed:\n{done.stdout[-3000:]}"
        )
    return time.monotonic() - began


def sweep_command(folder: Path, *options: str) -> list[str | Path]:
    """Write the study into `folder`; return the command that runs it there."""
    study = folder / "speed.yaml"
    study.write_text(STUDY)
    return [sys.executable, "-m", "sweep", "run", study, "--results", folder / "results", *options]


def pretrained(folder: Path) -> Path:
    """Pretrain the study's weights by training one run; return the folder of results that has them."""
    one_run = "seed=0,variant=frozen-pretrained,learning_rate=1e-3"
    timed(sweep_command(folder, "--only", one_run), folder)
    return folder / "results"


def peer(made: Path, folder: Path) -> float:
    """Run the plain script into an empty folder; return its seconds."""
    (weights,) = (made / "pretrained").iterdir()
    output = folder / "runs.csv"
    took_s = timed([sys.executable, PEER, "--weights", weights, "--output", output], folder)
    assert len(pd.read_csv(output)) == NUM_RUNS
    return took_s


def ours(made: Path, folder: Path) -> float:
    """Run the study into a folder of results that has the weights alone; return the command's seconds."""
    shutil.copytree(made / "pretrained", folder / "results" / "pretrained")
    shutil.copy(made / "format.json", folder / "results")
    took_s = timed(sweep_command(folder), folder)
    assert (read_runs(folder / "results")["status"] == "complete").sum() == NUM_RUNS
    return took_s


def main() -> None:
    """Measure in turn and print."""
    chosen = options(__doc__, rounds=3)
    print(machine())
    rounds = []
    with tempfile.TemporaryDirectory() as temporary:
        made = pretrained(Path(temporary))
        for number in range(1, chosen.rounds + 1):
            with tempfile.TemporaryDirectory() as folder:
                peer_s = peer(made, Path(folder))
            with tempfile.TemporaryDirectory() as folder:
                our_s = ours(made, Path(folder))
            rounds.append((peer_s, our_s))
            print(
                f"round {number}: plain script {peer_s:.1f} s, sweep run {our_s:.1f} s", flush=True
            )
    print(f"plain script / sweep run: median {ratio_text(*zip(*rounds, strict=True))}")


if __name__ == "__main__":
    main()
