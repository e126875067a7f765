"""What conclusions cost, in small."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lr_sweep.benchmarks.cost_to_decision import (
    EQUAL,
    FIRST,
    NUM_RATES,
    RUNG,
    SECOND,
    UNDECIDED,
    Policy,
    is_false,
    recorded,
    synthetic,
)
from lr_sweep.benchmarks.simulated_studies import Truth, normal

FAR_APART = (30.0, 20.0, 10.0, 0.0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_grid_trains_all_runs_and_winners_few(rng: np.random.Generator) -> None:
    """Of nine first runs four are below the median."""
    truth = synthetic(FAR_APART, 3, rng)
    assert Policy(seeds=3).train(truth)[1].tolist() == [4 * NUM_RATES * 3] * 3
    assert Policy(seeds=5, winners=2).train(truth)[1].tolist() == [4 * (NUM_RATES + 2 * 4)] * 3
    runs, cost = Policy(seeds=2, winners=2, stops=True).train(truth)
    assert cost == pytest.approx(4 * (NUM_RATES - 4 * (1 - RUNG) + 2))
    assert (~np.isnan(runs.validation)).sum((1, 2, 3)).tolist() == [4 * (5 + 2)] * 3


@pytest.mark.parametrize(("policy", "num_fresh"), [({"fresh": 5}, 5), ({"fresh": 20, "until_decided": True}, 4)])
def test_variants_far_apart_are_decided_by_few_fresh_seeds(
    policy: dict[str, int], num_fresh: int, rng: np.random.Generator
) -> None:
    cost, outcome = Policy(seeds=3, **policy).conclude(synthetic(FAR_APART, 2, rng))
    assert outcome.tolist() == [[FIRST] * 6] * 2
    assert cost.tolist() == [4 * NUM_RATES * 3 + 4 * num_fresh] * 2


def test_false_conclusions_by_hand(rng: np.random.Generator) -> None:
    """Pairs of means 2, 1, 1, 0: differences 1, 1, 2, 0, 1, 1; differences from 1.5 on are not equal."""
    means = np.array([[[2.0], [1.0], [1.0], [0.0]]])
    truth = Truth(means=means, noise=lambda seeds: (normal(rng, (1, 4, 1, seeds)),) * 2)
    outcome = np.array([[FIRST, SECOND, EQUAL, FIRST, EQUAL, UNDECIDED]])
    assert is_false(truth, outcome).tolist() == [[False, True, True, True, False, False]]


def test_the_truth_of_a_recorded_study(rng: np.random.Generator) -> None:
    """Two variants, two rates, two seeds; at the second rate b has no value: the worst mean, and its own noise."""
    runs = pd.DataFrame(
        {
            **{"task": "t", "model": "m", "variant": ["a"] * 4 + ["b"] * 4, "learning_rate": [1.0, 1.0, 2.0, 2.0] * 2},
            "test": [0.5, 0.7, 0.8, 0.8, 0.1, 0.3, np.nan, np.nan],
        }
    )
    (truth,) = recorded(runs, 4000, rng)
    assert truth.means[0] == pytest.approx(np.array([[0.6, 0.8], [0.2, 0.2]]))
    spread = np.std([0.5, 0.7], ddof=1)
    _, noise = truth.noise(2)
    assert noise.std((0, 3)) == pytest.approx(np.array([[spread, 0.0], [spread, spread]]), rel=0.05)
