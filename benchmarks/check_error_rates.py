"""How often each check fires on sound studies and on planted faults: `python -m benchmarks.check_error_rates`.

Studies are drawn (`simulated_studies.py`) and judged by the report's own functions. Numbers depend on `--seed` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.selection.summary import summarise
from lr_sweep.benchmarks import simulated_studies as simulated
from lr_sweep.benchmarks.shared import options, percent, print_table
from lr_sweep.benchmarks.simulated_studies import Frames, Truth, any_setting, drawn, sound
from lr_sweep.common.text import counted

Fault = Callable[[Truth, np.random.Generator], Frames]
"""Draws a study of a truth, with a fault in it."""

NUM_TASKS = (1, 2, 4)


def in_truth(plant: Callable[[Truth, np.random.Generator], Truth]) -> Fault:
    """Return a fault that is planted before the study is drawn."""
    return lambda truth, rng: drawn(plant(truth, rng), rng)


def in_frames(damage: Callable[[Frames], Frames]) -> Fault:
    """Return a fault that is planted into the drawn study."""
    return lambda truth, rng: damage(drawn(truth, rng))


FAULTS: dict[str, tuple[Fault, str]] = {
    "peak beyond the grid": (in_truth(simulated.beyond_the_end), "edge"),
    "only the smallest rate trains": (in_truth(simulated.mostly_diverged), "untuned"),
    "a seed diverged at the best rate": (in_truth(simulated.one_seed_diverged), "fewer-seeds"),
    "still rising": (in_truth(simulated.still_rising), "improving"),
    "test 10 points below validation": (in_truth(simulated.lower_test), "gap"),
    "a run missing": (in_truth(simulated.one_run("missing")), "missing"),
    "a run failed": (in_truth(simulated.one_run("failed")), "missing"),
    "inputs that are all alike": (in_frames(simulated.constant), "stuck"),
    "a variant with two rates fewer": (in_frames(simulated.without_upper_rates), "unequal"),
    "two learning rates": (in_frames(simulated.two_rates), "untuned"),
}
"""The fault, and the check that finds it."""


NOISE_STEPS = (1.0, 2.0, 3.0)
"""Ratios of the noise at neighbouring learning rates."""


def judged(frames: Frames) -> list[CheckFinding]:
    """Run every check of a report but those of code versions."""
    summary = summarise(frames.wanted, frames.runs, frames.curves)
    return [*check_sweep(summary, frames.curves), *unequal_tuning(summary)]


def share_passed(
    num_studies: int, num_tasks: int, rng: np.random.Generator, noise_step: float = 1.0
) -> float:
    """Return the share of sound studies without a problem, which `--strict` lets pass."""
    num_passed = 0
    for _ in range(num_studies):
        setting = replace(any_setting(rng, num_tasks), noise_step=noise_step)
        findings = judged(drawn(sound(setting, rng), rng))
        num_passed += all(finding.level == "note" for finding in findings)
    return num_passed / num_studies


def share_found(
    fault: Fault, check: str, num_studies: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the shares of studies of one task where a fault is found in its cell: as a problem, and at all."""
    num_problems = num_findings = 0
    for _ in range(num_studies):
        findings = judged(fault(sound(any_setting(rng, 1), rng), rng))
        levels = {
            finding.level
            for finding in findings
            if (finding.check, finding.variant) == (check, simulated.VARIANTS[-1])
        }
        num_problems += "problem" in levels
        num_findings += bool(levels)
    return num_problems / num_studies, num_findings / num_studies


def sound_rows(num_studies: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Yield the shares of sound studies that pass, by their number of tasks."""
    yield ["sound studies", "passes `--strict`, %"]
    for number in NUM_TASKS:
        yield [counted(number, "task"), percent(share_passed(num_studies, number, rng))]


def noise_rows(num_studies: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Yield the shares of sound studies that pass, by the growth of the noise with the rate."""
    yield ["noise of a rate, in that of the one below", "passes `--strict`, %"]
    for noise_step in NOISE_STEPS:
        yield [f"{noise_step:g}", percent(share_passed(num_studies, 1, rng, noise_step))]


def fault_rows(num_studies: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Yield how often each planted fault is found."""
    yield ["planted in one cell", "check", "found as a problem, %", "found as either, %"]
    for name, (fault, check) in FAULTS.items():
        shares = share_found(fault, check, num_studies, rng)
        yield [name, f"`{check}`", *map(percent, shares)]


TABLES = {"sound": sound_rows, "noise": noise_rows, "faults": fault_rows}


def main() -> None:
    """Print the rates that docs/checks.md sums up."""
    given = options(__doc__, studies=400, seed=0, table=TABLES)
    for name in given.table:
        print_table(TABLES[name](given.studies, np.random.default_rng(given.seed)))
        print()


if __name__ == "__main__":
    main()
