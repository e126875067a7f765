"""Streams of candidates under the gate and under a greedy rule, and nights under the drift test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lr_sweep.analysis.statistics.comparisons.sequential import (
    ALARM,
    NUM_SEEDS,
    conclude,
    drift,
    next_level,
)
from lr_sweep.analysis.statistics.selection.best import Bools, Floats, Ints
from lr_sweep.benchmarks.gating import SKEWED, Rows, percent, two_modes

NUM_CANDIDATES = 200
BETTER, WORSE = 0.1, 0.45
"""Shares of candidates that gain 1.5 standard deviations of a run, and that lose one; the others are equal."""
GAIN, LOSS = 1.5, 1.0
Run = Callable[[np.random.Generator, tuple[int, ...]], Floats]
"""Draws runs with a mean of 0 and a standard deviation of 1."""


def _modes(share: float) -> Run:
    deviation = (0.09 + 25 * share * (1 - share)) ** 0.5
    return lambda rng, shape: (two_modes(share)(rng, shape) + 5 * share) / deviation


RUNS: dict[str, tuple[Run, float, float]] = {
    "normal": (lambda rng, shape: rng.standard_normal(shape), 1.0, 1.0),
    "t3": (lambda rng, shape: rng.standard_t(3, shape) / 3**0.5, 1.0, 1.0),
    "skewed": (lambda rng, shape: 1 - rng.exponential(1, shape), 1.0, 1.0),
    "two modes, 30%": (_modes(0.3), 1.0, 1.0),
    "two modes, 50%": (_modes(0.5), 1.0, 1.0),
    "unequal, candidates noisy": (lambda rng, shape: rng.standard_normal(shape), 0.1, 1.0),
    "unequal, candidates quiet": (lambda rng, shape: rng.standard_normal(shape), 1.0, 0.1),
    "skewed and unequal": (lambda rng, shape: 1 - rng.exponential(1, shape), 0.3, 1.0),
    "lognormal": (SKEWED["lognormal"], 1.0, 1.0),
    "lognormal and unequal": (SKEWED["lognormal"], 0.3, 1.0),
}
"""Noise, and the standard deviation of a baseline and of a candidate; gains are in those of the noisier one."""


@dataclass(frozen=True)
class Kept:
    """What a rule did with streams; streams x candidates."""

    gains: Floats
    accepted: Bools
    seeds: Ints
    num_stored: int
    """Seeds of a baseline that are trained after each acceptance."""

    @property
    def false(self) -> float:
        """False discovery rate: mean share of accepted candidates without a gain."""
        wrong = (self.accepted & (self.gains <= 0)).sum(-1)
        return float((wrong / np.maximum(self.accepted.sum(-1), 1)).mean())

    def row(self) -> list[str]:
        """Return false discovery rate and power in percent, seeds of an equal candidate, and of all of a stream."""
        power = self.accepted[self.gains > 0].mean() if (self.gains > 0).any() else np.nan
        equal, baselines = (
            self.seeds[self.gains == 0].mean(),
            self.num_stored * (1 + self.accepted.sum(-1)),
        )
        whole = (self.seeds.sum(-1) + baselines).mean()
        return [percent(self.false), percent(float(power)), f"{equal:.1f}", f"{whole:.0f}"]


def streamed(noise: str, number: int, better: float = BETTER) -> Kept:
    """Simulate streams under the gate; after each acceptance the new baseline gets fresh seeds."""
    rng, (draw, of_base, of_candidate) = np.random.default_rng(0), RUNS[noise]
    base = draw(rng, (number, NUM_SEEDS)) * of_base
    num_accepted, rows = np.zeros(number, int), []
    for index in range(NUM_CANDIDATES):
        gains = max(of_base, of_candidate) * drawn_gains(rng, number, better)
        values = draw(rng, (number, NUM_SEEDS)) * of_candidate + gains[:, None]
        fresh = draw(rng, (number, NUM_SEEDS)) * of_base
        level = next_level(index, num_accepted)
        accepted, _, seeds = conclude(base, values, level, NUM_SEEDS)
        rows.append((gains, accepted, seeds))
        num_accepted += accepted
        base = np.where(accepted[:, None], fresh, base)
    gains, accepted, seeds = (np.array(row).T for row in zip(*rows, strict=True))
    return Kept(gains, accepted, seeds, NUM_SEEDS)


def greedy(noise: str, number: int) -> Kept:
    """Simulate streams that keep a candidate whose single run beats the best one."""
    rng, (draw, of_base, of_candidate) = np.random.default_rng(0), RUNS[noise]
    gains = max(of_base, of_candidate) * drawn_gains(rng, (number, NUM_CANDIDATES))
    noises = draw(rng, (number, NUM_CANDIDATES)) * of_candidate
    best, rows = draw(rng, (number,)) * of_base, []
    for gain, of_run in zip(gains.T, noises.T, strict=True):
        accepted = gain + of_run > best
        rows.append(accepted)
        best = np.where(accepted, of_run, best)
    return Kept(gains, np.array(rows).T, np.ones_like(gains, int), 0)


def drawn_gains(
    rng: np.random.Generator, shape: int | tuple[int, ...], better: float = BETTER
) -> Floats:
    """Draw the true gains of candidates, in standard deviations of a run."""
    kind = rng.random(shape)
    return np.where(kind < better, GAIN, np.where(kind < better + WORSE, -LOSS, 0.0))


def stream_table(number: int, _: np.random.Generator) -> Rows:
    """Return a row a noise and rule."""
    yield [
        "noise",
        "rule",
        "false of the accepted, %",
        "gains found, %",
        "seeds of an equal one",
        "of the stream",
    ]
    for noise in RUNS:
        yield [noise, "gate", *streamed(noise, number).row()]
        yield [noise, "one run", *greedy(noise, number).row()]
        yield [noise, "gate, no gains", *streamed(noise, number, better=0.0).row()]


def nights_table(number: int, rng: np.random.Generator) -> Rows:
    """Return a row a noise: false alarms in 1,000 nights, and nights until a loss of 2 deviations is found."""
    yield ["noise", "false alarms in 1,000 nights", "nights until an alarm, mean", "median"]
    for noise in list(RUNS)[:5]:
        draw = RUNS[noise][0]
        alarms, delays = [], []
        for _ in range(number):
            base = draw(rng, (NUM_SEEDS,))
            alarms.append(_num_alarms(base, draw(rng, (1000,))))
            sums = drift(base, draw(rng, (200,)) - 2)
            delays.append(int((sums >= ALARM).argmax()) + 1)
        yield [
            noise,
            f"{np.mean(alarms):.2f}",
            f"{np.mean(delays):.1f}",
            f"{np.median(delays):.0f}",
        ]


def _num_alarms(base: Floats, nights: Floats) -> int:
    """Count alarms, where the sum begins anew after each."""
    number, start = 0, 0
    while (above := drift(base, nights[start:]) >= ALARM).any():
        number, start = number + 1, start + int(above.argmax()) + 1
    return number
