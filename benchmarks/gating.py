"""Noise of simulated runs, and the gate under it.

python -m benchmarks.gating [--stream]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from lr_sweep.analysis.statistics.comparisons.sequential import (
    FALSE_ACCEPT,
    Concluded,
    conclude,
)
from lr_sweep.analysis.statistics.selection.best import Floats

Rows = Iterator[list[str]]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]
"""Draws noise of a shape that ends with rates x seeds, in standard deviations, or with two modes."""


def two_modes(share: float, of_seed: bool = False) -> Draw:
    """Return noise of runs that lose 5 with a probability, and differ by 0.3 otherwise.

    `of_seed`: a seed of a cell loses it at all rates, or at none.
    """

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        lost = rng.random((*shape[:-2], 1, shape[-1]) if of_seed else shape) < share
        return 0.3 * rng.standard_normal(shape) - 5.0 * lost

    return draw


NOISES: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "t4": lambda rng, shape: rng.standard_t(4, shape) / np.sqrt(2),
    "skewed": lambda rng, shape: 1 - rng.exponential(1, shape),
    "unequal": lambda rng, shape: rng.standard_normal(shape) * ratios(shape[2])[:, None, None],
    "two modes, 30%": two_modes(0.3),
    "two modes, 50%": two_modes(0.5),
    "two modes of the seed, 30%": two_modes(0.3, of_seed=True),
    "two modes of the seed, 50%": two_modes(0.5, of_seed=True),
}


def ratios(num_variants: int) -> Floats:
    """Return standard deviations of variants, tenfold from the quietest to the noisiest."""
    return np.geomspace(0.1, 1.0, num_variants)


def _second_fails(share: float, others: float = 1.0) -> Draw:
    """Return noise of variants of some deviation, but of a second one with two modes and the same mean."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        found = others * rng.standard_normal(shape)
        found[:, :, 1] = two_modes(share)(rng, shape)[:, :, 1] + 5.0 * share
        return found

    return draw


SKEWED: dict[str, Draw] = {
    "exponential": NOISES["skewed"],
    "gamma(2)": lambda rng, shape: (2 - rng.gamma(2, 1, shape)) / np.sqrt(2),
    "lognormal": lambda rng, shape: (
        (np.sqrt(np.e) - rng.lognormal(0, 1, shape)) / np.sqrt(np.e * (np.e - 1))
    ),
}
"""Noise with rare bad values, of deviation 1; their skewness is -2, -1.4 and -6.2."""


def _baseline_quieter(draw: Draw, ratio: float) -> Draw:
    """Return noise of a candidate, and that of a baseline with a share of its deviation."""
    return lambda rng, shape: draw(rng, shape) * np.array([ratio, 1.0])[:, None, None]


def _failing(*shares: float) -> dict[str, Draw]:
    """Return noise of which the second variant fails in a share of its runs, beside a noisy and a quiet first one."""
    quiet = ", the first is quiet"
    return {
        f"second alone fails in {share:.0%}{quiet if others < 1 else ''}": _second_fails(
            share, others
        )
        for others, share in product((1.0, 0.3), shares)
    }


FAILING = _failing(0.15, 0.3)
GATED = (
    NOISES
    | {"unequal, candidate quiet": lambda rng, shape: NOISES["unequal"](rng, shape)[:, :, ::-1]}
    | _failing(0.05, 0.15, 0.3)
    | {
        f"{name}, baseline {ratio:g} of it": _baseline_quieter(draw, ratio)
        for (name, draw), ratio in product(SKEWED.items(), (1.0, 0.5, 0.3, 0.1))
    }
)
"""Noise of a baseline and a candidate, or of variants.

Rare good values of a baseline that is noisier than the candidate are the last ones with signs changed.
"""


GATES = ((20, 20), (20, 30), (30, 20), (30, 30))
"""Seeds of the baseline, and those of a candidate that is accepted."""


def gating(
    noise: str, gain: float, num_stored: int, max_seeds: int, number: int, rng: np.random.Generator
) -> Concluded:
    """Simulate candidates with a gain, each with a baseline of its own."""
    most = max(num_stored, max_seeds)
    values = GATED[noise](rng, (number, 1, 2, 1, most)).reshape(number, 2, most)
    base, candidates = values[:, 0, :num_stored], values[:, 1, :max_seeds] + gain
    return conclude(base, candidates, FALSE_ACCEPT, max_seeds)


def gate_table(number: int, rng: np.random.Generator) -> Rows:
    """Return the rows of the table."""
    columns = [f"baseline of {stored}, {most} seeds" for stored, most in GATES]
    yield ["gate, accepted, % (seeds): noise", "gain, sd", *columns]
    gains = [("normal", gain) for gain in (0.5, 1.0, 1.5, 2.0, 3.0)]
    for noise, gain in [*((noise, 0.0) for noise in GATED), *gains]:
        answers = [gating(noise, gain, *seeds, number, rng) for seeds in GATES]
        cells = [
            f"{percent(answer.is_accepted.mean())} ({answer.num_seeds.mean():.1f})"
            for answer in answers
        ]
        yield [noise, f"{gain:g}", *cells]


def percent(share: float) -> str:
    """Write a share in percent."""
    return f"{100 * share:.1f}"


def main(arguments: list[str] | None = None) -> None:
    """Print the tables of streams and of nights, or of single candidates."""
    from lr_sweep.benchmarks.gate_streams import nights_table, stream_table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--stream", action="store_true", help="streams of 200 candidates, and nights"
    )
    parser.add_argument(
        "--studies", type=int, default=200, help="streams, or candidates, in each entry"
    )
    args = parser.parse_args(arguments)
    for table in (stream_table, nights_table) if args.stream else (gate_table,):
        for index, row in enumerate(table(args.studies, np.random.default_rng(0))):
            print(
                f"| {' | '.join(row)} |",
                *(["|---" * len(row) + "|"] if not index else []),
                sep="\n",
                flush=True,
            )
        print()


if __name__ == "__main__":
    main()
