"""The tests that are compared are the ones they are named after."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lr_sweep.analysis.statistics.comparisons import LEVEL, holm
from lr_sweep.benchmarks import pair_tests


@pytest.fixture
def drawn() -> np.ndarray:
    """Accuracies of one study: 2 tasks, 4 variants, 5 seeds."""
    return np.random.default_rng(0).normal(size=(1, 2, 4, 5))


def p_values(test: pair_tests.PairTest, drawn: np.ndarray) -> np.ndarray:
    t, dof = test(drawn)
    return 2 * stats.t.sf(np.abs(t), dof)


def test_welch_and_paired_are_scipy_s(drawn: np.ndarray) -> None:
    for pair, (one, other) in enumerate(pair_tests.PAIRS):
        ones, others = drawn[0, 1, one], drawn[0, 1, other]
        welch = stats.ttest_ind(ones, others, equal_var=False).pvalue
        assert p_values(pair_tests.welch, drawn)[0, 1, pair] == pytest.approx(welch)
        assert p_values(pair_tests.by_seed, drawn)[0, 1, pair] == pytest.approx(stats.ttest_rel(ones, others).pvalue)


def test_pooled_over_two_variants_is_student_s(drawn: np.ndarray) -> None:
    two = np.concatenate([drawn[:, :, :2], drawn[:, :, :2]], axis=2)  # the mean variance of four is that of two
    t, dof = pair_tests.pooled(two, (2,))
    student = stats.ttest_ind(drawn[0, 0, 0], drawn[0, 0, 1])
    assert t[0, 0, 0] == pytest.approx(student.statistic)
    assert dof[0, 0, 0] == 4 * (5 - 1)


def test_shrunk_variances_lie_between_their_own_and_the_common_one() -> None:
    """With equal noise nearly all is common: the test is the pooled one with more degrees of freedom than Welch's."""
    drawn = np.random.default_rng(1).normal(size=(200, 4, 4, 10))
    shrunk, _ = pair_tests.shrunk(drawn)
    pooled, _ = pair_tests.pooled(drawn, (1, 2))
    welch, _ = pair_tests.welch(drawn)
    assert np.abs(shrunk - pooled).mean() < 0.5 * np.abs(welch - pooled).mean()


def test_pairs_are_corrected_as_in_reports(drawn: np.ndarray) -> None:
    drawn[0, 0, 0] += 5
    p = p_values(pair_tests.welch, drawn).reshape(-1)
    found = pair_tests.distinguished(pair_tests.welch, drawn)[0]
    assert found.tolist() == (holm(p) < LEVEL).tolist()
    assert found.any()
