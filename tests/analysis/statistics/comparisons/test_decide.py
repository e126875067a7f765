"""The sequential test, on values made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from lr_sweep.analysis.statistics.comparisons.decide import (
    ENOUGH,
    EQUAL,
    FIRST,
    SECOND,
    SPENDING,
    UNDECIDED,
    Pairs,
    Settings,
    judge_pairs,
    nominal_levels,
)
from lr_sweep.analysis.statistics.comparisons.noise import Noise
from lr_sweep.analysis.statistics.comparisons.uncertainty import Floats

TWO = Pairs.all_of(["task", "task"])
ONE_DEVIATION = np.array([-1.0, 1.0] * 10) / math.sqrt(20 / 19)


def known(number: int, deviation: float = 1.0) -> Noise:
    return Noise(np.full(number, deviation**2), np.full(number, 6.0))


def fresh(*means: float, seeds: int = 20) -> Floats:
    """Return values of standard deviation 1 around means; the first `seeds` of them are there."""
    values = np.array([mean + ONE_DEVIATION for mean in means])
    values[:, seeds:] = math.nan
    return values


def test_one_look_has_the_whole_error() -> None:
    assert nominal_levels(0.05, 5, 5) == pytest.approx([0.05])


def test_two_looks_have_it_together() -> None:
    """At half of the seeds the correlation of both statistics is sqrt(1 / 2)."""
    first, second = nominal_levels(0.05, 1, 2)
    assert first == pytest.approx(0.05 * 0.5**SPENDING)
    bounds = norm.isf(np.array([first, second]) / 2)
    both = multivariate_normal([0, 0], [[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]])
    assert both.cdf(bounds, lower_limit=-bounds) == pytest.approx(0.95, abs=1e-4)


def test_a_large_difference_is_decided_at_the_first_look() -> None:
    found = judge_pairs(fresh(10.0, 0.0, seeds=2), TWO, Settings(), known(2))
    assert (found.outcome.tolist(), found.num_seeds.tolist()) == ([FIRST], [2])
    assert found.difference == pytest.approx([10.0])
    assert judge_pairs(fresh(0.0, 10.0, seeds=2), TWO, Settings(), known(2)).outcome.tolist() == [SECOND]


def test_equal_variants_need_seeds_until_their_difference_is_small_for_certain() -> None:
    settings = Settings(min_difference=1.5)
    few, many = (judge_pairs(fresh(0.0, 0.0, seeds=n), TWO, settings, known(2)) for n in (4, 20))
    assert (few.outcome.tolist(), many.outcome.tolist()) == ([UNDECIDED], [EQUAL])
    assert 4 < many.num_seeds[0] < 20


def test_without_a_limit_none_are_equal_and_the_most_seeds_end_it() -> None:
    assert judge_pairs(fresh(0.0, 0.0), TWO, Settings(), known(2)).outcome.tolist() == [UNDECIDED]


def test_pairs_are_decided_one_by_one() -> None:
    """The third variant is far behind; the first two are equal."""
    found = judge_pairs(fresh(0.0, 0.0, -20.0, seeds=3), Pairs.all_of("ttt"), Settings(), known(3))
    assert found.outcome.tolist() == [UNDECIDED, FIRST, FIRST]


def test_a_decision_stays_whatever_later_seeds_say() -> None:
    values = fresh(10.0, 0.0)
    values[0, 5:] -= 20.0
    found = judge_pairs(values, TWO, Settings(), known(2))
    assert (found.outcome.tolist(), found.num_seeds.tolist()) == ([FIRST], [2])


def test_seeds_of_one_cell_alone_are_no_look() -> None:
    values = fresh(10.0, 0.0)
    values[1, 1:] = math.nan
    found = judge_pairs(values, TWO, Settings(), known(2))
    assert (found.outcome.tolist(), found.num_seeds.tolist()) == ([UNDECIDED], [0])


def test_a_cell_whose_noise_is_not_known_before_has_that_of_its_fresh_seeds() -> None:
    found = judge_pairs(fresh(10.0, 0.0), TWO, Settings(), Noise(np.full(2, math.nan), np.zeros(2)))
    assert found.outcome.tolist() == [FIRST]
    assert found.num_seeds[0] > 2


def test_a_breakdown_beside_the_chosen_rate_costs_seeds_but_no_decision() -> None:
    """Earlier runs with a hundred times the deviation are contradicted by eight fresh seeds."""
    loud = judge_pairs(fresh(10.0, 0.0), TWO, Settings(), known(2, deviation=100.0))
    assert (loud.outcome.tolist(), loud.num_seeds.tolist()) == ([FIRST], [ENOUGH])
    assert loud.high[0] - loud.low[0] < 1.5


def test_fresh_seeds_noisier_than_earlier_runs_prevail_at_once() -> None:
    quiet = judge_pairs(fresh(2.0, 0.0, seeds=4), TWO, Settings(), known(2, deviation=0.01))
    assert quiet.outcome.tolist() == [UNDECIDED]


def test_fresh_seeds_without_spread_leave_the_noise_of_earlier_runs() -> None:
    same = np.array([[1.0] * 20, [0.0] * 20])
    assert judge_pairs(same, TWO, Settings(), known(2, deviation=0.1)).outcome.tolist() == [FIRST]


def test_rounding_of_large_values_decides_nothing() -> None:
    """The mean of three times 0.1 has another last bit."""
    same = 2.0**40 * np.array([[0.1] * 3, [0.3] * 3])
    found = judge_pairs(same, TWO, Settings(), Noise(np.full(2, math.nan), np.zeros(2)))
    assert found.outcome.tolist() == [UNDECIDED]


def test_named_pairs_alone_are_compared() -> None:
    found = judge_pairs(fresh(0.0, 20.0, 40.0, seeds=2), Pairs.named([(0, 2)]), Settings(), known(3))
    assert found.outcome.tolist() == [SECOND]
