"""Peak memory of stacks on a CPU, measured, beside what `trainables.worker.memory` predicts.

Each case has a process of its own: `python -m benchmarks.engine_memory`, or of one case as JSON,
`python -m benchmarks.engine_memory small-frozen 4` (4 runs) or `blocked 2000` (attention of 2,000 tokens).
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from lr_sweep.benchmarks.engine_cases import CELLS, TINY, Cell, made_up_data, sweep_of, weights_of
from lr_sweep.benchmarks.shared import print_table
from lr_sweep.trainables.run import ModelSize, Run
from lr_sweep.trainables.stacked.engine import StackedTraining
from lr_sweep.trainables.stacked.layers import batched
from lr_sweep.trainables.worker.memory import stack_bytes

ROOT = Path(__file__).parent.parent
NUM_STEPS = 2
SIZES = {
    "small-frozen": (1, 4, 12),
    "small-unfrozen": (1, 4, 12),
    "base-frozen": (1, 2),
    "base-unfrozen": (1, 2),
}
"""Numbers of runs in a stack. The libraries take more than tiny models, whose memory cannot be measured."""
NUM_TOKENS = {"written": (500, 1000, 2000), "blocked": (500, 1000, 2000)}
"""Lengths of sequences, by the kind of attention."""
LONG = ModelSize(layers=3, heads=4, width=64, positions=4096)


def measure(kind: str, number: int) -> dict[str, float]:
    """Train for a few steps, and return by how many bytes this process grew at most.

    `kind`: a cell, of which `number` runs are trained and evaluated; or a kind of attention, by
    which one run is trained on sequences of `number` tokens.
    """
    if kind in SIZES:
        cell = CELLS[kind]
        return _growth(cell, sweep_of(cell, number, evaluate_every=NUM_STEPS), is_evaluated=True)
    cell = Cell(size=LONG, num_tokens=number, variant="unfrozen-random")
    return _growth(cell, sweep_of(cell, 1, batch_size=2, attention=kind), is_evaluated=False)


def _growth(cell: Cell, runs: list[Run], *, is_evaluated: bool) -> dict[str, float]:
    _warm_up(cell)
    data, weights = made_up_data(cell), weights_of(cell)
    before = _resident_bytes("VmRSS")
    training = StackedTraining(data, weights, torch.device("cpu"))
    training.add(runs)
    for _ in range(2):
        if is_evaluated:
            training.advance()
        else:
            training.train_chunk(NUM_STEPS)
    seeds = min(len(runs), 3)
    predicted = stack_bytes(runs[0], cell.shape, len(runs), seeds, on_cpu=True)
    return {"measured_bytes": _resident_bytes("VmHWM") - before, "predicted_bytes": predicted}


def _resident_bytes(which: str) -> int:
    """Return the bytes of memory held now (`VmRSS`) or at most so far (`VmHWM`).

    `ru_maxrss` does not serve: a process begins with the value of its parent.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith(f"{which}:")]
    return int(kilobytes) * 1024


def _warm_up(like: Cell) -> None:
    """Load and initialise the libraries."""
    cell = replace(like, size=TINY, num_tokens=4)
    training = StackedTraining(made_up_data(cell), weights_of(cell), torch.device("cpu"))
    training.add(sweep_of(cell, 1, evaluate_every=2))
    training.advance()
    large = torch.zeros(1, 256, 256)  # its product may be another library's
    batched(large, large)
    gc.collect()


def measured(kind: str, number: int) -> dict[str, float]:
    """Measure a case in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.engine_memory", kind, str(number)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def rows() -> Iterator[list[str]]:
    """Yield the table: a row a case."""
    yield ["cell or attention", "runs or tokens", "measured MB", "predicted MB", "ratio"]
    for kind, numbers in (SIZES | NUM_TOKENS).items():
        for number in numbers:
            case = measured(kind, number)
            real, predicted = case["measured_bytes"] / 1e6, case["predicted_bytes"] / 1e6
            yield [kind, str(number), f"{real:.0f}", f"{predicted:.0f}", f"{predicted / real:.2f}"]


def main() -> None:
    """Print a case, or the table."""
    match sys.argv[1:]:
        case [kind, number]:
            print(json.dumps(measure(kind, int(number))))
        case _:
            print_table(rows())


if __name__ == "__main__":
    main()
