"""How often each check fires on sound studies and on planted faults: `python -m benchmarks.check_error_rates`.

Studies are drawn at random, and judged by the report's own functions. Accuracy over the learning rate
is a bell in its logarithm; over the steps it approaches its end exponentially. Runs differ by noise, and
so do their evaluations. Numbers depend on `--seed` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.selection.best import Bools, Floats
from lr_sweep.analysis.statistics.selection.summary import summarise
from lr_sweep.benchmarks.shared import options, percent, print_table
from lr_sweep.common.text import counted

VARIANTS = ("frozen-random", "frozen-pretrained", "unfrozen-random", "unfrozen-pretrained")
PLANTED = (0, -1)
"""The cell that gets a fault: the first task's last variant."""
CHANCE = 0.1
BUDGET = 1200
SPLIT_NOISE = 0.004
"""Standard deviation of a split's examples, in each of validation and test."""
NUM_TASKS = (1, 2, 4)
WIDTHS = {
    (0.5, 5): (1.2, 1.5),
    (0.5, 7): (1.2, 2.2),
    (0.5, 9): (1.2, 3.0),
    (1.0, 5): (2.5, 2.9),
    (1.0, 7): (2.5, 4.0),
}
"""By step of the grid (decades) and number of rates: widths of bells (one standard deviation, in decades). At worst the
grid misses 1.6 points of such a peak, and its ends lie 4 points below it."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Properties of a simulated study; arrays are tasks x variants. Faults change them in one cell."""

    log_rates: Floats
    """log10 of the learning rates, around 1e-3."""
    num_seeds: int
    noise: float
    """Standard deviation between runs, as a fraction of 1; that between evaluations is half as large."""
    num_evaluations: int
    best: Floats
    """Accuracy at the peak."""
    peak: Floats
    """log10 of the learning rate there."""
    width: Floats
    """Width of the bell, in decades."""
    pace: Floats
    """Time constants of a learning curve in the budget."""
    diverges: Bools
    """Whether the runs at a rate diverge, tasks x variants x rates."""

    @property
    def accuracy(self) -> Floats:
        """Accuracy at the end of training, tasks x variants x rates."""
        away = (self.log_rates - self.peak[..., None]) / self.width[..., None]
        bell: Floats = CHANCE + (self.best[..., None] - CHANCE) * np.exp(-(away**2) / 2)
        return bell


