"""What `torch.compile` costs before the first step, cold and with what an earlier process compiled, and when it pays.

Each start is a process of its own: eager steps, compiled ones with an empty cache folder, and again with that folder.
Prints seconds to the end of the first chunk of steps, and after how many steps of a stack a compiled one is ahead.
`python -m benchmarks.compile_start --cells tiny-frozen,tiny-unfrozen --runs 15`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time

import torch

from lr_sweep.benchmarks.engine_cases import CELLS, Case
from lr_sweep.benchmarks.engine_memory import in_a_process
from lr_sweep.benchmarks.engine_speed import machine, seconds_a_step, stack

WAYS = ("eager", "cold", "warm")
STEPS = 50


def start(cell: str, number: int, *, compiled: bool) -> dict[str, float]:
    """Return seconds to the end of the first chunk, and seconds of a step after it (median of 5 chunks)."""
    device = torch.device("cpu")
    began = time.perf_counter()
    steps = stack(Case(cell=cell), number, device, compiled=compiled)
    steps(STEPS)
    first_s = time.perf_counter() - began
    return {"first_s": first_s, "step_s": statistics.median(seconds_a_step(steps, STEPS, device) for _ in range(5))}


def main(arguments: list[str] | None = None) -> None:
    """Measure and print a line for each cell and round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="tiny-frozen,tiny-unfrozen", help=", ".join(CELLS))
    parser.add_argument("--runs", type=int, default=15, help="of the stack")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--way", choices=WAYS, help="measure this one alone, in this process, and print JSON")
    chosen = parser.parse_args(arguments)
    if chosen.way:
        print(json.dumps(start(chosen.cells, chosen.runs, compiled=chosen.way != "eager")))
        return
    print(machine(torch.device("cpu")))
    print("| cell | runs | eager start, s | cold, s | warm, s | eager step, ms | compiled, ms | ahead after, steps |")
    for cell in chosen.cells.split(","):
        for _ in range(chosen.rounds):
            with tempfile.TemporaryDirectory() as folder:
                words, kept = ("--cells", cell, "--runs", str(chosen.runs)), {"TORCHINDUCTOR_CACHE_DIR": folder}
                found = {way: in_a_process("compile_start", *words, "--way", way, **kept) for way in WAYS}
            starts = " | ".join(f"{found[way]['first_s']:.1f}" for way in WAYS)
            eager_s, compiled_s = found["eager"]["step_s"], found["warm"]["step_s"]
            ahead = [(found[way]["first_s"] - found["eager"]["first_s"]) / (eager_s - compiled_s) for way in WAYS[1:]]
            after = " / ".join(f"{steps:,.0f}" if steps > 0 else "never" for steps in ahead)
            line = f"| {cell} | {chosen.runs} | {starts} | {1e3 * eager_s:.1f} | {1e3 * compiled_s:.1f} | {after} |"
            print(line, flush=True)


if __name__ == "__main__":
    main()
