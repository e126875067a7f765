"""The test of a candidate, the levels of a stream and the sum over nights, on values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lr_sweep.analysis.statistics.comparisons.sequential import (
    ALARM,
    DRIFT,
    conclude,
    drift,
    is_worse,
    likelihood_ratios,
    lower_bound,
    next_level,
)

BASE = np.array([1.0, 2.0, 3.0, 2.0])
"""Mean 2, variance 2/3 with 3 degrees of freedom."""


def test_the_bound_is_that_of_welchs_test() -> None:
    """The candidate's own variance is 0.25, however noisy the baseline is."""
    values = np.array([3.0, 4.0, 3.5])
    welch = stats.ttest_ind(values, BASE, equal_var=False, alternative="greater")
    assert lower_bound(BASE, values, 0.02) == pytest.approx(welch.confidence_interval(0.98).low)
    assert lower_bound(BASE, values, float(welch.pvalue)) == pytest.approx(0, abs=1e-12)


def test_a_likelihood_ratio_has_the_noise_of_the_noisier_side() -> None:
    """Variances are 2/3 of the baseline, 1/4 and 128 of the candidates."""
    for values, noise, gain in (([3.0, 4.0, 3.5], 2 / 3, 1.5), ([10.0, -6.0], 128.0, 0.0)):
        least, sem = 1.5 * math.sqrt(noise), math.sqrt(noise / len(values) + (2 / 3) / 4)
        expected = stats.norm.logpdf(gain, least, sem) - stats.norm.logpdf(gain, 0, sem)
        assert likelihood_ratios(BASE, np.array(values), 0.0, 1.5)[-1] == pytest.approx(expected)


def test_a_gain_is_accepted_after_all_seeds_and_a_loss_rejected_early() -> None:
    base = np.arange(30.0) % 3
    values = np.array([[3.0, 4.0] * 15, [-2.0] * 30, [1.1, 1.5] * 15])
    answers = conclude(base, values, 0.05, 30, 1.25)
    assert answers.is_accepted.tolist() == [True, False, False]
    assert answers.is_rejected.tolist() == [False, True, True]
    assert answers.num_seeds.tolist()[:2] == [30, 1]
    assert conclude(base, values[0, :28], 0.05, 30, 1.25) == (False, False, 28)
    assert conclude(base, np.zeros(0), 0.05, 30, 1.25) == (False, False, 0)


def test_a_loss_is_shown_from_five_seeds_on_and_without_noise_any_loss_is() -> None:
    assert is_worse(BASE, np.array([-3.0, -4.0, -3.0, -4.0, -3.0]))
    assert not is_worse(BASE, np.array([-3.0, -4.0, -3.0, -4.0]))
    assert not is_worse(BASE, np.array([1.9, 2.0] * 4))
    for level in (10.0, 0.0):
        assert is_worse(np.full(8, level), np.full(5, level - 0.1))
        assert not is_worse(np.full(8, level), np.full(5, level))


def test_two_modes_do_not_look_like_a_loss() -> None:
    """A candidate of two modes, as the baseline: its first three seeds are all in the lower one, the next ones not."""
    base = np.array([0.0, 1.0] * 10) + np.arange(20) / 100
    assert not is_worse(base, np.array([0.0, 0.001, 0.002, 1.0, 1.01, 0.0, 1.02]))


def test_levels_of_a_stream_share_the_error() -> None:
    """Shares k^-1.6 of 5%; each discovery adds the error once more."""
    shares = [stats.zipf(1.6).pmf(k) for k in range(1, 4)]
    assert next_level(0, np.array(0)) == pytest.approx(0.05 * shares[0])
    assert next_level(2, np.array(2)) == pytest.approx(3 * 0.05 * shares[2])
    assert sum(next_level(k, np.array(0)) for k in range(2000)) == pytest.approx(0.05, abs=0.001)


def test_drift_needs_several_bad_nights() -> None:
    base = np.array([0.0, 2.0] * 15)
    nights = np.array([1.0, -20.0, 1.0, 1.0, -2.0, -2.0, -2.0, -2.0])
    sums = drift(base, nights)
    worst = stats.norm.ppf(0.5 + 30 / 62) - DRIFT  # however bad, a night counts as much
    assert sums[:4] == pytest.approx([0, worst, worst - DRIFT, worst - 2 * DRIFT])
    assert sums[7] == pytest.approx(4 * worst + sums[3])
    assert (sums >= ALARM).tolist() == [False] * 7 + [True]
