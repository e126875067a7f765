from __future__ import annotations

import math

import numpy as np
import pytest

from lr_sweep.analysis.statistics.comparisons.correction import most_equal, shaffer


@pytest.mark.parametrize(
    ("numbers", "most"),
    [
        ((1,), [1]),
        ((3,), [3, 1, 1]),  # of 3 variants: all equal, or two, or none
        ((6,), [6, 3, 3, 3, 2, 1]),  # of 4: all, three, two and two, two, none
        ((1, 1, 1), [3, 2, 1]),  # unrelated pairs: Holm's procedure
        ((3, 1), [4, 3, 2, 1]),  # 3, 1 or none of one task, 1 or none of the other
        ((2,), [2, 1]),  # not all pairs of some variants: either may be equal without the other
    ],
)
def test_how_many_pairs_can_be_equal(numbers: tuple[int, ...], most: list[int]) -> None:
    assert most_equal(numbers).tolist() == most


def test_of_three_variants_by_hand() -> None:
    # Ordered 0.01, 0.02, 0.04: x 3 = 0.03; x 1 = 0.02, raised to 0.03; x 1 = 0.04.
    assert shaffer(np.array([0.04, 0.01, 0.02]), ["task"] * 3) == pytest.approx([0.04, 0.03, 0.03])


def test_unrelated_tests_by_hand() -> None:
    # Ordered 0.01, 0.02, 0.04: x 3 = 0.03, x 2 = 0.04, x 1 = 0.04 (never below the one before); NaN does not count.
    found = shaffer(np.array([0.04, 0.01, math.nan, 0.02]), range(4))
    assert found == pytest.approx([0.04, 0.03, math.nan, 0.04], nan_ok=True)
    assert shaffer(np.array([0.9, 0.8]), range(2)) == pytest.approx([1.0, 1.0])  # no more than 1
