"""Candidates under the gate, and nights under the drift test: `python -m benchmarks.gating`.

Prints the numbers of docs/statistics.md on streams of candidates, under the gate and under a rule that
keeps what beats the best single run; on single candidates; and those of docs/gate.md on nights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lr_sweep.analysis.statistics.comparisons.sequential import (
    ALARM,
    FALSE_ACCEPT,
    NUM_SEEDS,
    Concluded,
    conclude,
    drift,
    next_level,
)
from lr_sweep.analysis.statistics.selection.best import Bools, Floats
from lr_sweep.benchmarks.shared import options, percent, print_table
from lr_sweep.benchmarks.simulated_studies import DEPTH, WIDTH, Draw, normal, two_modes

NUM_CANDIDATES = 200
BETTER, WORSE = 0.1, 0.45
"""Shares of candidates that gain 1.5 standard deviations of a run, and that lose one; the others are equal."""
GAIN, LOSS = 1.5, 1.0
SEEDS = (20, 30)
"""Seeds of a baseline, and of a candidate that is accepted."""


def t3(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw noise of Student's t with 3 degrees of freedom."""
    return rng.standard_t(3, shape) / 3**0.5


def exponential(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw noise with rare bad values, of skewness -2."""
    return 1 - rng.exponential(1, shape)


def lognormal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw noise with rare bad values, of skewness -6.2."""
    return (np.sqrt(np.e) - rng.lognormal(0, 1, shape)) / np.sqrt(np.e * (np.e - 1))


def scaled(draw: Draw, scale: float) -> Draw:
    """Return noise of another deviation."""
    return lambda rng, shape: draw(rng, shape) * scale


def failing(share: float) -> Draw:
    """Return noise of runs of which a share fails, with a mean of 0."""
    draw = two_modes(share)
    return lambda rng, shape: draw(rng, shape) + DEPTH * share


def modes(share: float) -> Draw:
    """Return noise of two modes with a mean of 0 and a deviation of 1."""
    draw, deviation = failing(share), (WIDTH**2 + DEPTH**2 * share * (1 - share)) ** 0.5
    return lambda rng, shape: draw(rng, shape) / deviation


RUNS: dict[str, tuple[Draw, Draw]] = {
    "normal": (normal, normal),
    "t3": (t3, t3),
    "exponential": (exponential, exponential),
    "two modes, 30%": (modes(0.3), modes(0.3)),
    "two modes, 50%": (modes(0.5), modes(0.5)),
    "unequal, candidates noisy": (scaled(normal, 0.1), normal),
    "unequal, candidates quiet": (normal, scaled(normal, 0.1)),
    "exponential and unequal": (scaled(exponential, 0.3), exponential),
    "lognormal": (lognormal, lognormal),
    "lognormal and unequal": (scaled(lognormal, 0.3), lognormal),
}
"""Noise of a baseline and of a candidate; the deviation of the noisier one is 1."""
RARE_FAILURES = "candidate fails in 5%"
SINGLE = RUNS | {RARE_FAILURES: (scaled(normal, WIDTH), failing(0.05))}
NIGHTS = tuple(RUNS)[:5]


@dataclass(frozen=True)
class Kept:
    """Outcomes of a rule over streams: arrays of streams x candidates."""

    gains: Floats
    accepted: Bools

    @property
    def false(self) -> float:
        """Mean share of accepted candidates without a gain: the false discovery rate."""
        wrong = (self.accepted & (self.gains <= 0)).sum(-1)
        return float((wrong / np.maximum(self.accepted.sum(-1), 1)).mean())

    def row(self) -> list[str]:
        """Return the false discovery rate, and the share of gains that are found, in percent."""
        has_gain = self.gains > 0
        power = self.accepted[has_gain].mean() if has_gain.any() else np.nan
        return [percent(self.false), percent(float(power))]


def streamed(noise: str, number: int, better: float = BETTER) -> Kept:
    """Simulate streams under the gate; after each acceptance the new baseline gets fresh seeds."""
    rng, (of_base, of_candidate) = np.random.default_rng(0), RUNS[noise]
    base = of_base(rng, (number, NUM_SEEDS))
    num_accepted, rows = np.zeros(number, int), []
    for index in range(NUM_CANDIDATES):
        gains = drawn_gains(rng, (number,), better)
        values = of_candidate(rng, (number, NUM_SEEDS)) + gains[:, None]
        fresh = of_base(rng, (number, NUM_SEEDS))
        level = next_level(index, num_accepted)
        accepted = conclude(base, values, level, NUM_SEEDS).is_accepted
        rows.append((gains, accepted))
        num_accepted += accepted
        base = np.where(accepted[:, None], fresh, base)
    gains, accepted = (np.array(row).T for row in zip(*rows, strict=True))
    return Kept(gains, accepted)


def greedy(noise: str, number: int) -> Kept:
    """Simulate streams that keep a candidate whose single run beats the best one."""
    rng, (of_base, of_candidate) = np.random.default_rng(0), RUNS[noise]
    gains = drawn_gains(rng, (number, NUM_CANDIDATES))
    noises = of_candidate(rng, (number, NUM_CANDIDATES))
    best, rows = of_base(rng, (number,)), []
    for gain, of_run in zip(gains.T, noises.T, strict=True):
        accepted = gain + of_run > best
        rows.append(accepted)
        best = np.where(accepted, of_run, best)  # the baseline of later gains is this candidate
    return Kept(gains, np.array(rows).T)


def drawn_gains(rng: np.random.Generator, shape: tuple[int, ...], better: float = BETTER) -> Floats:
    """Draw the true gains of candidates, in standard deviations of a run."""
    kind = rng.random(shape)
    return np.where(kind < better, GAIN, np.where(kind < better + WORSE, -LOSS, 0.0))


def stream_rows(number: int) -> Iterator[list[str]]:
    """Yield a row a noise and rule."""
    yield ["noise", "rule", "false of the accepted, %", "gains found, %"]
    for noise in RUNS:
        yield [noise, "gate", *streamed(noise, number).row()]
        yield [noise, "one run", *greedy(noise, number).row()]
        yield [noise, "gate, no gains", *streamed(noise, number, better=0.0).row()]


def night_rows(number: int) -> Iterator[list[str]]:
    """Yield a row a noise: false alarms in 1,000 nights, and nights until a loss of 2 deviations is found."""
    rng = np.random.default_rng(0)
    yield ["noise", "false alarms in 1,000 nights", "nights until an alarm, mean"]
    for noise in NIGHTS:
        draw, _ = RUNS[noise]
        alarms, delays = [], []
        for _ in range(number):
            base = draw(rng, (NUM_SEEDS,))
            alarms.append(_num_alarms(base, draw(rng, (1000,))))
            sums = drift(base, draw(rng, (200,)) - 2)
            delays.append(int((sums >= ALARM).argmax()) + 1)
        yield [noise, f"{np.mean(alarms):.2f}", f"{np.mean(delays):.1f}"]


def _num_alarms(base: Floats, nights: Floats) -> int:
    """Count alarms, where the sum begins anew after each."""
    number, start = 0, 0
    while (above := drift(base, nights[start:]) >= ALARM).any():
        number, start = number + 1, start + int(above.argmax()) + 1
    return number


def gating(noise: str, gain: float, seeds: int, number: int, rng: np.random.Generator) -> Concluded:
    """Simulate single candidates with a gain, each with a baseline of its own."""
    base, candidates = (draw(rng, (number, seeds)) for draw in SINGLE[noise])
    return conclude(base, candidates + gain, FALSE_ACCEPT, seeds)


def single_rows(number: int) -> Iterator[list[str]]:
    """Yield a row a noise: single candidates without a gain that are accepted, and the seeds that each takes."""
    rng = np.random.default_rng(0)
    yield ["accepted, % (seeds): noise", *(f"{seeds} seeds of each" for seeds in SEEDS)]
    for noise in SINGLE:
        answers = [gating(noise, 0.0, seeds, number, rng) for seeds in SEEDS]
        texts = [f"{percent(a.is_accepted.mean())} ({a.num_seeds.mean():.1f})" for a in answers]
        yield [noise, *texts]


TABLES = {"streams": stream_rows, "nights": night_rows, "single": single_rows}


def main() -> None:
    """Print the tables."""
    given = options(__doc__, studies=200, table=TABLES)
    for name in given.table:
        print_table(TABLES[name](given.studies))
        print()


if __name__ == "__main__":
    main()
