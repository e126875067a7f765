"""What `benchmarks/gpu_speed.py` is expected to measure: `python -m benchmarks.gpu_predictions h100 h200`.

Computed as by `plan --device` (`sweep/plan/roofline.py`).
"""

from __future__ import annotations

import argparse

from lr_sweep.benchmarks.engine_cases import CELLS, sweep_of
from lr_sweep.benchmarks.gpu_speed import PAIRS
from lr_sweep.sweep.plan.gpus import GPUS, Gpu
from lr_sweep.sweep.plan.roofline import step_work
from lr_sweep.trainables.memory import USABLE, stack_bytes


def main(arguments: list[str] | None = None) -> None:
    """Print a table: milliseconds a run-step in stacks, lowest, middle and highest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpus", nargs="+", choices=list(GPUS), metavar="GPU")
    gpus = [GPUS[name] for name in parser.parse_args(arguments).gpus]
    print(f"| cell | runs | {' | '.join(gpu.title for gpu in gpus)} |\n|---|---|{'---|' * len(gpus)}")
    cases = {(str(case), number): case for case, number, compiled in PAIRS if not compiled}
    for (name, number), case in sorted(cases.items()):
        texts = (_text(case.cell, case.precision, number, gpu) for gpu in gpus)
        print(f"| {name} | {number} | {' | '.join(texts)} |")


def _text(cell_name: str, precision: str, number: int, gpu: Gpu) -> str:
    cell = CELLS[cell_name]
    runs = sweep_of(cell, number, precision=precision)
    seeds = len({run.seed for run in runs})
    if stack_bytes(runs[0], cell.shape, number, seeds, on_cpu=False) > USABLE * gpu.memory_bytes:
        return "does not fit"
    low, middle, high = step_work(runs[0], cell.shape, number, seeds).seconds(gpu, runs[0]) * (1e3 / number)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
