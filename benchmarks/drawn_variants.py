"""Studies of variants drawn at random with known truth, as arrays, for `benchmarks.verdict_simulation`.

A study has tasks x variants x learning rates x seeds. A run's validation and test value share its noise, so the rate is
chosen by luck, too. The unit is the standard deviation of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lr_sweep.analysis.statistics.comparisons.noise import WINDOW
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.benchmarks.gating import NOISES, Draw, ratios


def _unequal(draw: Draw) -> Draw:
    """Return noise of one kind, tenfold from the quietest variant to the noisiest."""
    return lambda rng, shape: draw(rng, shape) * ratios(shape[2])[:, None, None]


def _lognormal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw noise of standard deviation 1 with a long tail of bad runs."""
    return (np.exp(0.5) - np.exp(rng.standard_normal(shape))) / np.sqrt((np.e - 1) * np.e)


DRAWS = NOISES | {
    "skewed, unequal": _unequal(NOISES["skewed"]),
    "lognormal, unequal": _unequal(_lognormal),
}
SPLIT = 0.3
"""Standard deviation of a split's examples, in each of validation and test, times the variant's noise."""
CURVES = ("flat", "peak")
"""On a flat curve the chosen rate is the luckiest, on a peak always the middle one."""
BELOW_PEAK = -30.0
"""Mean of a peak's other rates."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of the simulated studies."""

    num_tasks: int = 1
    num_variants: int = 4
    num_seeds: int = 3
    num_rates: int = 5
    noise: str = "normal"
    curve: Literal["flat", "peak"] = "peak"
    ahead: float = 0.0
    """By how much the first variant is better than the others at its best rate, and wherever they are not equal."""
    equal_at: int | None = None
    """Index of a rate at which all variants are equal, whatever they are elsewhere."""
    beside: float = 1.0
    """Noise at the rates beside the middle one, as a share of that there."""
    shared: float = 0.0
    """Share of the variance that is of the seed, and so equal at all rates of a cell."""
    collapses: float = 0.0
    """Share of the runs at the rate above the middle one that lose `depth`."""
    depth: float = 30.0


@dataclass(frozen=True, kw_only=True)
class Studies:
    """Drawn studies, studies x tasks x variants."""

    tests: Floats
    """x rates x seeds."""
    chosen: np.ndarray
    """Index of the chosen rate."""
    behind: Floats
    """x rates: how far each rate's validation mean is behind that of the chosen one."""


def drawn(setting: Setting, number: int, rng: np.random.Generator) -> Studies:
    """Draw studies, and choose each cell's rate on validation values."""
    shape = (number, setting.num_tasks, setting.num_variants, setting.num_rates, setting.num_seeds)
    draw, middle = DRAWS[setting.noise], setting.num_rates // 2
    noise = np.sqrt(1 - setting.shared) * draw(rng, shape)
    if setting.shared:
        noise = noise + np.sqrt(setting.shared) * draw(rng, (*shape[:3], 1, setting.num_seeds))
    scale = np.full(setting.num_rates, setting.beside)
    scale[middle] = 1.0
    curve = np.where(
        np.arange(setting.num_rates) == middle, 0.0, BELOW_PEAK if setting.curve == "peak" else 0.0
    )
    mean = np.tile(curve, (setting.num_variants, 1))
    mean[0] += setting.ahead
    if setting.equal_at is not None:
        mean[:, setting.equal_at] = curve[setting.equal_at]
    runs = mean[..., None] + noise * scale[:, None]
    if setting.collapses:
        runs[..., middle + 1, :] -= setting.depth * (
            rng.random((*shape[:3], shape[-1])) < setting.collapses
        )
    unequal = (
        ratios(setting.num_variants)
        if "unequal" in setting.noise
        else np.ones(setting.num_variants)
    )
    splits = SPLIT * unequal[:, None, None]
    validation, tests = (runs + splits * rng.standard_normal(shape) for _ in range(2))
    means = validation.mean(-1)
    return Studies(
        tests=tests, chosen=means.argmax(-1), behind=means.max(-1, keepdims=True) - means
    )


def windows_of(runs: Floats, at: np.ndarray) -> Floats:
    """Return the values of runs, ... x rates x seeds, at a rate and at those beside it: ... x `WINDOW` x seeds."""
    beyond = np.full_like(runs[..., :1, :], np.nan)
    padded = np.concatenate([beyond, runs, beyond], axis=-2)
    found: Floats = np.take_along_axis(padded, (at[..., None] + np.array([1, 0, 2]))[..., None], -2)
    assert found.shape[-2] == WINDOW
    return found


def windows(studies: Studies, at: np.ndarray) -> Floats:
    """Return the windows of each cell, studies x cells x `WINDOW` x seeds."""
    found = windows_of(studies.tests, at)
    return found.reshape(len(found), -1, *found.shape[-2:])
