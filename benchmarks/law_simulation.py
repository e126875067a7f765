"""How often the intervals of optima and of laws hold, on curves with a known optimum.

`python -m benchmarks.law_simulation`.

The curves fall from the optimum by 5 to 20 points a squared decade, more on one side, some with a cliff at or above
it; the last four shapes are unlike two half parabolas. A rate is tried by 3 seeds with noise of 0.5 or 2 points.
Prints, in percent, how often an interval has the true value, and how often a law is claimed; then averages, and the
ends, of each shape and over all settings. It takes about 30 minutes of one core.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.rates.laws import fitted
from lr_sweep.analysis.statistics.rates.optimum import Optimum, optimum
from lr_sweep.analysis.statistics.rates.refinement import Curve
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.benchmarks.shared import options, print_table

Shape = Callable[[Floats], Floats]
CLIFFS = (0.0, 0.1, 0.25, 0.4)
"""Decades from the optimum to the cliff above it."""


def _beside_a_cliff(cliff: float) -> Shape:
    return lambda away: np.where(away > cliff, -40, np.where(away < 0, -5.0, -10.0) * away**2)


SHAPES: dict[str, Shape] = {
    "parabola": lambda away: -8 * away**2,
    "asymmetric": lambda away: np.where(away < 0, -5.0, -20.0) * away**2,
    **{f"cliff at {cliff:g}": _beside_a_cliff(cliff) for cliff in CLIFFS},
    "10 times as fast": lambda away: np.where(away < 0, -8.0, -80.0) * np.abs(away),
    "flat": lambda away: -10 * np.log1p(away**2),
    "steepening": lambda away: -8 * (away**2 + away**4),
    "plateau": lambda away: -12 * np.maximum(np.abs(away) - 0.3, 0) ** 2 - away**2,
}
GRIDS = {
    "9 rates, factor 2": (9, math.log10(2)),
    "7 rates, half decades": (7, 0.5),
    "5 rates, decades": (5, 1.0),
    "3 rates, decades": (3, 1.0),
    "4 rates, half decades": (4, 0.5),
    "5 rates, half decades": (5, 0.5),
    "7 rates, thirds": (7, 1 / 3),
    "9 rates, half decades": (9, 0.5),
}
NOISE = (0.5, 2.0)
NUM_SEEDS = 3
SIZES = np.log10(2.0 ** np.arange(4))
SLOPES = (0.0, -0.5, -1.0)
OF_LAWS = (f"{share} {slope:g}" for slope in SLOPES for share in ("slope", "law of"))
COLUMNS = ("optimum", *OF_LAWS)
FIT_RATES, FIT_STEP = 5, 0.5
"""A grid with fewer rates, or with more decades between them, leaves a fit little to decide."""


class Grid(NamedTuple):
    """Learning rates, as log10, and the noise of a run at each."""

    log_rates: Floats
    noise: float

    def tried(self, shape: Shape, top: float, rng: np.random.Generator) -> Optimum:
        """Estimate the optimum of one cell."""
        means = shape(self.log_rates - top)[:, None]
        values = means + self.noise * rng.standard_normal((len(means), NUM_SEEDS))
        counts = np.full(len(means), NUM_SEEDS)
        return optimum(Curve(self.log_rates, values.mean(1), values.var(1, ddof=1), counts))


def share(found: list[bool]) -> float:
    """Return how many are true; NaN where a coarse grid gives no law, and so nothing."""
    return sum(found) / len(found) if found else math.nan


def covered(grid: Grid, shape: str, number: int, rng: np.random.Generator) -> float:
    """Return how often the interval of an optimum has it, of those that have an interval."""
    held = []
    half = (grid.log_rates[1] - grid.log_rates[0]) / 2
    for top in rng.uniform(-half, half, number):
        found = grid.tried(SHAPES[shape], top, rng)
        held += [found.low <= top <= found.high] if math.isfinite(found.low) else []
    return share(held)


def laws(
    grid: Grid, shape: str, slope: float, number: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return how often the interval of a slope has it, and how often it does not have 0."""
    held, claimed = [], []
    for start in rng.uniform(-0.25, 0.25, number):
        tops = start + (SIZES - SIZES.mean()) * slope
        found = np.array([grid.tried(SHAPES[shape], top, rng)[:4] for top in tops])
        if np.isfinite(found).all():
            fit = fitted(SIZES, found[:, 0], found[:, 3], SIZES[-1])
            held.append(abs(fit.slope - slope) <= fit.half_width)
            claimed.append(abs(fit.slope) > fit.half_width)
    return share(held), share(claimed)


def measured(grid: Grid, shape: str, number: int, rng: np.random.Generator) -> list[float]:
    """Return the shares of one setting: `COLUMNS`."""
    row = [covered(grid, shape, number, rng)]
    for slope in SLOPES:
        times = number if slope == 0 else max(1, number // 4)  # a false law is rare
        row += laws(grid, shape, slope, times, rng)
    return row


def rows(number: int, rng: np.random.Generator) -> Iterator[list[object]]:
    """Yield a row a setting: its shape, its grid, and shares in percent."""
    yield ["shape", "grid", "noise", "fine", *COLUMNS]
    for shape, (name, (rates, step)), noise in product(SHAPES, GRIDS.items(), NOISE):
        grid = Grid(step * (np.arange(rates) - rates // 2), noise)
        is_fine = rates >= FIT_RATES and step <= FIT_STEP
        shares = measured(grid, shape, number, rng)
        yield [shape, name, noise, is_fine, *(100 * share for share in shares)]


def summary(table: pd.DataFrame) -> str:
    """Return the mean and the ends over settings, by shape and of all."""
    ends = ["mean", "min", "max"]
    by_shape = table.groupby("shape", sort=False)[["optimum", "law of 0"]].agg(ends)
    over_all = table[[*COLUMNS]].agg(ends).T
    return f"{by_shape.round(1).to_string()}\n\n{over_all.round(1).to_string()}"


def main() -> None:
    """Print the tables."""
    number = options(__doc__, number=300).number
    header, *shares = print_table(rows(number, np.random.default_rng(0)))
    table = pd.DataFrame(shares, columns=list(header))
    print(f"\nFine grids, in percent:\n{summary(table[table['fine']])}")
    print(f"\nAll grids, in percent:\n{summary(table)}")


if __name__ == "__main__":
    main()
