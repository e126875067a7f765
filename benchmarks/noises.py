"""Invented noise of simulated runs: functions that draw an array, studies x variants x rates x seeds.

The unit is the standard deviation of a run, except where runs have two modes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from lr_sweep.analysis.statistics.selection.best import Floats

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]
DEPTH = 5.0
"""Loss of a run in the lower of two modes."""
WIDTH = 0.3
"""Standard deviation of the runs in one of two modes."""


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw normal noise."""
    return rng.standard_normal(shape)


def two_modes(share: float, of_seed: bool = False) -> Draw:
    """Return noise of runs of which a share loses `DEPTH`; `of_seed`: a seed of a cell at all rates."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        is_lost = rng.random((*shape[:-2], 1, shape[-1]) if of_seed else shape) < share
        return WIDTH * rng.standard_normal(shape) - DEPTH * is_lost

    return draw


def standardised_modes(share: float) -> Draw:
    """Return noise of two modes with a mean of 0 and a standard deviation of 1."""
    deviation = (WIDTH**2 + DEPTH**2 * share * (1 - share)) ** 0.5
    return lambda rng, shape: (two_modes(share)(rng, shape) + DEPTH * share) / deviation


def ratios(num_variants: int) -> Floats:
    """Return standard deviations of variants, tenfold from the quietest to the noisiest."""
    return np.geomspace(0.1, 1.0, num_variants)


def unequal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw noise of variants that differ in noise."""
    return normal(rng, shape) * ratios(shape[1])[:, None, None]


SKEWED: dict[str, Draw] = {
    "exponential": lambda rng, shape: 1 - rng.exponential(1, shape),
    "gamma(2)": lambda rng, shape: (2 - rng.gamma(2, 1, shape)) / np.sqrt(2),
    "lognormal": lambda rng, shape: (
        (np.sqrt(np.e) - rng.lognormal(0, 1, shape)) / np.sqrt(np.e * (np.e - 1))
    ),
}
"""Noise with rare bad values, of deviation 1; their skewness is -2, -1.4 and -6.2."""


def _candidate_fails(share: float, deviation: float) -> Draw:
    """Return noise of a baseline with this deviation, and of a candidate that fails in a share of its runs."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        noise = deviation * rng.standard_normal(shape)
        noise[:, 1] = two_modes(share)(rng, shape)[:, 1] + DEPTH * share
        return noise

    return draw


def _quieter_baseline(draw: Draw, ratio: float) -> Draw:
    """Return noise of a baseline with a share of the candidate's deviation, and of the candidate."""
    return lambda rng, shape: draw(rng, shape) * np.array([ratio, 1.0])[:, None, None]


GATED: dict[str, Draw] = {
    "normal": normal,
    "t4": lambda rng, shape: rng.standard_t(4, shape) / np.sqrt(2),
    "skewed": SKEWED["exponential"],
    "unequal": unequal,
    "two modes, 30%": two_modes(0.3),
    "two modes, 50%": two_modes(0.5),
    "two modes of the seed, 30%": two_modes(0.3, of_seed=True),
    "two modes of the seed, 50%": two_modes(0.5, of_seed=True),
    "unequal, candidate quiet": lambda rng, shape: unequal(rng, shape)[:, ::-1],
    **{
        f"candidate alone fails in {share:.0%}, baseline {deviation:g}": _candidate_fails(
            share, deviation
        )
        for deviation, share in product((1.0, 0.3), (0.05, 0.15, 0.3))
    },
    **{
        f"{name}, baseline {ratio:g} of it": _quieter_baseline(draw, ratio)
        for (name, draw), ratio in product(SKEWED.items(), (1.0, 0.5, 0.3, 0.1))
    },
}
"""Noise of a baseline, the first variant, and of a candidate."""
