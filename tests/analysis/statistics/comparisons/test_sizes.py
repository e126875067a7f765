"""Sizes of differences, and seeds, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import nct, t

from lr_sweep.analysis.statistics.comparisons.noise import Noise
from lr_sweep.analysis.statistics.comparisons.pairs import further_seeds, superiority


def test_superiority_by_hand() -> None:
    """Of four pairs of runs three are won, and one is a tie; the last cell has no value."""
    values = np.array([[1.0, 2.0], [1.0, 0.0], [math.nan, math.nan]])
    found = superiority(values, np.array([0, 0]), np.array([1, 2]))
    assert found == pytest.approx([3.5 / 4, math.nan], nan_ok=True)


@pytest.mark.parametrize("difference", [1.0, 2.0])
def test_further_seeds_are_the_fewest_with_the_power(difference: float) -> None:
    """Variance 1, 3 seeds each with 2 degrees of freedom: with n each the difference has 2 (n - 1)."""
    found = needed(difference)

    def power(number: float) -> float:
        dof, centre = 2 * (number - 1), difference / math.sqrt(2 / number)
        return float(nct.sf(t.isf(0.025, dof), dof, centre))

    assert power(3 + found - 1) < 0.8 <= power(3 + found)


def test_of_no_difference_there_are_never_enough() -> None:
    assert math.isinf(needed(0.0))


def test_of_a_large_one_one_more_is_enough() -> None:
    assert needed(20.0) == 1.0


def needed(difference: float) -> float:
    noise = Noise(np.ones((1, 2)), np.full((1, 2), 2.0))
    return float(further_seeds(np.array([difference]), noise, np.full((1, 2), 3.0), np.array([0.05]))[0])
