"""Levels of each look, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from lr_sweep.analysis.statistics.comparisons.spending import SPENDING, nominal_levels


def test_one_look_has_the_whole_error() -> None:
    assert nominal_levels(0.05, 5, 5) == pytest.approx([0.05])


def test_two_looks_have_it_together() -> None:
    """At half of the seeds the correlation of both statistics is sqrt(1 / 2)."""
    first, second = nominal_levels(0.05, 1, 2)
    assert first == pytest.approx(0.05 * 0.5**SPENDING)
    bounds = norm.isf(np.array([first, second]) / 2)
    both = multivariate_normal([0, 0], [[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]])
    assert both.cdf(bounds, lower_limit=-bounds) == pytest.approx(0.95, abs=1e-4)
