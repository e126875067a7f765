"""How far the engines agree by learning rate: `python -m benchmarks.engine_agreement`; minutes on a CPU, no download.

Each run of the quickstart's model on scikit-learn's digits is trained by the plain engine, by the stacked one, and by
the plain one again with 1e-7 of noise on the weights that it starts from, the size of a rounding in fp32. Where the
last two differ from the first by as much, the engines differ by rounding alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import torch

from lr_sweep.benchmarks.engine_cases import TINY, Cell, run_of
from lr_sweep.benchmarks.shared import options, print_table
from lr_sweep.datasets import digits
from lr_sweep.datasets.task import TaskData
from lr_sweep.tests.support.small_runs import plain_of, stacked
from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.run import Run

RATES = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
VARIANTS = ("frozen-random", "unfrozen-random")
NOISE = 1e-7
HEADER = ("engines: loss", "accuracy", "other step", "noise: loss", "accuracy", "other step")


def sweep(variant: str, num_seeds: int, evaluate_every: int) -> list[Run]:
    """Return runs of all rates and seeds."""
    cell = Cell(size=TINY, num_tokens=4, variant=variant)
    protocol = {"evaluate_every": evaluate_every, "train_examples_evaluated": 100}
    return [
        run_of(cell, seed=seed, learning_rate=rate, **protocol)
        for seed in range(num_seeds)
        for rate in RATES
    ]


def plain(run: Run, data: TaskData, num_steps: int, noise: float = 0.0) -> list[Evaluation]:
    """Return the plain engine's curve, from weights with noise of this standard deviation."""
    training = plain_of(run, data)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in training.trained.values():
            parameter += noise * torch.randn(parameter.shape, generator=generator)
    while not training.progress.diverged and training.progress.step < num_steps:
        training.advance()
    return training.progress.curve


def differences(
    one: Sequence[Evaluation], other: Sequence[Evaluation]
) -> tuple[float, float, bool]:
    """Return the largest difference of validation losses, relative, and of accuracies, and whether the step differs."""
    pairs = list(zip(one, other, strict=False))
    loss = max(abs(a.validation_loss - b.validation_loss) / a.validation_loss for a, b in pairs)
    accuracy = max(abs(a.validation - b.validation) for a, b in pairs)
    return loss, accuracy, best_step(one) != best_step(other)


def best_step(curve: Sequence[Evaluation]) -> int:
    """Return the step that validation accuracy picks."""
    return max(curve, key=lambda point: (point.validation, -point.step)).step


def cells(differing: Sequence[tuple[float, float, bool]]) -> list[str]:
    """Return the largest differences over seeds, as cells of the table."""
    losses, accuracies, steps = zip(*differing, strict=True)
    return [f"{max(losses):.0e}", f"{max(accuracies):.3f}", f"{sum(steps)} of {len(steps)}"]


def rows(variant: str, num_seeds: int, num_steps: int, evaluate_every: int) -> Iterator[list[str]]:
    """Yield a row a learning rate."""
    data = digits.load(digits.Options(), Path())
    runs = sweep(variant, num_seeds, evaluate_every)
    _, slots = stacked(runs, num_steps, data)
    fast = {slot.run.run_id: slot.progress.curve for slot in slots}
    for rate in RATES:
        of_rate = [run for run in runs if run.learning_rate == rate]
        exact = [plain(run, data, num_steps) for run in of_rate]
        noisy = [plain(run, data, num_steps, NOISE) for run in of_rate]
        engines = [
            differences(curve, fast[run.run_id]) for run, curve in zip(of_rate, exact, strict=True)
        ]
        noises = [differences(*curves) for curves in zip(exact, noisy, strict=True)]
        yield [variant, f"{rate:.0e}", *cells(engines), *cells(noises)]


def main() -> None:
    """Measure and print."""
    given = options(__doc__, steps=600, evaluate_every=100, seeds=3, variants=VARIANTS)
    torch.set_num_threads(1)
    of_variants = (
        rows(variant, given.seeds, given.steps, given.evaluate_every) for variant in given.variants
    )
    print_table(chain([["variant", "rate", *HEADER]], *of_variants))


if __name__ == "__main__":
    main()
