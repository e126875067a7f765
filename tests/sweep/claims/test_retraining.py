from __future__ import annotations

from collections import Counter

import pytest

from lr_sweep.sweep.claims.retraining import chance, drawn, strata

WANTED = [f"run-{index}" for index in range(10)]


def test_half_of_the_draws_are_of_runs_that_decide() -> None:
    assert [num_drawn for _, num_drawn in strata(WANTED[:4], WANTED, 5)] == [3, 2]
    assert [num_drawn for _, num_drawn in strata(WANTED[:2], WANTED, 8)] == [2, 6]
    assert [num_drawn for _, num_drawn in strata(WANTED[:8], WANTED, 8)] == [6, 2]
    assert [num_drawn for _, num_drawn in strata(WANTED[:4], WANTED, 99)] == [4, 6]


def test_each_run_of_a_stratum_is_drawn_as_often_as_the_others() -> None:
    parts = strata(WANTED[:4], WANTED, 3)
    assert drawn(parts, 7) == drawn(parts, 7)
    counts = Counter(run_id for seed in range(3000) for run_id in drawn(parts, seed))
    assert all(abs(counts[run_id] / 3000 - 2 / 4) < 0.05 for run_id in WANTED[:4])
    assert all(abs(counts[run_id] / 3000 - 1 / 6) < 0.05 for run_id in WANTED[4:])


def test_the_chance_to_find_altered_runs_is_hypergeometric() -> None:
    # Missed: none of 1 altered run of 5 in 2 draws (6 of 10 pairs), and not the 2 of 10 in 1 draw.
    parts = [(WANTED[:5], 2), (WANTED, 1)]
    assert chance(parts) == pytest.approx(1 - 6 / 10 * 8 / 10)
    assert chance([(WANTED[:5], 5), ([], 0)]) == 1
