"""Peak memory of stacks, measured on a CPU, beside what `trainables.worker.memory` predicts.

Each case has a process of its own: `python -m benchmarks.engine_memory small-frozen small-unfrozen`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch

from lr_sweep.benchmarks.engine_cases import CELLS, TINY, Cell, made_up_data, sweep_of, weights_of
from lr_sweep.trainables.stacked.engine import StackedTraining
from lr_sweep.trainables.stacked.layers import batched
from lr_sweep.trainables.worker.memory import stack_bytes

ROOT = Path(__file__).parent.parent
SIZES = {
    "small-frozen": (1, 4, 12),
    "small-unfrozen": (1, 4, 12),
    "base-frozen": (1, 2),
    "base-unfrozen": (1, 2),
}
"""Runs in a stack. Tiny models take less than the libraries do, so that nothing can be measured."""


def measure(name: str, number: int) -> dict[str, float]:
    """Train a stack for a few steps, evaluate it, and return what the process grew by at most."""
    cell, cpu = CELLS[name], torch.device("cpu")
    warm_up(cell)
    data, weights = made_up_data(cell), weights_of(cell)
    before = resident_bytes("VmRSS")
    training = StackedTraining(data, weights, cpu)
    runs = sweep_of(cell, number, evaluate_every=2)
    training.add(runs)
    training.advance()
    training.advance()
    predicted = stack_bytes(runs[0], cell.shape, number, min(number, 3), on_cpu=True)
    return {"measured_bytes": resident_bytes("VmHWM") - before, "predicted_bytes": predicted}


def resident_bytes(which: str) -> int:
    """Return the bytes of memory held now (`VmRSS`) or at most so far (`VmHWM`).

    Not `ru_maxrss`: a process begins with that of the one that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith(f"{which}:")]
    return int(kilobytes) * 1024


def warm_up(like: Cell) -> None:
    """Load and initialise the libraries."""
    cell = replace(like, size=TINY, num_tokens=4)
    training = StackedTraining(made_up_data(cell), weights_of(cell), torch.device("cpu"))
    training.add(sweep_of(cell, 1, evaluate_every=2))
    training.advance()
    batched(
        torch.zeros(1, 256, 256), torch.zeros(1, 256, 256)
    )  # a large product may be another library's
    gc.collect()


def in_a_process(module: str, *words: str, **variables: str) -> dict[str, float]:
    """Return what a benchmark prints as JSON in a fresh process; raises MemoryError if that is out of memory."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *words]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if "OutOfMemoryError" in done.stderr:
        raise MemoryError
    assert done.returncode == 0, done.stderr
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> None:
    """Measure cells and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cells", nargs="*", default=list(SIZES), help="names in benchmarks/engine_cases.py"
    )
    parser.add_argument(
        "--runs", type=int, help="measure one stack in this process, and print JSON"
    )
    chosen = parser.parse_args()
    if chosen.runs:
        print(json.dumps(measure(chosen.cells[0], chosen.runs)))
        return
    print("| cell | runs | measured MB | predicted MB | ratio |\n|---|---|---|---|---|")
    for name in chosen.cells:
        for number in SIZES[name]:
            case = in_a_process("engine_memory", name, "--runs", str(number))
            measured, predicted = case["measured_bytes"] / 1e6, case["predicted_bytes"] / 1e6
            print(
                f"| {name} | {number} | {measured:.0f} | {predicted:.0f} | {predicted / measured:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
