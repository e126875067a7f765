"""The engines against each other: the fast one with one run against the plain one, and stacks against that.

Contenders take turns in one process, a few steps each, and every round gives a ratio; medians of those are printed,
with the smallest and largest. `benchmarks/gpu_speed.py` is all of it on a GPU. Needs torch and this checkout alone:
`python -m benchmarks.engine_speed --cells tiny-frozen,tiny-unfrozen --stacks 1,2,4,8,16,27`.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from lr_sweep.benchmarks.engine_cases import CELLS, Case, made_up_data, sweep_of, weights_of
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.stacked.engine import StackedTraining

CONTENDERS = ("plain", "solo", "stack")
RATIOS = (("plain", "solo"), ("solo", "stack"), ("plain", "stack"))

Steps = Callable[[int], None]
"""Takes so many steps."""

Pair = tuple[Case, int]
"""A configuration that is measured, and the number of runs in its stack."""


def plain(case: Case, device: torch.device) -> Steps:
    """Return the plain engine with one run."""
    cell = CELLS[case.cell]
    (run,) = sweep_of(cell, 1, precision=case.plain_precision)
    return Training(run, made_up_data(cell).to(device), weights_of(cell), device).train_chunk


def stack(case: Case, number: int, device: torch.device) -> Steps:
    """Return the fast engine with so many runs."""
    cell = CELLS[case.cell]
    training = StackedTraining(made_up_data(cell).to(device), weights_of(cell), device)
    training.add(sweep_of(cell, number, precision=case.precision))
    return training.train_chunk


def seconds_a_step(steps: Steps, number: int, device: torch.device) -> float:
    """Time a chunk; it ends with a look at the losses, which waits for a GPU.

    On a CPU, where an engine has one thread, what the thread computes is counted: other processes slow both contenders,
    but not always alike.
    """
    clock = time.perf_counter if device.type == "cuda" else time.thread_time
    began = clock()
    steps(number)
    return (clock() - began) / number


def compare(
    case: Case, number: int, device: torch.device, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Let the plain engine, the fast one alone and a stack take turns; return the seconds of a run-step by round."""
    contenders = {
        "plain": plain(case, device),
        "solo": stack(case, 1, device),
        "stack": stack(case, number, device),
    }
    counts = {}
    for name, steps in contenders.items():
        seconds_a_step(steps, 3, device)  # warm up
        counts[name] = max(1, min(50, int(seconds / seconds_a_step(steps, 1, device))))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, steps in contenders.items():
            runs = number if name == "stack" else 1
            times[name].append(seconds_a_step(steps, counts[name], device) / runs)
    return times


def line(case: Case, number: int, times: dict[str, list[float]]) -> str:
    """Return a line of the table."""
    cells = [f"{1e3 * statistics.median(times[who]):.3f}" for who in CONTENDERS]
    cells += [ratio_text(times[over], times[under]) for over, under in RATIOS]
    return f"| {case} | {number} | {' | '.join(cells)} |"


def ratio_text(over: Sequence[float], under: Sequence[float]) -> str:
    """Return the median ratio of two contenders' rounds, with the smallest and the largest."""
    return spread([one / other for one, other in zip(over, under, strict=True)])


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median with the smallest and the largest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def machine(device: torch.device) -> str:
    """Say what was measured on."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else _cpu()
    return f"{name}, Python {platform.python_version()}, torch {torch.__version__}, {datetime.now(UTC):%Y-%m-%d}"


def _cpu() -> str:
    lines = (
        Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    )
    pairs = [
        (key.strip(), value.strip()) for key, _, value in (text.partition(":") for text in lines)
    ]
    models, families = (
        [value for key, value in pairs if key == name] for name in ("model name", "cpu family")
    )
    family = f" of family {families[0]}" if families else ""  # a cloud's names hide it
    return (
        f"{models[0] if models else platform.machine()}{family} (1 thread of {len(models)} cores)"
    )


def measure(
    pairs: Sequence[Pair],
    device: torch.device,
    rounds: int,
    seconds: float,
    budget_s: float = math.inf,
) -> None:
    """Measure and print, a line as soon as it is known; what has not begun within `budget_s` is said to be left out."""
    began = time.monotonic()
    print(f"{machine(device)}; milliseconds a run-step, {rounds} rounds", flush=True)
    print("| cell | runs | plain | solo | stack | plain/solo | solo/stack | plain/stack |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for case, number in pairs:
        if time.monotonic() - began > budget_s:
            print(f"| {case} | {number} | left out: no time |", flush=True)
            continue
        try:
            times = compare(case, number, device, rounds, seconds)
        except (MemoryError, torch.OutOfMemoryError):
            print(f"| {case} | {number} | out of memory |", flush=True)
            continue
        print(line(case, number, times), flush=True)


def numbers(text: str) -> list[int]:
    """Read whole numbers between commas."""
    return [int(number) for number in text.split(",") if number]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--cells",
        default="tiny-frozen,tiny-frozen-random,tiny-unfrozen",
        help="names in benchmarks/engine_cases.py",
    )
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument(
        "--stacks", type=numbers, default="1,2,4,8,16,27", help="sizes of stacks, by commas"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each turn")
    chosen = parser.parse_args()
    cases = [
        Case(cell=cell, precision=chosen.precision, plain_precision=chosen.precision)
        for cell in chosen.cells.split(",")
    ]
    pairs = [(case, number) for case in cases for number in chosen.stacks]
    measure(pairs, torch.device(chosen.device), chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
