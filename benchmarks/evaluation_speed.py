"""Evaluations of the quickstart's task: the plain engine's of one run against a stack's, in turns, on one thread.

Needs torch, scikit-learn and this checkout alone: `python -m benchmarks.evaluation_speed --runs 15`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from lr_sweep.benchmarks.engine_cases import CELLS, sweep_of, weights_of
from lr_sweep.benchmarks.engine_speed import machine, ratio_text
from lr_sweep.datasets import digits
from lr_sweep.trainables.evaluation import evaluate
from lr_sweep.trainables.plain import Training
from lr_sweep.trainables.stacked.engine import StackedTraining

CPU = torch.device("cpu")


def cpu_seconds(evaluation: Callable[[], object]) -> float:
    """Time what this thread computes: other processes slow both engines, but not always alike."""
    began = time.thread_time()
    evaluation()
    return time.thread_time() - began


def compare(name: str, num_runs: int, rounds: int) -> str:
    """Let both engines evaluate all splits in turns; return a line of a table, with seconds of a run."""
    data, weights = digits.load(digits.Options(), Path()), weights_of(CELLS[name])
    runs = sweep_of(CELLS[name], num_runs)
    stack, plain = StackedTraining(data, weights, CPU), Training(runs[0], data, weights, CPU)
    stack.add(runs)

    def of_stack() -> None:
        stack.scores(stack.slots)

    def of_plain() -> None:
        for split in (data.train, data.validation, data.test):
            evaluate(plain.model.eval(), data, split)

    pairs = [(cpu_seconds(of_plain), cpu_seconds(of_stack) / num_runs) for _ in range(rounds + 1)][1:]
    plain_s, stack_s = zip(*pairs, strict=True)
    medians = f"{statistics.median(plain_s):.4f} | {statistics.median(stack_s):.4f}"
    return f"| {name} | {num_runs} | {medians} | {ratio_text(plain_s, stack_s)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="of the stack")
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    print(f"{machine(CPU)}; seconds of an evaluation of one run, {chosen.rounds} rounds")
    print("| cell | runs | plain | stack | plain/stack |\n|---|---|---|---|---|")
    for name in ("tiny-frozen", "tiny-unfrozen"):
        print(compare(name, chosen.runs, chosen.rounds), flush=True)


if __name__ == "__main__":
    main()
