"""What conclusions cost, in small."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lr_sweep.analysis.statistics.comparisons.decide import EQUAL, FIRST, SECOND, UNDECIDED
from lr_sweep.benchmarks.cost_to_decision import NUM_RATES, RUNG, Policy, Truth, is_false, recorded

FAR_APART = np.array([30.0, 20.0, 10.0, 0.0])


def test_a_grid_trains_all_runs_and_winners_few() -> None:
    rng = np.random.default_rng(0)
    truth = Truth.drawn(FAR_APART, rng)
    assert Policy(seeds=3).conclude(truth, rng).runs == 4 * NUM_RATES * 3
    assert Policy(seeds=5, winners=2).conclude(truth, rng).runs == 4 * (NUM_RATES + 2 * 4)
    stopped = Policy(seeds=2, winners=2, stops=True).conclude(truth, rng).runs
    assert stopped == pytest.approx(4 * (NUM_RATES - 4 * (1 - RUNG) + 2))  # four of nine are below the median


def test_variants_far_apart_are_decided_with_three_fresh_seeds_or_fewer() -> None:
    rng = np.random.default_rng(0)
    found = Policy(seeds=3, fresh=20).conclude(Truth.drawn(FAR_APART, rng), rng)
    assert found.outcome.tolist() == [FIRST] * 6
    assert found.runs <= 4 * NUM_RATES * 3 + 4 * 3


def test_false_conclusions_by_hand() -> None:
    """Pairs of means 2, 1, 1, 0: differences 1, 1, 2, 0, 1, 1; differences from 1.5 on are not equal."""
    truth = Truth(means=np.zeros((4, 1)), deviations=np.ones((4, 1)), within=1.5)
    outcome = np.array([FIRST, SECOND, EQUAL, FIRST, EQUAL, UNDECIDED])
    assert is_false(outcome, np.array([2.0, 1.0, 1.0, 0.0]), truth).tolist() == [False, True, True, True, False, False]


def test_the_truth_of_a_recorded_study() -> None:
    """Two variants, two rates, two seeds; at the second rate b has no value: the worst mean, and its own noise."""
    runs = pd.DataFrame(
        {
            **{"task": "t", "model": "m", "variant": ["a"] * 4 + ["b"] * 4, "learning_rate": [1.0, 1.0, 2.0, 2.0] * 2},
            "test_accuracy": [0.5, 0.7, 0.8, 0.8, 0.1, 0.3, np.nan, np.nan],
        }
    )
    (truth,) = recorded(runs)
    assert truth.means == pytest.approx(np.array([[0.6, 0.8], [0.2, 0.2]]))
    spread = np.std([0.5, 0.7], ddof=1)
    assert truth.deviations == pytest.approx(np.array([[spread, 0.0], [spread, spread]]))
