"""How far the engines agree by learning rate: `python -m benchmarks.engine_agreement`; minutes on a CPU, no download.

Each run of the quickstart's model on scikit-learn's digits is trained by the plain engine, by the stacked one, and by
the plain one again with 1e-7 of noise on the weights that it starts from, the size of a rounding in fp32. Where the
last two differ from the first by as much, the engines differ by rounding alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from lr_sweep.benchmarks.engine_cases import TINY, Cell, run_of
from lr_sweep.datasets import digits
from lr_sweep.datasets.task import TaskData
from lr_sweep.tests.support.small_runs import plain_of, stacked
from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.run import Run

RATES = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
VARIANTS = ("frozen-random", "unfrozen-random")
NOISE = 1e-7
HEADER = "| variant | rate | engines: loss | accuracy | other step | noise: loss | accuracy | other step |"


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
    accuracy = max(abs(a.validation_accuracy - b.validation_accuracy) for a, b in pairs)
    return loss, accuracy, best_step(one) != best_step(other)


def best_step(curve: Sequence[Evaluation]) -> int:
    """Return the step that validation accuracy picks."""
    return max(curve, key=lambda point: (point.validation_accuracy, -point.step)).step


def row(variant: str, rate: float, found: Sequence[Sequence[tuple[float, float, bool]]]) -> str:
    """Return a line of the table: the largest differences over seeds, first of the engines, then of noise."""
    cells = []
    for kind in zip(*found, strict=True):
        losses, accuracies, steps = zip(*kind, strict=True)
        cells += [f"{max(losses):.0e}", f"{max(accuracies):.3f}", f"{sum(steps)} of {len(steps)}"]
    return f"| {variant} | {rate:.0e} | {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--evaluate-every", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = digits.load(digits.Options(), Path())
    print(HEADER, f"|{'---|' * HEADER.count(' |')}", sep="\n")
    for variant in chosen.variants:
        runs = sweep(variant, chosen.seeds, chosen.evaluate_every)
        fast = {
            slot.run.run_id: slot.progress.curve for slot in stacked(runs, chosen.steps, data)[1]
        }
        for rate in RATES:
            found = []
            for run in (run for run in runs if run.learning_rate == rate):
                oracle = plain(run, data, chosen.steps)
                noisy = plain(run, data, chosen.steps, NOISE)
                found.append([differences(oracle, fast[run.run_id]), differences(oracle, noisy)])
            print(row(variant, rate, found), flush=True)


if __name__ == "__main__":
    main()
