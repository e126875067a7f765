"""Peak memory of one run of long sequences with dropout, attention written out and in blocks.

Measured on a CPU beside what `trainables.memory` predicts, with a GPT-2 of reduced width; each case has a process of
its own: `python -m benchmarks.long_sequences`.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

from lr_sweep.benchmarks.engine_cases import Cell, made_up_data, sweep_of
from lr_sweep.benchmarks.engine_memory import resident_bytes, warm_up
from lr_sweep.trainables.memory import stack_bytes
from lr_sweep.trainables.run import Attention, ModelSize
from lr_sweep.trainables.stacked.engine import StackedTraining

ROOT = Path(__file__).parent.parent
SIZE = ModelSize(layers=3, heads=4, width=64, positions=2048)
BATCH_SIZE = 2
NUM_TOKENS = (500, 1000, 2000)
NUM_STEPS = 2


def measure(attention: Attention, num_tokens: int) -> dict[str, float]:
    """Train one run for two steps and return what the process grew by at most, and the seconds that this took."""
    cell = Cell(size=SIZE, num_tokens=num_tokens, variant="unfrozen-random")
    warm_up(cell)
    data = made_up_data(cell)
    runs = sweep_of(cell, 1, evaluate_every=NUM_STEPS, batch_size=BATCH_SIZE, attention=attention)
    training = StackedTraining(data, None, torch.device("cpu"))
    training.add(runs)
    gc.collect()
    before, began = resident_bytes("VmRSS"), time.monotonic()
    training.advance()
    predicted = stack_bytes(runs[0], cell.shape, 1, 1, on_cpu=True)
    return {
        "measured_bytes": resident_bytes("VmHWM") - before,
        "predicted_bytes": predicted,
        "duration_s": time.monotonic() - began,
    }


def in_a_process(attention: Attention, num_tokens: int) -> dict[str, float]:
    """Measure a case in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.long_sequences", "--case", attention, str(num_tokens)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=2, metavar=("ATTENTION", "TOKENS"), help="measure one here, and print JSON")
    chosen = parser.parse_args()
    if chosen.case:
        print(json.dumps(measure(chosen.case[0], int(chosen.case[1]))))
        return
    print("| attention | tokens | measured MB | predicted MB | ratio |\n|---|---|---|---|---|")
    attentions: tuple[Attention, ...] = ("written", "blocked")
    for attention in attentions:
        for num_tokens in NUM_TOKENS:
            case = in_a_process(attention, num_tokens)
            measured, predicted = case["measured_bytes"] / 1e6, case["predicted_bytes"] / 1e6
            row = f"| {attention} | {num_tokens} | {measured:.0f} | {predicted:.0f} | {predicted / measured:.2f} |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
