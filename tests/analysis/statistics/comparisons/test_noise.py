"""The noise of cells, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from lr_sweep.analysis.statistics.comparisons.noise import CellValues, Noise, cell_noise, sampled, welch
from lr_sweep.analysis.statistics.selection.best import Floats

RISING, BENT = np.array([1.0, 0.0, -1.0]), np.array([1.0, -2.0, 1.0])
"""Sums of squares 2 and 6."""
NOTHING = np.full(3, math.nan)
PAIR = np.full(2, 3.0), np.array([0]), np.array([1])
"""Three seeds of each of two cells."""
ONE_SEED = np.array([1.0, math.nan, math.nan])


def noise_of(*windows: Sequence[Sequence[float] | Floats]) -> list[tuple[float, float]]:
    found = cell_noise(np.array(windows))
    return list(zip(found.variance.tolist(), found.dof.tolist(), strict=True))


@pytest.mark.parametrize(
    ("windows", "variance", "dof"),
    [
        ([(RISING + 5, BENT, NOTHING)], 8 / 4, 4),  # pooled over the rates
        ([(BENT, RISING, RISING)], 6 / 2, 6),  # at least that of the rate itself
        ([(RISING, np.zeros(3), BENT)], 8 / 4, 4),  # a rate without any spread is left out
        ([(ONE_SEED, RISING, NOTHING)], math.nan, 0),
        ([(RISING, ONE_SEED, ONE_SEED)], 1, 2),
        # F = 30,000 to the chosen rate, of this cell and of the study: a clearly noisier rate is left out.
        ([(RISING, 100 * BENT, BENT)], 8 / 4, 4),
        ([(RISING, 100 * BENT, 90 * BENT)], 1, 2),
        # The chosen rate of the second cell is as noisy, so the noise of the first may be in two modes, too.
        ([(RISING, 100 * BENT, NOTHING), (100 * RISING, BENT, NOTHING)], 60002 / 4, 4),
        ([(RISING, 3 * BENT, NOTHING)], 56 / 4, 4),  # 27 times the variance of 3 seeds is chance
        ([(np.zeros(3), BENT, NOTHING)], 6 / 4, 4),  # seeds that agree by chance have the noise of their neighbours
    ],
)
def test_the_noise_of_a_cell(windows: list[tuple[Floats, Floats, Floats]], variance: float, dof: float) -> None:
    assert noise_of(*windows)[0] == pytest.approx((variance, dof), nan_ok=True)


@pytest.mark.parametrize(("num_seeds", "variance", "dof"), [(4, 5 / 3, 6), (5, 2.5, 4)])
def test_from_five_seeds_on_the_noise_is_the_rates_own(num_seeds: int, variance: float, dof: float) -> None:
    """Squares of 0 to 3 around 1.5: 5, with 3 degrees of freedom; of 0 to 4: 10 with 4."""
    own = np.arange(float(num_seeds))
    beside = np.where(own > 0, own[0], 1e-3)
    ((found, found_dof),) = noise_of((own, beside, np.full(num_seeds, math.nan)))
    assert (found, found_dof) == (pytest.approx(variance, rel=1e-5), dof)


def test_a_rate_at_which_runs_explode_or_collapse_does_not_hide_a_difference() -> None:
    """Losses 2.00 and 3.00, standard deviations 0.01; beside them thousands, or from thousands to 1e12."""
    seeds, quiet = np.arange(3), np.array([-0.01, 0.0, 0.01])
    for exploded in (np.array([40.0, 2000.0, 900.0]), np.array([4e3, 2e12, 9e6])):
        cells = [
            CellValues.of(np.repeat([1e-3, 1e-2], 3), np.tile(seeds, 2), np.concatenate([mean + quiet, exploded]))
            for mean in (2.0, 3.0)
        ]
        sem, _ = welch(sampled(cells, [1e-3, 1e-3]).noise, *PAIR)
        assert sem[0] == pytest.approx(0.01 * math.sqrt(2 / 3))


def test_welch_by_hand() -> None:
    """Variances 2 and 2 of two seeds each: error sqrt(1 + 1), two degrees of freedom; of any size that is read."""
    for size in (1.0, 1e99):
        sem, dof = welch(Noise(np.full(2, 2.0 * size**2), np.ones(2)), np.full(2, 2.0), np.array([0]), np.array([1]))
        assert (sem[0] / size, dof[0]) == pytest.approx((math.sqrt(2), 2))


def test_without_any_spread_there_is_no_error() -> None:
    sem, dof = welch(Noise(np.zeros(2), np.ones(2)), np.full(2, 2.0), np.array([0]), np.array([1]))
    assert math.isnan(sem[0])
    assert math.isnan(dof[0])


@pytest.mark.parametrize("size", [1e-13, 1.0, 1e13])
def test_spread_is_seen_beside_the_size_of_the_values(size: float) -> None:
    """Standard deviations are 0.01 of values of 1, in any unit: the error is 0.01 sqrt(2 / 3)."""
    values = size * np.array([[[1.0, 1.01, 0.99], NOTHING, NOTHING]] * 2)
    sem, _ = welch(cell_noise(values), *PAIR)
    assert sem[0] / size == pytest.approx(0.01 * math.sqrt(2 / 3))


def test_rounding_of_large_values_is_no_spread() -> None:
    """The mean of three times 0.1 has another last bit, in a unit of 2^40, too."""
    values = 2.0**40 * np.array([[np.full(3, 0.1), NOTHING, NOTHING]] * 2)
    assert values[0, 0].mean() != values[0, 0, 0]
    assert math.isnan(welch(cell_noise(values), *PAIR)[0][0])
