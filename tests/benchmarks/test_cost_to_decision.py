"""What conclusions cost, in small."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lr_sweep.analysis.statistics.decide import EQUAL, FIRST, SECOND, UNDECIDED
from lr_sweep.benchmarks.cost_to_decision import (
    NUM_RATES,
    POLICIES,
    Found,
    Truth,
    decide,
    grid,
    is_false,
    main,
    winners,
)

FAR_APART = np.array([30.0, 20.0, 10.0, 0.0])


def test_a_grid_trains_all_runs_and_winners_few() -> None:
    rng = np.random.default_rng(0)
    truth = Truth.drawn(FAR_APART, rng)
    assert grid(3)(truth, rng).runs == 4 * NUM_RATES * 3
    assert winners(2, 5)(truth, rng).runs == 4 * (NUM_RATES + 2 * 4)


def test_variants_far_apart_are_decided_with_two_fresh_seeds() -> None:
    rng = np.random.default_rng(0)
    found = decide(lambda truth, rng: truth.runs(3, rng))(Truth.drawn(FAR_APART, rng), rng)
    assert found.outcome.tolist() == [FIRST] * 6
    assert found.runs == 4 * NUM_RATES * 3 + 4 * 2


def test_false_conclusions_by_hand() -> None:
    """Pairs of means 2, 1, 1, 0: differences 1, 1, 2, 0, 1, 1; differences from 1.5 on are not equal."""
    outcome = np.array([FIRST, SECOND, EQUAL, FIRST, EQUAL, UNDECIDED])
    found = is_false(Found(runs=math.nan, outcome=outcome, chosen=np.zeros(4, int)), np.array([2.0, 1.0, 1.0, 0.0]))
    assert found.tolist() == [False, True, True, True, False, False]


def test_the_table_has_a_row_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--studies", "2"])
    assert capsys.readouterr().out.count("| all equal |") == len(POLICIES)
