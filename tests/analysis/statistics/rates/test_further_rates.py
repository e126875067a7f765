"""Which learning rates a check says to add."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.statistics.rates.further_rates import around, between, beyond, three_digits


@given(st.integers(-12, 2), st.integers(1, 20), st.integers(3, 40), st.sampled_from(["low", "high"]))
def test_a_grid_is_extended_with_its_own_spacing(start: int, per_decade: int, num: int, end: str) -> None:
    """Rates beyond a log grid are those of the longer grid, to the last of 3 digits."""
    rates = [three_digits(10 ** ((start * per_decade + k) / per_decade)) for k in range(-2, num + 2)]
    expected = rates[:2] if end == "low" else rates[-2:]
    got = beyond(rates[2:-2], end)
    assert all(math.isclose(x, y, rel_tol=0.03) for x, y in zip(got, expected, strict=True))
    if num > per_decade:  # the digits repeat
        assert got == tuple(expected)


def test_steps_between_and_around() -> None:
    assert between([1e-4, 1e-3, 1e-2], 1e-3) == (3.16e-4, 3.16e-3)
    assert around(1e-3) == (1e-4, 3.16e-4, 3.16e-3, 1e-2)
    assert beyond([1e-3, 2e-3, 4e-3], "high") == (8e-3, 1.6e-2)
