"""The fitted peak of a sweep."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.statistics.comparisons.uncertainty import Floats
from lr_sweep.analysis.statistics.rates.peak import Curve, fitted_gain


def curve(means: list[float] | Floats, sem: float = 0.0) -> Curve:
    """A curve over 1e-5, 1e-4 and so on, with three seeds."""
    size = len(means)
    return Curve(np.arange(size) - 5.0, np.asarray(means), np.full(size, 3 * sem**2), np.full(size, 3))


@given(st.floats(-0.49, 0.49), st.floats(0.01, 0.3))
def test_a_parabola_is_found_exactly(offset: float, bend: float) -> None:
    """The best rate, -3, misses the peak at -3 + offset by bend x offset^2."""
    gain = fitted_gain(curve(0.8 - bend * (np.arange(5) - 2 - offset) ** 2), 2)
    assert gain.size == pytest.approx(bend * offset**2, abs=1e-9)
    assert gain.at == pytest.approx(-3 + offset, abs=1e-6)
    assert gain.lower(0.99) <= gain.size <= gain.upper(0.99)


def test_its_error_by_hand() -> None:
    """Three rates, 0.5, 0.6, 0.6, each with an error of 0.01: the parabola goes through them.

    Slope b = (0.6 - 0.5) / 2 = 0.05, bend c = (0.5 + 0.6 - 1.2) / 2 = -0.05, gain b^2 / (-4 c) = 0.0125. Its gradient:
    1/2 by b and 1/4 by c; variances by rate: b 1/2, c 3/2, no covariance. 0.01 sqrt(1/8 + 3/32) = 0.004677.
    """
    gain = fitted_gain(curve([0.5, 0.6, 0.6], sem=0.01), 1)
    assert gain.size == pytest.approx(0.0125)
    assert gain.sem == pytest.approx(0.01 * math.sqrt(7 / 32))
    assert gain.at == pytest.approx(-3.5)
    assert (gain.dof, gain.fit_seen) == (6, False)


def test_a_plateau_that_ends_in_a_cliff_is_no_parabola() -> None:
    gain = fitted_gain(curve([0.58, 0.59, 0.60, 0.10, 0.10]), 2)
    assert gain.lower(0.99) < 0


def test_without_a_peak_there_is_no_gain() -> None:
    """One seed, so a chosen rate may lie on a line."""
    assert fitted_gain(curve([0.5, 0.6, 0.7]), 1).size == 0.0


@given(st.integers(-1000, 1000))
def test_the_size_of_the_values_changes_nothing(exponent: int) -> None:
    """Squares of means near 1e-301 are zero, and of means near 1e301 have no number."""
    means, unit = [0.58, 0.59, 0.60, 0.55], 2.0**exponent
    gain, scaled = fitted_gain(curve(means), 2), fitted_gain(curve(np.multiply(means, unit)), 2)
    assert (scaled.size, scaled.at) == pytest.approx((gain.size * unit, gain.at))


def test_the_best_rate_is_the_lowest_of_those_equal_but_for_summation_error() -> None:
    assert curve([0.1, 0.3, 0.1 + 0.2, 0.2]).best == 1
