"""How often 95% intervals hold the truth, on simulated grids: `python -m benchmarks.interval_coverage`.

A grid has 9 learning rates. A run's accuracy is a curve over the learning rate, a deviation of its seed (shared by all
rates), one of the run, and one of each split. The truth is what tuning on so many seeds and testing there gives on
average, from 40,000 other grids. Numbers depend on the seed alone, not on the machine.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from lr_sweep.analysis.statistics.comparisons.uncertainty import (
    selection_interval,
    t_interval,
    tuned_test_accuracy,
)
from lr_sweep.analysis.statistics.selection.best import Floats

RATE_STEPS = np.arange(9) - 5
"""Distance from the best learning rate, in steps of the grid (half a decade)."""
SHAPES = {
    "sharp peak": -0.04 * RATE_STEPS**2.0,
    "peak": -0.01 * RATE_STEPS**2.0,
    "broad peak": -0.0025 * RATE_STEPS**2.0,
    "slope and cliff": np.where(RATE_STEPS > 0, -0.30, -0.003 * np.abs(RATE_STEPS)),
    "flat top": np.minimum(0.0, -0.05 * (np.abs(RATE_STEPS) - 2)),
}
"""Mean test accuracy less that at the best learning rate."""
LIMITS = {"no optimum": 0.0 * RATE_STEPS}
"""Beyond what real sweeps look like."""
NOISES = {"0.6": (0.3, 0.4, 0.3), "1.2": (0.5, 1.0, 0.4), "2.0": (1.0, 1.7, 0.4)}
"""Standard deviations in points (seed, run, split); the name is that of all together."""
NUM_SEEDS = (3, 5, 10)
BEST_ACCURACY = 0.6
NUM_TRUTH = 40_000


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Percent of simulated grids whose interval holds the truth, and means in points."""

    sem: float
    """Mean ± 1.96 SEM at the chosen learning rate."""
    percentile: float
    t: float
    selection: float
    width_t: float
    width_selection: float
    optimism: float
    """How far the truth is above the mean at the truly best learning rate."""


def simulate(
    shape: Floats,
    noise: tuple[float, float, float],
    num_seeds: int,
    size: int,
    lost: float,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Draw validation and test accuracies, grids x seeds x learning rates.

    Args:
        shape: an entry of `SHAPES`.
        noise: an entry of `NOISES`.
        num_seeds: of each grid.
        size: number of grids.
        lost: share of runs that lose 10 points.
        rng: draws everything.
    """
    by_seed, by_run, by_split = (sd / 100 for sd in noise)
    full = (size, num_seeds, len(shape))
    shared = (
        BEST_ACCURACY
        + shape
        + rng.normal(0, by_seed, (size, num_seeds, 1))
        + rng.normal(0, by_run, full)
    )
    shared -= 0.10 * (rng.random(full) < lost)
    return shared + rng.normal(0, by_split, full), shared + rng.normal(0, by_split, full)


def coverage(
    shape: Floats,
    noise: tuple[float, float, float],
    num_seeds: int,
    simulations: int,
    seed: int,
    lost: float = 0.0,
) -> Coverage:
    """Simulate, and count."""
    rng = np.random.default_rng(seed)
    whole = np.ones((1, num_seeds))
    truth = _truth(*simulate(shape, noise, num_seeds, NUM_TRUTH, lost, rng))
    held, widths = np.zeros(4), np.zeros(2)
    for validation, test in zip(
        *simulate(shape, noise, num_seeds, simulations, lost, rng), strict=True
    ):
        chosen = test[:, validation.mean(axis=0).argmax()]
        through, fixed = selection_interval(validation, test, rng), t_interval(chosen)
        sem = chosen.std(ddof=1) / np.sqrt(num_seeds)
        drawn = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=400).astype(
            float
        )
        low, high = np.quantile(tuned_test_accuracy(validation, test, drawn), [0.025, 0.975])
        held += [
            abs(tuned_test_accuracy(validation, test, whole)[0] - truth) <= 1.96 * sem,
            low <= truth <= high,
            fixed.low <= truth <= fixed.high,
            through.low <= truth <= through.high,
        ]
        widths += [fixed.high - fixed.low, through.high - through.low]
    optimism = 100 * (truth - BEST_ACCURACY + 0.10 * lost)
    shares, means = (100 * held / simulations).tolist(), (100 * widths / simulations).tolist()
    return Coverage(
        **dict(zip(["sem", "percentile", "t", "selection"], shares, strict=True)),
        **dict(zip(["width_t", "width_selection"], means, strict=True)),
        optimism=float(optimism),
    )


def main() -> None:
    """Print the coverage that docs/statistics.md sums up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    header = [
        "curve",
        "sd of a run",
        "seeds",
        "± 1.96 SEM",
        "percentile",
        "t, fixed rate",
        "through selection",
    ]
    print(f"| {' | '.join([*header, 'widths', 'optimism'])} |\n{'|---' * 9}|")
    grids = [(name, shape, 0.0) for name, shape in (SHAPES | LIMITS).items()]
    for name, shape, lost in [*grids, ("peak, 1 run in 10 loses 10 points", SHAPES["peak"], 0.1)]:
        for sd, noise in NOISES.items():
            for num_seeds in NUM_SEEDS:
                found = coverage(shape, noise, num_seeds, args.simulations, args.seed, lost)
                print(_row(name, sd, num_seeds, found), flush=True)


def _truth(validation: Floats, test: Floats) -> float:
    chosen = validation.mean(axis=1).argmax(axis=1)
    return float(test.mean(axis=1)[np.arange(len(chosen)), chosen].mean())


def _row(name: str, sd: str, num_seeds: int, found: Coverage) -> str:
    covered = [f"{share:.1f}" for share in (found.sem, found.percentile, found.t, found.selection)]
    widths = f"{found.width_t:.1f}, {found.width_selection:.1f}"
    return (
        f"| {' | '.join([name, sd, str(num_seeds), *covered, widths, f'{found.optimism:+.2f}'])} |"
    )


if __name__ == "__main__":
    main()
