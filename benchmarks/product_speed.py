"""Matrix products of a CPU by torch's batched operation (MKL) and by oneDNN: `python -m benchmarks.product_speed`.

On one thread, GFLOP/s: products of `trainables/stacked/layers.py`, of tiny models' sizes up to GPT-2's. `sum`: a
gradient of weights, whose first operand is transposed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from lr_sweep.benchmarks.engine_speed import machine, ratio_text
from lr_sweep.trainables.stacked.layers import by_onednn, onednn_is_faster

NUM_RUNS, ROUNDS, ROUND_S = 4, 7, 0.05
SIZES = {
    "tiny": (32, 64),
    "tiny, evaluated": (256, 64),
    "width 128": (128, 128),
    "small": (512, 256),
    "base": (512, 768),
}
"""Rows of a run and width; a product is by a feedforward's weight, width x 4 width."""


def per_second(multiply: Callable[[], object]) -> float:
    """Return how many times a function runs a second."""
    number, began = 0, time.perf_counter()
    while (took_s := time.perf_counter() - began) < ROUND_S:
        multiply()
        number += 1
    return number / took_s


def compared(a: Tensor, b: Tensor) -> str:
    """Return a table's cells: GFLOP/s by MKL, by oneDNN, and their ratio, medians of alternating rounds."""
    out = a.new_empty(*a.shape[:2], b.shape[2])
    ways = [lambda: torch.bmm(a, b, out=out), lambda: by_onednn(a, b, None, out)]
    gflop = 2e-9 * a.numel() * b.shape[2]
    mkl, onednn = zip(
        *([gflop * per_second(way) for way in ways] for _ in range(ROUNDS)), strict=True
    )
    return f"{statistics.median(mkl):.0f} | {statistics.median(onednn):.0f} | {ratio_text(onednn, mkl)}"


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    print(
        f"{machine(torch.device('cpu'))}; stacks use oneDNN for large products here: {onednn_is_faster()}"
    )
    print("| product | rows x in x out | MKL | oneDNN | oneDNN / MKL |\n|---|---|---|---|---|")
    for name, (rows, width) in SIZES.items():
        x, weight = torch.randn(NUM_RUNS, rows, width), torch.randn(NUM_RUNS, width, 4 * width)
        grad = torch.randn(NUM_RUNS, rows, 4 * width)
        print(f"| {name} | {rows} x {width} x {4 * width} | {compared(x, weight)} |")
        print(f"| {name}, back | {rows} x {4 * width} x {width} | {compared(grad, weight.mT)} |")
        print(
            f"| {name}, sum | {width} x {rows} x {4 * width} | {compared(x.mT, grad)} |", flush=True
        )


if __name__ == "__main__":
    main()
