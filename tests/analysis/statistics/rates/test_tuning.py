"""Tuning curves and their bands, by hand and against plain enumeration."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from lr_sweep.analysis.statistics.comparisons.noise import CellValues
from lr_sweep.analysis.statistics.rates.tuning import best_weights, expected_bests, half_widths
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

pytestmark = pytest.mark.usefixtures("undrawn")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.data())
def test_the_expectation_is_the_mean_over_all_choices(values: list[float], data: st.DataObject) -> None:
    tried = data.draw(st.integers(1, len(values)))
    subsets = [max(chosen) for chosen in combinations(values, tried)]
    assert np.sort(values) @ best_weights(len(values), tried) == pytest.approx(sum(subsets) / len(subsets))


def test_the_test_value_is_that_of_the_rate_that_validation_chooses(tmp_path: Path) -> None:
    """Validation 0.4, 0.8 with tests 0.9, 0.7: one of them at random, then always the second."""
    made = SyntheticRecord(tmp_path)
    made.add(1e-4, 0, [(300, 0.4, 0.9)])
    made.add(1e-3, 0, [(300, 0.8, 0.7)])
    found = expected_bests(summary_of(made.write()))
    assert list(found["expected"]) == pytest.approx([0.6, 0.8])
    assert list(found["test"]) == pytest.approx([0.8, 0.7])
    assert found["low"].isna().all()  # one seed


@pytest.mark.parametrize("tied", [0.3, 0.1 + 0.2])  # the second is the first but for summation error
def test_of_equal_means_the_smaller_rate_is_chosen(tmp_path: Path, tied: float) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-4, 0, [(300, 0.3, 0.5)])
    made.add(1e-3, 0, [(300, tied, 0.7)])
    assert list(expected_bests(summary_of(made.write()))["test"]) == pytest.approx([0.6, 0.5])


def test_limits_of_all_means_at_once_by_hand() -> None:
    """Two rates, deviations of 0.01 and 0.02, unrelated seeds: each has the pooled variance, or its own if larger."""
    values = np.array([[0.5, 0.51, 0.49], [0.6, 0.58, 0.62]])  # correlated by -1, which counts as 0
    half = half_widths(CellValues(np.array([1e-3, 1e-2]), values))
    factor = t.ppf(1 - 0.05 / 4, 4)
    assert half == pytest.approx(factor * np.sqrt(np.array([(0.01**2 + 0.02**2) / 2, 0.02**2]) / 3), rel=0.3)
