"""Which learning rates a check says to add, and which early stopping keeps."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.statistics.rates.further_rates import around, between, beyond, kept_rates, three_digits


@given(st.integers(-12, 2), st.integers(1, 20), st.integers(3, 40), st.sampled_from(["low", "high"]))
def test_a_grid_is_extended_with_its_own_spacing(start: int, per_decade: int, num: int, end: str) -> None:
    """Rates beyond a log grid are those of the longer grid, to the last of 3 digits."""
    rates = [three_digits(10 ** ((start * per_decade + k) / per_decade)) for k in range(-2, num + 2)]
    expected = rates[1::-1] if end == "low" else rates[-2:]
    got = beyond(rates[2:-2], end)
    assert all(math.isclose(x, y, rel_tol=0.03) for x, y in zip(got, expected, strict=True))
    if num > per_decade:  # the digits repeat
        assert got == expected


def test_steps_between_and_around() -> None:
    assert between([1e-4, 1e-3, 1e-2], 1e-3) == (3.16e-4, 3.16e-3)
    assert around(1e-3) == (1e-4, 3.16e-4, 3.16e-3, 1e-2)
    assert beyond([1e-3, 2e-3, 4e-3], "high") == [8e-3, 1.6e-2]


def halved(values: dict[float, float], eta: int) -> set[float]:
    return kept_rates("halving", eta, values, {})


def test_halving_by_hand() -> None:
    values = {1e-5: 0.1, 1e-4: 0.4, 1e-3: 0.9, 1e-2: 0.4, 1e-1: -math.inf}
    assert halved(values, 3) == {1e-3, 1e-4, 1e-2}  # 5 / 3, rounded up, is 2; 1e-2 equals the second
    assert halved(values, 5) == {1e-3}
    assert halved({1e-3: -math.inf}, 3) == {1e-3}


def test_the_median_by_hand() -> None:
    """Each is compared with the others' means: 0.2, 0.3 and 0.4 have the median 0.3."""
    means = {1e-4: 0.2, 1e-3: 0.3, 1e-2: 0.4, 1e-1: 0.1}
    assert kept_rates("median", 1, dict.fromkeys(means, 0.3) | {1e-1: 0.29}, means) == {1e-4, 1e-3, 1e-2}
    assert kept_rates("median", 1, {1e-4: 0.0, 1e-3: 0.5, 1e-2: 0.6}, {1e-4: 0.0, 1e-3: 0.5, 1e-2: 0.6}) == {
        1e-4,
        1e-3,
        1e-2,
    }


@given(st.dictionaries(st.floats(1e-6, 1), st.floats(-1, 1), min_size=1, max_size=20), st.integers(2, 10))
def test_halving_keeps_the_best_and_no_worse_than_a_share(values: dict[float, float], eta: int) -> None:
    kept = halved(values, eta)
    assert len(kept) >= math.ceil(len(values) / eta)
    assert min(values[rate] for rate in kept) >= max((values[rate] for rate in values.keys() - kept), default=-math.inf)
