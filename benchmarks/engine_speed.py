"""The engines against each other: a stack of one run, and stacks of several, against the plain engine.

Contenders take turns in one process, a few steps each, and every round gives a ratio. The table has
medians, with the smallest and largest. Needs torch and this checkout alone:

    python -m benchmarks.engine_speed
    python -m benchmarks.engine_speed --device cuda --cells base-frozen --precision tf32 --stacks 27
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from lr_sweep.benchmarks.engine_cases import CELLS, made_up_data, sweep_of, weights_of
from lr_sweep.benchmarks.shared import machine, options, print_table, ratio_text
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.run import Precision
from lr_sweep.trainables.stacked.engine import StackedTraining

MOST_STEPS = 50
"""Steps of a turn, at most."""
Steps = Callable[[int], None]
"""Takes a number of steps."""


class Case(NamedTuple):
    """A measured cell, and the precision of its matrix products."""

    cell: str
    precision: Precision
    device: torch.device

    def plain(self) -> Steps:
        """Return the plain engine with one run."""
        cell = CELLS[self.cell]
        (run,) = sweep_of(cell, 1, precision=self.precision)
        data = made_up_data(cell).to(self.device)
        return Training(run, data, weights_of(cell), self.device).train_chunk

    def stack(self, num_runs: int) -> Steps:
        """Return the stacked engine with some runs."""
        cell = CELLS[self.cell]
        training = StackedTraining(
            made_up_data(cell).to(self.device), weights_of(cell), self.device
        )
        training.add(sweep_of(cell, num_runs, precision=self.precision))
        return training.train_chunk

    def seconds_a_step(self, steps: Steps, number: int) -> float:
        """Time a chunk; it ends with a look at the losses, which waits for a GPU.

        On a CPU, where an engine has one thread, the clock is the thread's CPU time: other processes
        slow both contenders, but not always alike.
        """
        clock = time.perf_counter if self.device.type == "cuda" else time.thread_time
        began = clock()
        steps(number)
        return (clock() - began) / number

    def compared(self, num_runs: int, rounds: int, seconds: float) -> dict[str, list[float]]:
        """Let the contenders take turns; return the seconds of a run's step, by contender and round."""
        contenders = {
            "plain": self.plain(),
            "solo": self.stack(1),
            "stack": self.stack(num_runs),
        }
        counts = {}
        for name, steps in contenders.items():
            self.seconds_a_step(steps, 3)  # warm up
            possible = int(seconds / self.seconds_a_step(steps, 1))
            counts[name] = max(1, min(MOST_STEPS, possible))
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, steps in contenders.items():
                runs = num_runs if name == "stack" else 1
                times[name].append(self.seconds_a_step(steps, counts[name]) / runs)
        return times


def row(case: Case, num_runs: int, rounds: int, seconds: float) -> list[str]:
    """Measure, and return a row of the table."""
    label = [f"{case.cell} {case.precision}", str(num_runs)]
    try:
        times = case.compared(num_runs, rounds, seconds)
    except (MemoryError, torch.OutOfMemoryError):
        return [*label, "out of memory"]
    medians = [f"{1e3 * statistics.median(rounds_s):.3f}" for rounds_s in times.values()]
    return [*label, *medians, ratio_text(times["plain"], times["stack"])]


def main() -> None:
    """Print the table that the command line asks for."""
    given = options(
        __doc__,
        device="cpu",
        cells="tiny-frozen,tiny-unfrozen",
        precision="fp32",
        stacks="27",
        rounds=5,
        seconds=0.3,
    )
    device = torch.device(given.device)
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else ""
    print(f"{machine(gpu)}; milliseconds for a step of a run, {given.rounds} rounds", flush=True)

    def rows() -> Iterator[list[str]]:
        yield ["cell", "runs", "plain", "solo", "stack", "plain/stack"]
        for cell in given.cells.split(","):
            for num_runs in map(int, given.stacks.split(",")):
                case = Case(cell, given.precision, device)
                yield row(case, num_runs, given.rounds, given.seconds)

    print_table(rows())


if __name__ == "__main__":
    main()
