from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.statistics.comparisons.correction import LEVEL, holm, levels_of, pairs_within


def test_holm_by_hand() -> None:
    # Ordered 0.01, 0.02, 0.04: x 3 = 0.03, x 2 = 0.04, x 1 = 0.04 (never below the one before); NaN does not count.
    corrected = holm(np.array([0.04, 0.01, math.nan, 0.02]))
    assert corrected == pytest.approx([0.04, 0.03, math.nan, 0.04], nan_ok=True)
    assert holm(np.array([0.9, 0.8])) == pytest.approx([1.0, 1.0])  # no more than 1


def test_levels_by_hand() -> None:
    """The smallest p is tested at 0.05 / 3 and the next at 0.05 / 2; the last one would not be reached before it."""
    assert levels_of(np.array([0.04, 0.01, 0.5])) == pytest.approx([0.05 / 2, 0.05 / 3, 0.05])
    assert levels_of(np.array([0.04, 0.03])) == pytest.approx([0.05 * 0.04 / 0.06, 0.05 / 2])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_a_p_value_is_below_its_level_exactly_where_it_is_significant_when_corrected(p_values: list[float]) -> None:
    p = np.array(p_values)
    near = np.isclose(holm(p), LEVEL)
    assert ((p < levels_of(p)) | near).tolist() == ((holm(p) < LEVEL) | near).tolist()


def test_pairs_are_within_groups() -> None:
    first, second = pairs_within(["x", "y", "x", "y", "x"])
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 2), (0, 4), (2, 4), (1, 3)]
