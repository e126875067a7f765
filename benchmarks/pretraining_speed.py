"""Pretraining of the quickstart's weights, with threads that wait for each other's results in different ways.

Each round pretrains once in each way, by a command of its own: `python -m benchmarks.pretraining_speed --rounds 3`;
with `--busy` beside one process a core that computes without end. Start it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from lr_sweep.benchmarks.engine_speed import machine
from lr_sweep.benchmarks.sweep_speed import run_study

STUDY = """\
study: speed
tasks: {{digits: {{num_steps: 600}}}}
models:
  tiny:
    size: {{layers: 2, heads: 4, width: 64, positions: 256}}
    pretrained: {{pretrain: {{text: python-stdlib, num_steps: {num_steps}}}}}
variants: [frozen-pretrained]
learning_rates: [1e-3]
seeds: 1
protocol: {{evaluate_every: 600}}
"""
WAYS = {
    "spinning (torch's default)": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "300000"},
    "asleep": {"OMP_WAIT_POLICY": "PASSIVE"},
    "asleep after a moment (the program's)": {},
}
"""Settings of GNU's OpenMP; the program adds its own where the policy is not set."""


def pretraining_s(settings: dict[str, str], num_steps: int) -> float:
    """Pretrain in a new results directory; return the seconds of its steps and evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        run_study(
            STUDY.format(num_steps=num_steps),
            Path(folder),
            "--pretrain",
            command="data",
            **settings,
        )
        (facts,) = Path(folder).glob("results/*/*/pretraining.json")
        return float(json.loads(facts.read_text())["duration_s"])


@contextmanager
def busy_cores(number: int) -> Iterator[None]:
    """Have so many processes compute without end."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for other in others:
            other.kill()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-steps", type=int, default=600)
    parser.add_argument("--busy", action="store_true", help="with all cores busy")
    chosen = parser.parse_args()
    print(
        f"{machine(torch.device('cpu'))}; seconds of pretraining, {'busy' if chosen.busy else 'idle'}",
        flush=True,
    )
    print(f"| round | {' | '.join(WAYS)} |\n|---|{'---|' * len(WAYS)}")
    rounds = []
    with busy_cores((os.cpu_count() or 1) if chosen.busy else 0):
        for number in range(1, chosen.rounds + 1):
            rounds.append([pretraining_s(settings, chosen.num_steps) for settings in WAYS.values()])
            print(
                f"| {number} | {' | '.join(f'{seconds:.1f}' for seconds in rounds[-1])} |",
                flush=True,
            )
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    print(f"| median | {' | '.join(f'{seconds:.1f}' for seconds in medians)} |")


if __name__ == "__main__":
    main()
