"""Importance of axes: the runs and seeds that it is computed from."""

from __future__ import annotations

import time

import pandas as pd

from lr_sweep.analysis.statistics.importance import importances


def runs(num_seeds: int) -> pd.DataFrame:
    """The rate makes all the difference, the variant and the seed next to none."""
    return pd.DataFrame(
        [
            {"task": "t", "model": "m", "variant": variant, "learning_rate": rate, "seed": seed}
            | {"validation_accuracy": 0.2 + 0.1 * index + 1e-4 * (seed % 3)}
            for seed in range(num_seeds)
            for variant in ("a", "b")
            for index, rate in enumerate((1e-4, 1e-3, 1e-2, 1e-1))
        ]
    )


def test_of_many_seeds_some_are_looked_at_in_seconds() -> None:
    began = time.process_time()
    (row,) = importances(runs(500)).to_dict("records")
    assert time.process_time() - began < 20  # 15 seeds would take a hundred
    assert row["note"] == "from 8 of 500 seeds, drawn at random"
    assert row["num_runs"] == 4000
    assert row["learning_rate"] > 0.9


def test_of_few_seeds_all_are_looked_at() -> None:
    (row,) = importances(runs(3)).to_dict("records")
    assert row["note"] == ""
