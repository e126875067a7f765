"""The sequential test of a candidate: by hand, against a published algorithm, and the short form of the simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lr_sweep.analysis.statistics.comparisons.decide import FIRST, SECOND, UNDECIDED
from lr_sweep.analysis.statistics.comparisons.sequential import (
    ALARM,
    conclude,
    drift,
    is_worse,
    looks,
    next_level,
)
from lr_sweep.benchmarks.gate_streams import streamed

BASE = np.array([1.0, 2.0, 3.0, 2.0])
"""Mean 2, variance 2/3 with 3 degrees of freedom."""


def test_a_look_is_a_t_test_with_pooled_noise() -> None:
    found = looks(BASE, np.array([3.0, 4.0, 3.5]))
    # pooled: (0.5 + 2) / 5 = 0.5; Welch's degrees of freedom are those of two variances with 5 and 3
    sem, share = math.sqrt(0.5 / 3 + (2 / 3) / 4), 0.5
    assert found.p[3] == pytest.approx(stats.t.sf(1.5 / sem, 1 / (share**2 / 5 + share**2 / 3)))
    least = 1.5 * math.sqrt(2 / 3)  # of the noisier side; the densities of the gain about it, and about 0
    assert found.ratio[3] == pytest.approx(stats.norm.logpdf(1.5, least, sem) - stats.norm.logpdf(1.5, 0, sem))
    assert (found.p[0], found.ratio[0]) == (1, 0)


def test_a_noisier_candidate_has_its_own_noise() -> None:
    found = looks(BASE, np.array([10.0, -6.0]))  # variance 128 with 1 degree of freedom
    share = 64 / (64 + 1 / 6)
    assert found.p[2] == pytest.approx(0.5)
    assert looks(BASE, np.array([12.0, -4.0])).p[2] == pytest.approx(
        stats.t.sf(2 / math.sqrt(64 + 1 / 6), 1 / (share**2 + (1 - share) ** 2 / 3))
    )


def test_a_gain_is_accepted_after_all_seeds_and_a_loss_rejected_early() -> None:
    base = np.arange(30.0) % 3
    found = conclude(looks(base, np.array([[3.0, 4.0] * 15, [-2.0] * 30, [1.4] * 30])))
    assert found.outcome.tolist() == [FIRST, SECOND, SECOND]
    assert found.num_seeds.tolist()[:2] == [30, 1]
    assert (found.evidence[0] < 1e-6, found.evidence[1]) == (True, 1)
    few = conclude(looks(base, np.array([3.0, 4.0] * 14)))
    assert (few.outcome, few.num_seeds) == (UNDECIDED, 28)
    assert conclude(looks(base, np.zeros(0))).outcome == UNDECIDED


def test_with_few_seeds_the_level_is_a_seventieth() -> None:
    base, shape = np.array([0.0, 2.0] * 10), np.array([0.0, 2.0] * 4)
    for gain, outcome in ((1.7, SECOND), (2.5, FIRST)):  # p is 1e-3 and 5e-5; a seventieth of 0.01 is 1.4e-4
        found = looks(base, shape + gain)
        assert conclude(found, 0.01, max_seeds=8).outcome == outcome
        assert found.p[8] < 0.01


def test_a_loss_is_shown_and_without_noise_any_loss_is() -> None:
    assert is_worse(BASE, np.array([-3.0, -4.0]))
    assert not is_worse(BASE, np.array([1.9, 2.0]))
    constant = np.full(8, 10.0)
    assert is_worse(constant, np.full(2, 9.9))
    assert not is_worse(constant, np.full(2, 10.0))


def test_levels_of_a_stream_are_those_of_addis() -> None:
    """The levels that online-fdr 1.0.0 gives for these p values (alpha 0.05, wealth 0.025, lambda 0.25, tau 0.5)."""
    evidence, accepted = [0.9, 0.3, 0.0005, 0.4, 1e-6, 0.45, 0.2, 0.6], [False, False, True, False, True, *[False] * 3]
    expected = [
        0.00273431,
        0.00273431,
        0.00090199,
        0.0036363,
        0.00137346,
        0.00684208,
        0.00257299,
        0.00257299,
        0.00257299,
    ]
    found = [next_level(evidence[:i], accepted[:i], 0.05) for i in range(len(evidence) + 1)]
    assert found == pytest.approx(expected, rel=1e-4)


def test_drift_needs_several_bad_nights() -> None:
    base = np.array([0.0, 2.0] * 15)  # a deviation of 1.03, with the mean's own error
    nights = np.array([1.0, -20.0, 1.0, 1.0, -2.0, -2.0, -2.0, -2.0])
    found = drift(base, nights)
    worst = 0.75 * 2.5 + 0.25 * stats.norm.ppf(0.5 + 30 / 62) - 0.7  # however bad, a night counts as much
    assert found[1] == pytest.approx(worst)
    assert found[7] == pytest.approx(4 * worst + found[3])
    assert (found >= ALARM).tolist() == [False] * 7 + [True]


@pytest.mark.parametrize("noise", ["normal", pytest.param("two modes, 30%", marks=pytest.mark.slow)])
def test_a_stream_seldom_keeps_what_gains_nothing(noise: str) -> None:
    found = streamed("gate", noise, 12)
    false, power, equal, _ = map(float, found.row())
    assert (false < 8, power > 80, equal < 5.5) == (True, True, True)
    assert float(streamed("one run", noise, 12).row()[0]) > 40
