"""The engines against each other: the fast one with one run against the plain one, and stacks against that.

Contenders take turns in one process, a few steps each, and every round gives a ratio; medians of those are printed,
with the smallest and largest. `--device cuda` is made to end within 9 minutes. Needs torch and this checkout alone:
`python -m benchmarks.engine_speed --cells tiny-frozen,tiny-unfrozen --stacks 1,2,4,8,16,27`.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.engine_cases import CELLS, Cell, made_up_data, sweep_of, weights_of
from trainables.stacked_training import StackedTraining
from trainables.training import Training

BUDGET_S = {"cpu": 3600.0, "cuda": 500.0}
"""Cells that have not begun by then are left out, and said to be."""

COMPILING_S = 150.0
"""What `torch.compile` is given of it, at most: with less left, stacks are not compiled."""

RATIOS = (("plain", "solo"), ("solo", "stack"), ("plain", "stack"), ("stack", "compiled"))

Steps = Callable[[int], None]
"""Takes so many steps."""


def plain(cell: Cell, device: torch.device) -> Steps:
    """Return the plain engine with one run."""
    (run,) = sweep_of(cell, 1)
    return Training(run, made_up_data(cell).to(device), weights_of(cell), device)._train_chunk


def stack(cell: Cell, number: int, device: torch.device, *, compiled: bool = False) -> Steps:
    """Return the fast engine with so many runs."""
    training = StackedTraining(made_up_data(cell).to(device), weights_of(cell), device, compiled=compiled)
    training.add(sweep_of(cell, number))
    return training._train_chunk


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
    cell: Cell, number: int, device: torch.device, rounds: int, seconds: float, *, compiled: bool = False
) -> dict[str, float]:
    """Let the plain engine, the fast one alone and a stack take turns; return medians and ratios by run-step."""
    contenders = {"plain": plain(cell, device), "solo": stack(cell, 1, device), "stack": stack(cell, number, device)}
    if compiled:
        contenders["compiled"] = stack(cell, number, device, compiled=True)
    counts = {}
    for name, steps in contenders.items():
        seconds_a_step(steps, 3, device)  # warm up: compile, and record a graph
        counts[name] = max(1, min(50, int(seconds / seconds_a_step(steps, 1, device))))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, steps in contenders.items():
            runs = number if name in ("stack", "compiled") else 1
            times[name].append(seconds_a_step(steps, counts[name], device) / runs)
    result = {f"{name}_ms": 1e3 * statistics.median(values) for name, values in times.items()}
    for over, under in RATIOS[: 4 if compiled else 3]:
        ratios = [a / b for a, b in zip(times[over], times[under], strict=True)]
        result |= {f"{over}/{under}": statistics.median(ratios)}
        result |= {f"{over}/{under} least": min(ratios), f"{over}/{under} most": max(ratios)}
    if device.type == "cuda":
        result["peak_GB"] = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.reset_peak_memory_stats()
    return result


def line(name: str, number: int, result: dict[str, float]) -> str:
    """Say it in one line of a table."""
    times = [f"{who}_ms" for who in ("plain", "solo", "stack", "compiled")]
    milliseconds = " | ".join(f"{result[key]:.3f}" if key in result else "" for key in times)
    pairs = [f"{over}/{under}" for over, under in RATIOS]
    ratios = " | ".join(
        f"{result[key]:.2f} ({result[f'{key} least']:.2f} to {result[f'{key} most']:.2f})" if key in result else ""
        for key in pairs
    )
    return f"| {name} | {number} | {milliseconds} | {ratios} |"


def machine(device: torch.device) -> str:
    """Say what was measured on."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else _cpu()
    return f"{name}, Python {platform.python_version()}, torch {torch.__version__}, {datetime.now(UTC):%Y-%m-%d}"


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    models = [text.split(":", 1)[1].strip() for text in lines if text.startswith("model name")]
    return f"{models[0] if models else platform.machine()} (1 thread of {len(models)} cores)"


def measure(
    cells: Sequence[str],
    stacks: Sequence[int],
    compiled: Sequence[int],
    device: torch.device,
    rounds: int,
    seconds: float,
) -> None:
    """Measure and print, a line as soon as it is known."""
    began = time.monotonic()
    print(f"{machine(device)}; milliseconds a run-step, {rounds} rounds", flush=True)
    print("| cell | runs | plain | solo | stack | compiled | plain/solo | solo/stack | plain/stack | stack/compiled |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in cells:
        for number in stacks:
            left_s = BUDGET_S[device.type] - (time.monotonic() - began)
            if left_s < 0:
                print(f"| {name} | {number} | left out: no time |")
                continue
            try:
                compiling = number in compiled and left_s > COMPILING_S
                result = compare(CELLS[name], number, device, rounds, seconds, compiled=compiling)
            except (MemoryError, torch.OutOfMemoryError):
                print(f"| {name} | {number} | out of memory |")
                continue
            print(line(name, number, result), flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cells", help="names in benchmarks/engine_cases.py, by commas; default: those for the device")
    parser.add_argument("--stacks", default="1,2,4,8,16,27", help="sizes of stacks, by commas")
    parser.add_argument("--compiled", help="which of them are compiled, too, by commas; default: on a GPU 1,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each turn")
    chosen = parser.parse_args()
    on_cpu = chosen.device == "cpu"
    cells = "tiny-frozen,tiny-frozen-random,tiny-unfrozen" if on_cpu else "base-frozen,base-unfrozen,base-frozen-1024"
    names = (chosen.cells or cells).split(",")
    stacks = [int(number) for number in chosen.stacks.split(",")]
    compiled = chosen.compiled or ("" if on_cpu else "1,8")
    numbers = [int(number) for number in compiled.split(",") if number]
    measure(names, stacks, numbers, torch.device(chosen.device), chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
