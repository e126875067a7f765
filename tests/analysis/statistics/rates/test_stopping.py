"""The rules of early stopping."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.statistics.rates.stopping import kept_by_halving, kept_by_median


def test_halving_by_hand() -> None:
    values = {1e-5: 0.1, 1e-4: 0.4, 1e-3: 0.9, 1e-2: 0.4, 1e-1: -math.inf}
    assert kept_by_halving(values, 3) == {1e-3, 1e-4, 1e-2}  # 5 / 3, rounded up, is 2; 1e-2 equals the second
    assert kept_by_halving(values, 5) == {1e-3}
    assert kept_by_halving({1e-3: -math.inf}, 3) == {1e-3}


def test_the_median_by_hand() -> None:
    """Each is compared with the others' means: 0.2, 0.3 and 0.4 have the median 0.3."""
    means = {1e-4: 0.2, 1e-3: 0.3, 1e-2: 0.4, 1e-1: 0.1}
    assert kept_by_median(dict.fromkeys(means, 0.3) | {1e-1: 0.29}, means) == {1e-4, 1e-3, 1e-2}
    assert kept_by_median({1e-4: 0.0, 1e-3: 0.5, 1e-2: 0.6}, {1e-4: 0.0, 1e-3: 0.5, 1e-2: 0.6}) == {1e-4, 1e-3, 1e-2}


@given(st.dictionaries(st.floats(1e-6, 1), st.floats(-1, 1), min_size=1, max_size=20), st.integers(2, 10))
def test_halving_keeps_the_best_and_no_worse_than_a_share(values: dict[float, float], eta: int) -> None:
    kept = kept_by_halving(values, eta)
    assert len(kept) >= math.ceil(len(values) / eta)
    assert min(values[rate] for rate in kept) >= max((values[rate] for rate in values.keys() - kept), default=-math.inf)
