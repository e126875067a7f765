"""The gate seldom accepts a candidate without a gain: the short form of the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from lr_sweep.benchmarks.gating import RARE_FAILURES, RUNS, SEEDS, gating, greedy, streamed

NUMBER = 1000
ERROR = 0.05 + 3 * 0.0069
"""Three standard errors of a share of 5% above it."""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize("noise", RUNS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_without_a_gain_few_are_accepted(noise: str, seeds: int, rng: np.random.Generator) -> None:
    assert gating(noise, 0.0, seeds, NUMBER, rng).is_accepted.mean() <= ERROR


@pytest.mark.parametrize("seeds", SEEDS)
def test_candidates_that_rarely_fail_are_accepted_as_often_as_no_seed_fails(
    seeds: int, rng: np.random.Generator
) -> None:
    """0.95 ** 30 is 21%, 0.95 ** 20 is 36%: nothing shows a failure that has not happened."""
    share = gating(RARE_FAILURES, 0.0, seeds, NUMBER, rng).is_accepted.mean()
    assert 0.95**seeds - 0.18 < share < 0.95**seeds + 0.05


def test_a_gain_of_two_deviations_is_found_and_no_gain_costs_few_seeds(rng: np.random.Generator) -> None:
    assert gating("normal", 2.0, 20, NUMBER, rng).is_accepted.mean() > 0.98
    assert gating("normal", 0.0, 30, NUMBER, rng).num_seeds.mean() < 5.5


@pytest.mark.parametrize("noise", RUNS)
def test_a_stream_seldom_keeps_what_gains_nothing(noise: str) -> None:
    kept = streamed(noise, 200)
    assert (kept.false < 0.05, kept.accepted[kept.gains > 0].mean() > 0.7) == (True, True)
    assert greedy(noise, 200).false > 0.4
