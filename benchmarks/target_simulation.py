"""How often claims of speed are right: `python -m benchmarks.target_simulation`.

Losses fall as a power of the steps. A run's loss is off by one amount throughout, and each of its evaluations by
another. Two variants differ by a known factor of the steps, at each of five learning rates, and are compared by the
report's own functions. Prints the table of docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lr_sweep.analysis.statistics.comparisons.noise import Noise
from lr_sweep.analysis.statistics.comparisons.target import (
    LEVEL,
    crossings,
    log_ratios,
)
from lr_sweep.analysis.statistics.selection.best import Bools, Floats
from lr_sweep.benchmarks.shared import options, percent, print_table

BUDGET = 2000
"""Steps of a run."""
POWER = 0.3
"""Power by which losses fall."""
SLOPE = 0.3
"""The fall of losses in a unit of log steps."""
RATE_COSTS = 0.1 * ((np.arange(5) - 1.7) ** 2 - 0.09)
"""Logarithms of how many times as many steps each learning rate takes as the best one, which is the third."""
SPEEDS = (1.0, 1.05, 1.3)
LATE = 100.0
"""Added to the logarithms of a rate that does not reach the target: it is chosen last."""


class Setting(NamedTuple):
    """Runs that are drawn; noise as standard deviations of losses; `reached` and `budget` as shares of `BUDGET`."""

    seeds: int = 5
    noise: tuple[float, float] = (0.01, 0.01)
    eval_noise: float = 0.01
    evaluations: int = 40
    reached: float = 0.6
    budget: float = 1.0


SETTINGS = {
    "3 seeds": Setting(seeds=3),
    "5 seeds": Setting(),
    "10 seeds": Setting(seeds=10),
    "evaluations 5 times as noisy": Setting(eval_noise=0.05),
    "10 quiet evaluations": Setting(eval_noise=0.002, evaluations=10),
    "one variant 5 times as noisy, 3 seeds": Setting(noise=(0.03, 0.006), seeds=3),
    "the same, 10 seeds": Setting(noise=(0.03, 0.006), seeds=10),
    "reached at 97% of the budget": Setting(reached=0.97),
    "the same, 3 times as noisy": Setting(reached=0.97, noise=(0.03, 0.03)),
    "only one budget ends there": Setting(reached=0.72, budget=0.75, noise=(0.03, 0.03)),
}


def drawn(
    setting: Setting, speed: float, number: int, rng: np.random.Generator
) -> tuple[Floats, Bools]:
    """Return the logarithms of steps, tables x variants x rates x seeds, and which rates do not reach the target."""
    num_rates = len(RATE_COSTS)
    values = np.empty((number, 2, num_rates, setting.seeds))
    short = np.empty((number, 2, num_rates), bool)
    complete = np.ones(setting.seeds, bool)
    for variant, (slower, budget) in enumerate(((1.0, setting.budget), (speed, 1.0))):
        steps = np.arange(1, setting.evaluations + 1) * BUDGET / setting.evaluations
        steps = steps[steps <= budget * BUDGET]
        for rate, cost in enumerate(RATE_COSTS):
            there = setting.reached * BUDGET * slower * np.exp(cost)
            mean = SLOPE / POWER * (1 - (steps / there) ** -POWER)
            runs = rng.normal(0, setting.noise[variant], (number, 1, setting.seeds))
            evaluations = rng.normal(0, setting.eval_noise, (number, len(steps), setting.seeds))
            for table, gaps in enumerate(mean[:, None] + runs + evaluations):
                crossed, is_short = crossings(np.log(steps), gaps, complete, np.log(steps[-1]))
                values[table, variant, rate] = crossed
                short[table, variant, rate] = is_short
    return values, short


def judged(values: Floats, short: Bools, speed: float) -> list[float]:
    """Return the share of intervals that hold the true ratio of steps, and of tables with each variant called faster.

    A table has an interval if both variants reach the target.
    """
    chosen = (values.mean(-1) + LATE * short).argmin(-1)[..., None]
    runs = np.take_along_axis(values, chosen[..., None], 2)[:, :, 0]  # tables x variants x seeds
    is_short = np.take_along_axis(short, chosen, 2)[..., 0]
    counts = np.full(runs.shape[:2], float(runs.shape[-1]))
    noise = Noise(runs.var(-1, ddof=1), counts - 1)
    log_steps = runs.mean(-1)
    half, p = log_ratios(log_steps, noise, counts, np.array([0]), np.array([1]))
    has_interval = ~is_short.any(-1)
    off = np.abs(log_steps[:, 1] - log_steps[:, 0] - np.log(speed))
    held = (off <= half[:, 0])[has_interval]
    is_first = log_steps[:, 0] < log_steps[:, 1]
    certain = p[:, 0] < LEVEL
    first = certain & is_first & ~is_short[:, 0]
    second = certain & ~is_first & ~is_short[:, 1]
    return [float(share) for share in (held.mean(), first.mean(), second.mean())]


def rows(number: int) -> Iterator[list[str]]:
    """Yield a row a setting and speed."""
    yield ["setting", "speed", "ratio right, %", "first is faster, %", "second is faster, %"]
    for name, setting in SETTINGS.items():
        for speed in SPEEDS:
            values, short = drawn(setting, speed, number, np.random.default_rng(0))
            shares = judged(values, short, speed)
            yield [name, f"{speed}", *map(percent, shares)]


if __name__ == "__main__":
    print_table(rows(options(__doc__, number=4000).number))
