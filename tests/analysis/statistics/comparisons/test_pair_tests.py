"""Tests of pairs, once and after every fresh seed, worked out by hand or beside a plain reckoning."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_ind

from lr_sweep.analysis.statistics.comparisons.correction import Pairs
from lr_sweep.analysis.statistics.comparisons.noise import WINDOW, Sampled, cell_noise
from lr_sweep.analysis.statistics.comparisons.pair_tests import FIRST_LOOK, PairTests, after_every_seed, at_once
from lr_sweep.analysis.statistics.comparisons.spending import nominal_levels
from lr_sweep.analysis.statistics.selection.best import Floats

FIRST, SECOND = np.array([0]), np.array([1])
BENT, WIDE = np.array([1.0, -2.0, 1.0, 0.0, 0.5]), np.array([3.0, -1.0, 0.0, 2.0, -4.0])


def alone(values: Floats) -> Sampled:
    """Cells without neighbouring rates."""
    windows = np.full((len(values), WINDOW, values.shape[-1]), math.nan)
    windows[:, 0] = values
    return Sampled(values, cell_noise(windows))


def once(*values: Floats, within: float | None = None) -> PairTests:
    return at_once(alone(np.array(values)), Pairs(FIRST, SECOND), within)


def test_of_five_seeds_it_is_welchs_test() -> None:
    tested, expected = once(BENT + 4, WIDE), ttest_ind(BENT + 4, WIDE, equal_var=False)
    assert tested.p[0] == pytest.approx(expected.pvalue)
    half_width = (expected.confidence_interval().high - expected.confidence_interval().low) / 2
    assert tested.half_width[0] == pytest.approx(half_width)


def test_an_interval_excludes_0_exactly_where_the_corrected_p_is_below_5_percent() -> None:
    """Three pairs of the same seeds, 2.5, 3 and 0.1 apart."""
    cells = alone(np.array([BENT, BENT + 2.5, BENT + 3.0, BENT + 3.1]))
    first, second = np.array([0, 0, 2]), np.array([1, 2, 3])
    tested = at_once(cells, Pairs(first, second), None)
    excludes_0 = np.abs(tested.difference) > tested.half_width
    assert excludes_0.tolist() == (tested.corrected_p < 0.05).tolist() == [True, True, False]


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_with_two_seeds_nothing_is_tested(num_seeds: int) -> None:
    tested = once(BENT[:num_seeds] + 100, WIDE[:num_seeds], within=1000.0)
    assert tested.difference[0] > 90
    assert (math.isnan(tested.p[0]), bool(tested.is_different[0]), bool(tested.is_equal[0])) == (True, False, False)


@pytest.mark.parametrize(("num_seeds", "p"), [(3, 2 / 20), (5, 2 / 252)])
def test_of_runs_without_any_spread_the_ranks_decide(num_seeds: int, p: float) -> None:
    """All 5 runs of one are above all 5 of the other in 2 of 252 ways to deal them; nothing says how wide it is."""
    tested = once(np.ones(num_seeds), np.full(num_seeds, 0.9))
    assert tested.p[0] == pytest.approx(p)
    assert math.isnan(tested.half_width[0])


def in_turn(values: Floats, within: float | None = None, max_seeds: int = 8) -> PairTests:
    pairs = (0, 1) if len(values) == 2 else (np.array([0, 0, 1]), np.array([1, 2, 2]))
    first, second = (np.atleast_1d(each) for each in pairs)
    return after_every_seed(values, Pairs(first, second), within, max_seeds)


NOISE = np.array([0.1, -0.2, 0.1, 0.05, -0.05, 0.0, 0.2, -0.2])


def test_a_pair_is_decided_at_its_first_significant_test() -> None:
    """By hand: p of Welch's test of the first seeds against the level at so many; 4 seeds are the first test."""
    apart = np.array([0.2, 0.2, 0.2, 0.2, 0.6, 0.6, 0.6, 0.6])
    values = np.array([NOISE + apart, NOISE[::-1]])
    levels = nominal_levels(0.05, FIRST_LOOK, 8)
    p = [ttest_ind(values[0, :n], values[1, :n], equal_var=False).pvalue for n in range(4, 9)]
    expected = next(n for n, pn, level in zip(range(4, 9), p, levels, strict=True) if pn < level)
    tested = in_turn(values)
    assert 4 < expected < 8
    assert (tested.num_seeds[0], bool(tested.is_different[0])) == (expected, True)
    assert tested.difference[0] == pytest.approx(values[0, :expected].mean() - values[1, :expected].mean())


def test_a_decision_stays_whatever_later_seeds_say() -> None:
    far = np.where(np.arange(8) < 4, 5.0, -5.0)
    tested = in_turn(np.array([NOISE + far, NOISE[::-1]]))
    assert (tested.num_seeds[0], tested.difference[0] > 0, bool(tested.is_different[0])) == (4, True, True)


def test_three_seeds_decide_nothing() -> None:
    tested = in_turn(np.array([NOISE[:3] + 5, NOISE[:3]]))
    assert (tested.num_seeds[0], bool(tested.is_different[0])) == (3, False)
    assert math.isnan(tested.half_width[0])
    assert tested.difference[0] == pytest.approx(5)


def test_a_lost_run_is_skipped() -> None:
    values = np.array([NOISE + 5, NOISE[::-1]])
    lost = np.insert(values, 1, math.nan, axis=-1)
    for kept, skipped in zip(in_turn(values), in_turn(lost), strict=True):
        assert kept.tolist() == skipped.tolist()


def test_equality_needs_an_interval_within_the_limit() -> None:
    values = np.array([NOISE, NOISE[::-1]])
    assert [bool(in_turn(values, within).is_equal[0]) for within in (None, 0.01, 1.0)] == [False, False, True]


def test_a_decided_pair_leaves_a_larger_level_to_the_others() -> None:
    """Two pairs are decided by 5; of the third the p of four seeds is between the levels of 3 pairs and of 1."""
    levels = [nominal_levels(0.05 / number, FIRST_LOOK, 8)[0] for number in (3, 1)]
    for shift in np.linspace(0.1, 0.6, 200):
        p = ttest_ind(NOISE[:4] + shift, NOISE[:4]).pvalue
        if levels[0] < p < levels[1]:
            break
    values = np.array([NOISE[:4] - 5, NOISE[:4], NOISE[:4] + shift])
    assert in_turn(values).is_different.tolist() == [True, True, True]
    assert in_turn(values[1:]).is_different.tolist() == [True]
