"""The throughput of a whole machine: plain runs in processes of their own, as many at once as it holds, against stacks.

Steps alone, without Ray, so that it also runs where Ray is not installed; whole sweeps: `benchmarks/sweep_speed.py`.
The groups of processes take turns of some seconds; ratios compare turns next to each other.
`python -m benchmarks.machine_speed --cells tiny-frozen,tiny-unfrozen --runs 15`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection

import torch

from lr_sweep.benchmarks.engine_cases import Case
from lr_sweep.benchmarks.engine_speed import machine, plain, ratio_text, stack

STEPS = 5
"""Taken between two looks at the clock."""


def train(orders: Connection, case: Case, num_runs: int | None, device: torch.device) -> None:
    """Take steps for as many seconds as are ordered, and answer with run-steps a second; None: the plain engine."""
    try:
        steps = plain(case, device) if num_runs is None else stack(case, num_runs, device)
        steps(STEPS)  # warm up
    except (MemoryError, torch.OutOfMemoryError):
        orders.send("out of memory")
        return
    orders.send("ready")
    while True:  # until the group is closed
        seconds = orders.recv()
        taken, began = 0, time.perf_counter()
        while (took_s := time.perf_counter() - began) < seconds:
            steps(STEPS)  # ends with a look at the losses, which waits for a GPU
            taken += STEPS
        orders.send(taken * (num_runs or 1) / took_s)


class Group:
    """Processes that train at the same time."""

    def __init__(
        self, case: Case, num_processes: int, num_runs: int | None, device: torch.device
    ) -> None:
        """Start the processes; `train` describes the arguments."""
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.orders, self.processes = [], []
        for _ in range(num_processes):
            here, there = context.Pipe()
            process = context.Process(
                target=train, args=(there, case, num_runs, device), daemon=True
            )
            process.start()
            there.close()
            self.orders.append(here)
            self.processes.append(process)

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.terminate()
            process.join()

    def keep_those_that_fit(self) -> int:
        """Wait until each is ready or out of memory, let the latter go, and return how many are left."""
        fitting = [order for order in self.orders if order.recv() == "ready"]
        self.orders = fitting
        return len(fitting)

    def run_steps_per_s(self, seconds: float) -> float:
        """Let all of them train for so long."""
        for order in self.orders:
            order.send(seconds)
        return sum(order.recv() for order in self.orders)


def compare(
    case: Case, num_plain: int, num_runs: int, device: torch.device, rounds: int, seconds: float
) -> str:
    """Measure, and return a row of a table: a plain run alone, `num_plain` of them, and the default's stacks."""
    num_stacks = 1 if device.type == "cuda" else num_plain  # as the sweep would have it
    with ExitStack() as started:
        groups = []
        for num_processes, runs in ((1, None), (num_plain, None), (num_stacks, num_runs)):
            group = started.enter_context(closing(Group(case, num_processes, runs, device)))
            if not group.keep_those_that_fit():
                return f"| {case} | {num_processes} processes of {runs or 1}: out of memory |"
            groups.append(group)
        turns = [[group.run_steps_per_s(seconds) for group in groups] for _ in range(rounds)]
    by_group = list(zip(*turns, strict=True))
    alone, together, stacked = map(statistics.median, by_group)
    return (
        f"| {case} | {alone:.1f} | {len(groups[1].orders)} x: {together:.1f} | {len(groups[2].orders)} x {num_runs}: "
        f"{stacked:.1f} | {ratio_text(by_group[2], by_group[0])} | {ratio_text(by_group[2], by_group[1])} |"
    )


def measure(
    cases: Sequence[tuple[Case, int, int]], device: torch.device, rounds: int, seconds: float
) -> None:
    """Measure each case with so many plain processes at once and runs a stack; print a line as soon as it is known."""
    print(
        f"{machine(device)}; run-steps a second of the machine, {rounds} rounds of {seconds:g} s",
        flush=True,
    )
    print(
        "| cell | a plain run | plain runs at once | stacks | stacks / a plain run | stacks / plain runs at once |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    for case, num_plain, num_runs in cases:
        print(compare(case, num_plain, num_runs, device, rounds, seconds), flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--cells", default="tiny-frozen,tiny-unfrozen", help="names in benchmarks/engine_cases.py"
    )
    parser.add_argument(
        "--at-once", type=int, default=os.cpu_count(), help="plain processes; default: the cores"
    )
    parser.add_argument("--runs", type=int, default=15, help="of a stack")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    chosen = parser.parse_args()
    cases = [(Case(cell=cell), chosen.at_once, chosen.runs) for cell in chosen.cells.split(",")]
    measure(cases, torch.device(chosen.device), chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
