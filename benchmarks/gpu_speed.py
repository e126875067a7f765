"""The engines on a GPU, in under 9 minutes: `python -m benchmarks.gpu_speed`.

Needs torch and this checkout alone. First the throughput of a whole machine (`benchmarks/machine_speed.py`), then the
engines against each other (`benchmarks/engine_speed.py`), in TF32 and bf16. It names what does not fit in the time.
"""

from __future__ import annotations

import argparse
import time

import torch

from lr_sweep.benchmarks import engine_speed, machine_speed
from lr_sweep.benchmarks.engine_cases import Case

BUDGET_S = 500.0
"""After which nothing new is begun."""

FROZEN = Case(cell="base-frozen", precision="bf16", plain_precision="bf16")
UNFROZEN = Case(cell="base-unfrozen", precision="bf16", plain_precision="bf16")

CASES = [(FROZEN, 16, 27), (UNFROZEN, 8, 8)]
"""Case, plain processes at once, and runs of a stack: all are in the GPU's memory at the same time."""

ENGINES = [
    FROZEN,
    UNFROZEN,
    Case(cell="base-frozen", precision="tf32", plain_precision="tf32"),
    Case(cell="base-unfrozen", precision="tf32", plain_precision="tf32"),
    Case(cell="base-frozen-1024", precision="bf16", plain_precision="fp32"),
    Case(cell="base-unfrozen-1024", precision="bf16", plain_precision="fp32"),
]

PAIRS = [*((case, number) for number in (27, 1, 8, 2, 4, 16) for case in ENGINES), (FROZEN, 39)]
"""The most important first: the time may not suffice for all."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(
            2,
            "error: torch sees no GPU here; the engines on a CPU: python -m benchmarks.engine_speed\n",
        )
    began, device = time.monotonic(), torch.device("cuda")
    machine_speed.measure(CASES, device, rounds=3, seconds=4.0)
    left_s = BUDGET_S - (time.monotonic() - began)
    engine_speed.measure(PAIRS, device, rounds=5, seconds=0.3, budget_s=left_s)


if __name__ == "__main__":
    main()
