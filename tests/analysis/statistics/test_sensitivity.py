"""Learning-rate sensitivity and expected bests, worked out by hand and against plain enumeration."""

from __future__ import annotations

import math
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.report.further_tables import sensitivity_table
from lr_sweep.analysis.statistics.sensitivity import (
    expected_best,
    expected_bests,
    mean_shortfall,
    sensitivities,
)
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

ACCURACIES = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def test_shortfall_by_hand() -> None:
    """Below the best by 0.4, 0, 0.2 at 1e-4, 1e-3, 1e-2: per decade 0.2 and 0.1, on average 0.15."""
    assert mean_shortfall(np.array([1e-4, 1e-3, 1e-2]), np.array([0.4, 0.8, 0.6])) == pytest.approx(0.15)


def test_unevenly_spaced_rates_count_by_their_stretch() -> None:
    """Two decades at 0.2 on average, one at 0.1: (2 x 0.2 + 0.1) / 3."""
    assert mean_shortfall(np.array([1e-5, 1e-3, 1e-2]), np.array([0.4, 0.8, 0.6])) == pytest.approx(0.5 / 3)


def test_a_finer_grid_on_the_same_line_changes_nothing() -> None:
    coarse = mean_shortfall(np.array([1e-4, 1e-2]), np.array([0.4, 0.8]))
    fine = mean_shortfall(np.array([1e-4, 1e-3, 1e-2]), np.array([0.4, 0.6, 0.8]))
    assert fine == pytest.approx(coarse)
    assert fine == pytest.approx(0.2)


def test_one_learning_rate_has_no_sensitivity() -> None:
    assert math.isnan(mean_shortfall(np.array([1e-3]), np.array([0.5])))


def test_expected_best_by_hand() -> None:
    """Pairs of 0.1, 0.2, 0.6 have bests 0.2, 0.6, 0.6; nine draws of two have 0.1, three times 0.2, five times 0.6."""
    unbiased, biased = expected_best(np.array([0.6, 0.1, 0.2]), 2)
    assert unbiased == pytest.approx(1.4 / 3)
    assert biased == pytest.approx((0.1 + 3 * 0.2 + 5 * 0.6) / 9)


@given(ACCURACIES, st.data())
def test_expected_best_is_the_mean_over_all_choices(accuracies: list[float], data: st.DataObject) -> None:
    tried = data.draw(st.integers(1, len(accuracies)))
    unbiased, biased = expected_best(np.array(accuracies), tried)
    subsets = [max(chosen) for chosen in combinations(accuracies, tried)]
    draws = [max(chosen) for chosen in product(accuracies, repeat=tried)]
    assert unbiased == pytest.approx(sum(subsets) / len(subsets))
    assert biased == pytest.approx(sum(draws) / len(draws))
    assert biased <= unbiased + 1e-12


@pytest.mark.parametrize("tried", [0, 4])
def test_more_than_there_are_is_refused(tried: int) -> None:
    with pytest.raises(AssertionError, match=f"got {tried} learning rates tried of 3"):
        expected_best(np.array([0.1, 0.2, 0.3]), tried)


def test_cells_by_hand(tmp_path: Path) -> None:
    """Seeds differ, means are 0.4, 0.8, 0.6 as above."""
    made = SyntheticRecord(tmp_path)
    for rate, mean in ((1e-4, 0.4), (1e-3, 0.8), (1e-2, 0.6)):
        for seed, shift in enumerate((-0.1, 0.1)):
            made.add(rate, seed, [(300, mean + shift, 0.0)])  # test accuracy plays no part
    summary = summary_of(made.write())
    cell = sensitivities(summary).to_dict("records")[0]
    assert cell["sensitivity"] == pytest.approx(0.15)
    assert (cell["low"], cell["high"], cell["num_rates"], cell["num_floored"]) == (1e-4, 1e-2, 3, 0)
    bests = expected_bests(summary)
    assert list(bests["expected"]) == pytest.approx([0.6, (0.6 + 0.8 + 0.8) / 3, 0.8])
    table = sensitivity_table(sensitivities(summary), bests)
    assert table.header[3:] == ("sensitivity", "between", "best of 1", "best of 2", "best of 3", "remarks")
    assert table.rows == (("mnist", "gpt2", "frozen-random", "15.0", "1e-4 to 1e-2", "60.0", "73.3", "80.0", ""),)


def test_rates_where_all_diverged_count_as_the_lowest_of_the_task(tmp_path: Path) -> None:
    """The other cell's 0.1 is the lowest: below the best by 0.4, 0, 0.7: (0.2 + 0.35) / 2."""
    made = SyntheticRecord(tmp_path)
    made.add(1e-4, 0, [(300, 0.4, 0.4)])
    made.add(1e-3, 0, [(300, 0.8, 0.8)])
    made.add(1e-2, 0, [], "diverged", 9, 9)
    made.add(1e-3, 0, [(300, 0.1, 0.1)], variant="unfrozen-random")
    cell = sensitivities(summary_of(made.write())).to_dict("records")[0]
    assert cell["sensitivity"] == pytest.approx(0.275)
    assert (cell["high"], cell["num_floored"]) == (1e-2, 1)


def test_missing_rates_are_left_out(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-4, 0, [(300, 0.4, 0.4)])
    made.add(1e-3, 0, [(300, 0.8, 0.8)])
    made.want(1e-2, 0)
    cell = sensitivities(summary_of(made.write())).to_dict("records")[0]
    assert cell["sensitivity"] == pytest.approx(0.2)
    assert (cell["high"], cell["num_rates"]) == (1e-3, 2)


def test_a_study_of_which_nothing_ran(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.want(1e-3, 0)
    summary = summary_of(made.write())
    table = sensitivity_table(sensitivities(summary), expected_bests(summary))
    note = "fewer than two learning rates have a value; 1 runs missing or failed, may change"
    assert table.rows == (("mnist", "gpt2", "frozen-random", "–", "–", note),)
