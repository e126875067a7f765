"""The gate seldom accepts a candidate without a gain: the short form of the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from lr_sweep.benchmarks.gating import RUNS, gating, greedy, streamed
from lr_sweep.benchmarks.noises import GATED

NUMBER = 1000
ERROR = 0.05 + 3 * 0.0069
"""Three standard errors of a share of 5% above it."""
RARE = "candidate alone fails in 5%"


@pytest.mark.parametrize("noise", [name for name in GATED if not name.startswith(RARE)])
@pytest.mark.parametrize("number", [20, 30])
def test_without_a_gain_few_are_accepted(noise: str, number: int) -> None:
    answers = gating(noise, 0.0, number, number, NUMBER, np.random.default_rng(1))
    assert answers.is_accepted.mean() <= ERROR


def test_candidates_that_rarely_fail_are_accepted_as_often_as_no_seed_fails() -> None:
    """0.95 ** 30 is 21%, 0.95 ** 20 is 36%: nothing shows a failure that has not happened."""
    for number, none_failed in ((30, 0.95**30), (20, 0.95**20)):
        answers = gating(f"{RARE}, baseline 0.3", 0.0, number, number, NUMBER, np.random.default_rng(1))
        assert none_failed - 0.18 < answers.is_accepted.mean() < none_failed + 0.05


def test_a_gain_of_two_deviations_is_found_and_no_gain_costs_few_seeds() -> None:
    rng = np.random.default_rng(1)
    assert gating("normal", 2.0, 20, 20, NUMBER, rng).is_accepted.mean() > 0.98
    assert gating("normal", 0.0, 30, 30, NUMBER, rng).num_seeds.mean() < 5.5


@pytest.mark.parametrize("noise", RUNS)
def test_a_stream_seldom_keeps_what_gains_nothing(noise: str) -> None:
    kept = streamed(noise, 200)
    assert (kept.false < 0.05, kept.accepted[kept.gains > 0].mean() > 0.7) == (True, True)
    assert greedy(noise, 200).false > 0.4
