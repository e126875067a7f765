"""Peak memory and time of a step of one run of long sequences with dropout, by each kind of attention.

On a CPU: written out and in blocks, with a GPT-2 of reduced width; memory beside what `trainables.worker.memory`
predicts. On a GPU: with GPT-2 base. Each case has a process of its own, and rounds alternate:
`python -m benchmarks.long_sequences --rounds 3`.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from statistics import median

import torch

from lr_sweep.benchmarks.engine_cases import BASE, Cell, made_up_data, sweep_of
from lr_sweep.benchmarks.engine_memory import in_a_process, resident_bytes, warm_up
from lr_sweep.benchmarks.engine_speed import machine
from lr_sweep.trainables.run import Attention, ModelSize, Precision
from lr_sweep.trainables.stacked.engine import StackedTraining
from lr_sweep.trainables.worker.memory import stack_bytes

NUM_TOKENS = (500, 1000, 2000)
NUM_STEPS, NUM_TIMED = 2, 3
"""Of a chunk, and chunks that are timed after the first one."""


def measure(attention: Attention, num_tokens: int, precision: Precision) -> dict[str, float]:
    """Train one run for some steps; return what the process or the GPU grew by at most, and the seconds of a step."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_cpu = device.type == "cpu"
    size, batch_size = (
        (ModelSize(layers=3, heads=4, width=64, positions=4096), 2) if on_cpu else (BASE, 8)
    )
    cell = Cell(size=size, num_tokens=num_tokens, variant="unfrozen-random")
    warm_up(cell)
    runs = sweep_of(cell, 1, batch_size=batch_size, attention=attention, precision=precision)
    training = StackedTraining(made_up_data(cell).to(device), None, device)
    training.add(runs)
    gc.collect()
    before = resident_bytes("VmRSS") if on_cpu else torch.cuda.memory_allocated()
    training.train_chunk(NUM_STEPS)
    most = resident_bytes("VmHWM") if on_cpu else torch.cuda.max_memory_allocated()
    took_s = []
    for _ in range(NUM_TIMED):
        began = time.monotonic()
        training.train_chunk(NUM_STEPS)  # which reads the losses, so that it waits for a GPU
        took_s.append((time.monotonic() - began) / NUM_STEPS)
    predicted = stack_bytes(runs[0], cell.shape, 1, 1, on_cpu=on_cpu)
    return {"measured_bytes": most - before, "predicted_bytes": predicted, "step_s": median(took_s)}


def measured(
    attention: Attention, num_tokens: int, precision: Precision = "fp32"
) -> dict[str, float] | None:
    """Measure a case in a fresh process; None: out of memory."""
    try:
        return in_a_process(
            "long_sequences", "--precision", precision, "--case", attention, str(num_tokens)
        )
    except MemoryError:
        return None


def row(attention: Attention, num_tokens: int, cases: list[dict[str, float] | None]) -> str:
    """Return a row of the table."""
    known = [case for case in cases if case is not None]
    if not known:
        return f"| {attention} | {num_tokens} | out of memory | | | |"
    measured, predicted = (
        median(case[name] for case in known) / 1e6 for name in ("measured_bytes", "predicted_bytes")
    )
    steps_ms = [case["step_s"] * 1e3 for case in known]
    timed = f"{median(steps_ms):.1f} ({min(steps_ms):.1f} to {max(steps_ms):.1f})"
    return f"| {attention} | {num_tokens} | {measured:.0f} | {predicted:.0f} | {predicted / measured:.2f} | {timed} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    parser.add_argument(
        "--case", nargs=2, metavar=("ATTENTION", "TOKENS"), help="measure one here, and print JSON"
    )
    chosen = parser.parse_args()
    if chosen.case:
        print(json.dumps(measure(chosen.case[0], int(chosen.case[1]), chosen.precision)))
        return
    on_gpu = torch.cuda.is_available()
    print(machine(torch.device("cuda" if on_gpu else "cpu")))
    print(
        "| attention | tokens | measured MB | predicted MB | ratio | ms a step |\n|---|---|---|---|---|---|"
    )
    attentions: tuple[Attention, ...] = ("written", "blocked")
    for num_tokens in NUM_TOKENS:
        rounds = [
            [measured(each, num_tokens, chosen.precision) for each in attentions]
            for _ in range(chosen.rounds)
        ]
        for attention, cases in zip(attentions, zip(*rounds, strict=True), strict=True):
            print(row(attention, num_tokens, list(cases)), flush=True)


if __name__ == "__main__":
    main()
