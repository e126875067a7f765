"""The difference that a number of seeds finds, against studies that are simulated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t, ttest_ind

from lr_sweep.analysis.statistics.comparisons.power import findable


@pytest.mark.parametrize(("num_seeds", "num_pairs"), [(3, 1), (3, 3), (5, 6), (10, 3)])
def test_welch_finds_it_in_80_percent_of_studies(num_seeds: int, num_pairs: int) -> None:
    rng, noise = np.random.default_rng(0), 0.02
    shift = findable(noise, num_seeds, num_pairs, is_fresh=True)
    values = rng.normal(0, noise, (2, 5_000, num_seeds))
    p = ttest_ind(values[0] + shift, values[1], axis=1, equal_var=False).pvalue
    assert np.mean(p < 0.05 / num_pairs) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(("num_seeds", "num_pairs"), [(3, 1), (3, 3), (4, 6)])
def test_own_seeds_find_it_with_the_noise_of_three_rates(num_seeds: int, num_pairs: int) -> None:
    """Plain: both variances are pooled over three rates of equal noise, and at least that of the first."""
    rng, noise = np.random.default_rng(0), 0.02
    shift = float(findable(noise, num_seeds, num_pairs, is_fresh=False))
    values = rng.normal(0, noise, (2, 5_000, 3, num_seeds))
    of_rates = values.var(-1, ddof=1)
    variance, dof = np.maximum(of_rates.mean(-1), of_rates[..., 0]), 3 * (num_seeds - 1)
    difference = values[0, :, 0].mean(-1) + shift - values[1, :, 0].mean(-1)
    welch_dof = variance.sum(0) ** 2 / (variance**2 / dof).sum(0)
    p = 2 * t.sf(abs(difference) / np.sqrt(variance.sum(0) / num_seeds), welch_dof)
    assert np.mean(p < 0.05 / num_pairs) == pytest.approx(0.8, abs=0.05)


def test_numbers_of_tables() -> None:
    """Two groups of 17 find a difference of one standard deviation (Cohen 1988); two seeds find none."""
    assert findable(1.0, 17, 1, is_fresh=True) == pytest.approx(0.99, abs=0.005)
    np.testing.assert_allclose(findable([1.0, 2.0], 17, 1, is_fresh=True), [0.99, 1.98], atol=0.01)
    assert findable(1.0, 2, 1, is_fresh=True) == np.inf
