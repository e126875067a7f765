"""How often claims of speed are right: `python -m benchmarks.target_simulation`.

Losses fall as a power of the steps. A run's loss is off by one amount throughout, and each of its evaluations by
another. Two variants differ by a known factor of the steps, at each of five learning rates or at one, and are compared
by the report's own functions. Prints the table of docs/statistics.md.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr

from lr_sweep.analysis.statistics.comparisons.decide import Pairs
from lr_sweep.analysis.statistics.comparisons.noise import cell_noise, welch
from lr_sweep.analysis.statistics.comparisons.pairs import LEVEL
from lr_sweep.analysis.statistics.comparisons.target import CHOSEN_LAST, crossings, speedups
from lr_sweep.analysis.statistics.selection.best import Bools, Floats
from lr_sweep.benchmarks.drawn_variants import windows_of
from lr_sweep.benchmarks.verdict_simulation import compared

NUMBER, BUDGET, POWER, SLOPE = 4000, 2000, 0.3, 0.3
"""Tables of an entry, steps of a run, the power by which losses fall, and what they fall in a unit of log steps."""
RATE_COSTS = 0.1 * ((np.arange(5) - 1.7) ** 2 - 0.09)
"""Logarithms of how many times as many steps each learning rate takes as the best one, which is the third."""
SPEEDS, ONE_RATE, PAIR = (1.0, 1.05, 1.3), slice(2, 3), Pairs.all_of([0, 0])


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


def drawn(setting: Setting, speed: float, rng: np.random.Generator) -> tuple[Floats, Bools]:
    """Return the logarithms of steps, tables x variants x rates x seeds, and which rates do not reach the target."""
    values, short = (
        np.empty((NUMBER, 2, len(RATE_COSTS), setting.seeds)),
        np.empty((NUMBER, 2, len(RATE_COSTS)), bool),
    )
    for variant, (slower, budget) in enumerate(((1.0, setting.budget), (speed, 1.0))):
        steps = np.arange(1, setting.evaluations + 1) * BUDGET / setting.evaluations
        steps = steps[steps <= budget * BUDGET]
        for rate, cost in enumerate(RATE_COSTS):
            mean = (
                SLOPE
                / POWER
                * (1 - (steps / (setting.reached * BUDGET * slower * np.exp(cost))) ** -POWER)
            )
            runs = rng.normal(0, setting.noise[variant], (NUMBER, 1, setting.seeds))
            gaps = (
                mean[:, None]
                + runs
                + rng.normal(0, setting.eval_noise, (NUMBER, len(steps), setting.seeds))
            )
            for table, each in enumerate(gaps):
                found = crossings(
                    np.log(steps), each, np.ones(setting.seeds, bool), np.log(steps[-1])
                )
                values[table, variant, rate], short[table, variant, rate] = found
    return values, short


def judged(values: Floats, short: Bools, true: dict[str, float], budgets: Floats) -> list[float]:
    """Return the shares of tables whose intervals hold what is true, and with each variant called faster."""
    score, counts = values.mean(-1) + CHOSEN_LAST * short, np.full(2, float(values.shape[-1]))
    chosen, pair = score.argmin(-1), (PAIR.first, PAIR.second)
    found = windows_of(-values, chosen)  # of logarithms less is better
    t, dof = compared(found, cell_noise(found), PAIR, score - score.min(-1, keepdims=True))
    certain, ends = (
        (2 * stdtr(dof, -np.abs(t)) < LEVEL)[:, 0],
        np.take_along_axis(short, chosen[..., None], -1)[..., 0],
    )
    found[:, :, 1:] = np.nan  # intervals have the noise of the chosen rate alone
    noise, limits = cell_noise(found), np.where(ends, np.log(budgets), np.inf)
    sem, dof = welch(noise, counts, *pair)
    sizes = speedups(-found[:, :, 0].mean(-1), limits, noise.variance / counts, sem, dof, pair)
    held = [
        ((sizes[f"{name}_low"] <= size) & (size <= sizes[f"{name}_high"])).mean()
        for name, size in true.items()
    ]
    return [
        *held,
        *((certain & (sign * t[:, 0] > 0) & ~ends[:, at]).mean() for at, sign in ((0, 1), (1, -1))),
    ]


def main() -> None:
    """Print a row a setting, speed and way of choosing the rate; an argument is part of the settings' names."""
    for name, setting in SETTINGS.items():
        for speed in SPEEDS if all(text in name for text in sys.argv[1:]) else ():
            values, short = drawn(setting, speed, np.random.default_rng(0))
            true = {"ratio": speed, "saved": setting.reached * BUDGET * (speed - 1)}
            for rates, part in (("own", slice(None)), ("one", ONE_RATE)):
                shares = judged(
                    values[:, :, part],
                    short[:, :, part],
                    true,
                    BUDGET * np.array([setting.budget, 1.0]),
                )
                print(
                    f"| {name} | {rates} | {speed} |",
                    " | ".join(f"{100 * share:.1f}" for share in shares),
                    flush=True,
                )


if __name__ == "__main__":
    main()
