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
from lr_sweep.benchmarks.noises import GATED, SKEWED, Draw, normal, standardised_modes
from lr_sweep.benchmarks.shared import options, percent, print_table

NUM_CANDIDATES = 200
BETTER, WORSE = 0.1, 0.45
"""Shares of candidates that gain 1.5 standard deviations of a run, and that lose one; the others are equal."""
GAIN, LOSS = 1.5, 1.0
RUNS: dict[str, tuple[Draw, float, float]] = {
    "normal": (normal, 1.0, 1.0),
    "t3": (lambda rng, shape: rng.standard_t(3, shape) / 3**0.5, 1.0, 1.0),
    "skewed": (SKEWED["exponential"], 1.0, 1.0),
    "two modes, 30%": (standardised_modes(0.3), 1.0, 1.0),
    "two modes, 50%": (standardised_modes(0.5), 1.0, 1.0),
    "unequal, candidates noisy": (normal, 0.1, 1.0),
    "unequal, candidates quiet": (normal, 1.0, 0.1),
    "skewed and unequal": (SKEWED["exponential"], 0.3, 1.0),
    "lognormal": (SKEWED["lognormal"], 1.0, 1.0),
    "lognormal and unequal": (SKEWED["lognormal"], 0.3, 1.0),
}
"""Noise, and the standard deviation of a baseline and of a candidate; gains are in those of the noisier one."""
NIGHTS = tuple(RUNS)[:5]
SEED_LIMITS = ((20, 20), (20, 30), (30, 20), (30, 30))
"""Seeds of the baseline, and those of a candidate that is accepted."""


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
    rng, (draw, of_base, of_candidate) = np.random.default_rng(0), RUNS[noise]
    base = draw(rng, (number, NUM_SEEDS)) * of_base
    num_accepted, rows = np.zeros(number, int), []
    for index in range(NUM_CANDIDATES):
        gains = max(of_base, of_candidate) * drawn_gains(rng, (number,), better)
        values = draw(rng, (number, NUM_SEEDS)) * of_candidate + gains[:, None]
        fresh = draw(rng, (number, NUM_SEEDS)) * of_base
        level = next_level(index, num_accepted)
        accepted = conclude(base, values, level, NUM_SEEDS).is_accepted
        rows.append((gains, accepted))
        num_accepted += accepted
        base = np.where(accepted[:, None], fresh, base)
    gains, accepted = (np.array(row).T for row in zip(*rows, strict=True))
    return Kept(gains, accepted)


def greedy(noise: str, number: int) -> Kept:
    """Simulate streams that keep a candidate whose single run beats the best one."""
    rng, (draw, of_base, of_candidate) = np.random.default_rng(0), RUNS[noise]
    gains = max(of_base, of_candidate) * drawn_gains(rng, (number, NUM_CANDIDATES))
    noises = draw(rng, (number, NUM_CANDIDATES)) * of_candidate
    best, rows = draw(rng, (number,)) * of_base, []
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
        draw = RUNS[noise][0]
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


def gating(
    noise: str, gain: float, num_stored: int, max_seeds: int, number: int, rng: np.random.Generator
) -> Concluded:
    """Simulate single candidates with a gain, each with a baseline of its own."""
    most = max(num_stored, max_seeds)
    values = GATED[noise](rng, (number, 2, 1, most))[:, :, 0]
    base, candidates = values[:, 0, :num_stored], values[:, 1, :max_seeds] + gain
    return conclude(base, candidates, FALSE_ACCEPT, max_seeds)


def single_rows(number: int) -> Iterator[list[str]]:
    """Yield a row a noise and gain: single candidates that are accepted, and the seeds that each takes."""
    rng = np.random.default_rng(0)
    columns = [f"baseline of {stored}, {most} seeds" for stored, most in SEED_LIMITS]
    yield ["accepted, % (seeds): noise", "gain, sd", *columns]
    gains = [("normal", gain) for gain in (0.5, 1.0, 1.5, 2.0, 3.0)]
    for noise, gain in [*((noise, 0.0) for noise in GATED), *gains]:
        answers = [gating(noise, gain, *limits, number, rng) for limits in SEED_LIMITS]
        cells = [
            f"{percent(answer.is_accepted.mean())} ({answer.num_seeds.mean():.1f})"
            for answer in answers
        ]
        yield [noise, f"{gain:g}", *cells]


TABLES = {"streams": stream_rows, "nights": night_rows, "single": single_rows}


def main() -> None:
    """Print the tables."""
    given = options(__doc__, studies=200, table=TABLES)
    for name in given.table:
        print_table(TABLES[name](given.studies))
        print()


if __name__ == "__main__":
    main()
