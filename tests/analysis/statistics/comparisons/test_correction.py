from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.statistics.comparisons.correction import (
    LEVEL,
    MOST_VARIANTS,
    compared_pairs,
    holm,
    levels_of,
    pairs_within,
)


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


def test_of_many_variants_each_is_compared_with_the_best_and_all_pairs_count() -> None:
    """61 variants make 1,830 pairs, of which 60 have the best one; a group of 3 has all of its pairs.

    The means at places 2 and 7 are equal but for the error of a sum: the first one counts as the best.
    """
    means = [{2: 0.3, 7: 0.1 + 0.2}.get(place, 0.1) for place in range(MOST_VARIANTS + 1)]
    cells = pd.DataFrame({"task": ["many"] * 61 + ["few"] * 3, "model": "m", "test_mean": [*means, 0.1, 0.2, 0.3]})
    first, second, num_untested = compared_pairs(cells, sign=1)
    assert (len(first), num_untested) == (60 + 3, 1830 - 60)
    assert all(2 in pair for pair in zip(first[:60].tolist(), second[:60].tolist(), strict=True))
    assert levels_of(np.array([1e-9, 0.5]), 1)[0] == pytest.approx(LEVEL / 3)