def sound(num_tasks: int, rng: np.random.Generator) -> Truth:
    """Draw a study without a fault: peaks inside the grid, resolved by it, and curves that have become flat.

    It has 3 to 10 seeds, 5 to 9 rates, noise of 0.5 to 2 points and 6 to 100 evaluations. Every other
    task has a cliff: two or more steps above the peak all runs diverge.
    """
    step, num_rates = list(WIDTHS)[rng.integers(len(WIDTHS))]
    num_seeds, noise = int(rng.choice([3, 5, 10])), float(rng.uniform(0.005, 0.02))
    num_evaluations = int(rng.choice([6, 12, 20, 50, 100]))
    cells = (num_tasks, len(VARIANTS))
    log_rates = step * (np.arange(num_rates) - num_rates // 2) - 3.0
    peak = log_rates[num_rates // 2] + step * rng.uniform(-0.5, 0.5, cells)
    has_cliff = (np.arange(num_tasks) % 2 == 1)[:, None, None]
    return Truth(
        log_rates=log_rates,
        num_seeds=num_seeds,
        noise=noise,
        num_evaluations=num_evaluations,
        best=rng.uniform(0.5, 0.9, cells),
        peak=peak,
        width=rng.uniform(*WIDTHS[step, num_rates], cells),
        pace=rng.uniform(8, 20, cells),
        diverges=has_cliff & (log_rates > peak[..., None] + 1.75 * step),
    )


def judged(truth: Truth, rng: np.random.Generator) -> list[CheckFinding]:
    """Draw runs and their evaluations, and run every check of a report but those of code versions."""
    steps = np.linspace(0, BUDGET, truth.num_evaluations + 1)[1:].round().astype(int)
    wanted = _wanted(truth)
    diverges = np.repeat(truth.diverges.ravel(), truth.num_seeds)
    runs = wanted[["run_id"]].assign(
        status=np.where(diverges, "diverged", "complete"),
        num_steps=np.where(diverges, BUDGET // 2, BUDGET),
        diverged_at_step=pd.array(np.where(diverges, BUDGET // 2, None), "Int64"),
        failure="",
    )
    splits = {
        name: values.reshape(-1, len(steps))[~diverges].ravel().clip(0, 1).round(4)
        for name, values in _curves(truth, steps, rng).items()
    }
    ids = wanted["run_id"].to_numpy()[~diverges]
    labels = {"run_id": np.repeat(ids, len(steps)), "step": np.tile(steps, len(ids))}
    curves = pd.DataFrame(labels | splits)
    summary = summarise(wanted, runs, curves)
    return [*check_sweep(summary, curves), *unequal_tuning(summary)]


def _curves(truth: Truth, steps: np.ndarray, rng: np.random.Generator) -> dict[str, Floats]:
    """Draw the accuracies of each split, tasks x variants x rates x seeds x evaluations."""
    shape = (*truth.diverges.shape, truth.num_seeds)
    end = (truth.accuracy[..., None] + rng.normal(0, truth.noise, shape))[..., None]
    curve = end - (end - CHANCE) * np.exp(-truth.pace[..., None, None, None] * steps / BUDGET)
    curve = curve + rng.normal(0, truth.noise / 2, curve.shape)
    validation, test = (curve + SPLIT_NOISE * rng.normal(size=shape)[..., None] for _ in range(2))
    return {
        "train": validation + 0.02,
        "validation": validation,
        "test": test,
    }


def _wanted(truth: Truth) -> pd.DataFrame:
    tasks = [f"task-{number}" for number in range(len(truth.best))]
    rates = [float(f"{10**log_rate:.3g}") for log_rate in truth.log_rates]
    labels = product(tasks, VARIANTS, rates, range(truth.num_seeds))
    frame = pd.DataFrame(labels, columns=["task", "variant", "learning_rate", "seed"]).assign(
        model="gpt2",
        num_steps=BUDGET,
        pretrained_on=None,
        data_origin="drawn",
        trained_parameters=None,
    )
    return frame.assign(run_id=[f"{number:06d}" for number in range(len(frame))])


def beyond_the_end(truth: Truth, rng: np.random.Generator) -> None:
    """Plant a peak one to two steps beyond an end of the grid."""
    low, high = truth.log_rates[[0, -1]]
    beyond = rng.uniform(1, 2) * (truth.log_rates[1] - low)
    truth.diverges[PLANTED] = False
    truth.peak[PLANTED] = rng.choice([low - beyond, high + beyond])


def mostly_diverged(truth: Truth, rng: np.random.Generator) -> None:
    """Plant a cell where only the smallest rate trains."""
    truth.diverges[PLANTED] = truth.log_rates > truth.log_rates[0]


def still_rising(truth: Truth, rng: np.random.Generator) -> None:
    """Plant curves that have 1 to 2 time constants in the budget: 3 points or more are gained in the last quarter."""
    truth.pace[PLANTED] = rng.uniform(1, 2)


FAULTS: dict[str, Callable[[Truth, np.random.Generator], None]] = {
    "edge": beyond_the_end,
    "untuned": mostly_diverged,
    "improving": still_rising,
}
"""Faults, by the check that finds them."""


def share_passed(num_studies: int, num_tasks: int, rng: np.random.Generator) -> float:
    """Return the share of sound studies without a problem, which `--strict` lets pass."""
    findings = (judged(sound(num_tasks, rng), rng) for _ in range(num_studies))
    return float(np.mean([all(each.level == "note" for each in study) for study in findings]))


def share_found(check: str, num_studies: int, rng: np.random.Generator) -> float:
    """Return the share of studies of one task where a fault is found as a problem of its cell."""
    num_found = 0
    for _ in range(num_studies):
        truth = sound(1, rng)
        FAULTS[check](truth, rng)
        problems = [finding for finding in judged(truth, rng) if finding.level == "problem"]
        num_found += (check, VARIANTS[-1]) in [(each.check, each.variant) for each in problems]
    return num_found / num_studies


def rows(num_studies: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Yield the shares of sound studies that pass, and of the faults that are found."""
    yield ["studies", "%"]
    for number in NUM_TASKS:
        share = share_passed(num_studies, number, rng)
        yield [f"sound, {counted(number, 'task')}: passes `--strict`", percent(share)]
    for check in FAULTS:
        yield [
            f"fault in one cell: found by `{check}`",
            percent(share_found(check, num_studies, rng)),
        ]


def main() -> None:
    """Print the rates that docs/checks.md sums up."""
    given = options(__doc__, studies=400, seed=0)
    print_table(rows(given.studies, np.random.default_rng(given.seed)))


if __name__ == "__main__":
    main()
