"""Noise of simulated runs, in standard deviations, or with two modes; its shape ends with rates x seeds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lr_sweep.analysis.statistics.uncertainty import Floats

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]


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
