"""Which learning rates a check says to add, and which early stopping keeps."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.statistics.rates.further_rates import around, beyond, kept_rates, three_digits


@given(st.integers(-12, 2), st.integers(1, 20), st.integers(3, 40), st.sampled_from(["low", "high"]))
def test_a_grid_is_extended_with_its_own_spacing(start: int, per_decade: int, num: int, end: str) -> None:
    """Rates beyond a log grid are those of the longer grid, to the last of 3 digits."""
    rates = [three_digits(10 ** ((start * per_decade + k) / per_decade)) for k in range(-2, num + 2)]
    expected = rates[1::-1] if end == "low" else rates[-2:]
    got = beyond(rates[2:-2], end)
    assert all(math.isclose(x, y, rel_tol=0.03) for x, y in zip(got, expected, strict=True))
    if num > per_decade:  # the digits repeat
        assert got == expected


def test_steps_around() -> None:
    assert around(1e-3) == (1e-4, 3.16e-4, 3.16e-3, 1e-2)
    assert beyond([1e-3, 2e-3, 4e-3], "high") == [8e-3, 1.6e-2]


def test_the_median_by_hand() -> None:
    """Each is compared with the others' means: 0.2, 0.3 and 0.4 have the median 0.3."""
    means = {1e-4: 0.2, 1e-3: 0.3, 1e-2: 0.4, 1e-1: 0.1}
    assert kept_rates(dict.fromkeys(means, 0.3) | {1e-1: 0.29}, means) == {1e-4, 1e-3, 1e-2}
    three = {1e-4: 0.0, 1e-3: 0.5, 1e-2: 0.6}  # each has two others alone
    assert kept_rates(three, three) == set(three)
