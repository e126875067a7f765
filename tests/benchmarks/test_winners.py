"""The replay of seeds for the winners alone."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.benchmarks.winners import rows, winners

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_the_best_of_the_first_seed() -> None:
    assert winners([0.3, math.nan, 0.5, 0.5, 0.1], 2) == [2, 3]
    assert winners([math.nan, 0.2], 2) == [1]


def test_one_winner_by_hand(tmp_path: Path) -> None:
    """By seed 0 the first rate wins, by seed 1 the second, which has the better mean: 60 on test data against 40.

    One winner trains 3 of 4 runs. Its regret is 20 points after seed 0, and nothing after seed 1.
    """
    labels = {"task": "t", "model": "m", "variant": "v"}
    values = {(1e-3, 0): 0.5, (1e-3, 1): 0.3, (1e-2, 0): 0.4, (1e-2, 1): 0.8}
    runs = [
        labels | {"learning_rate": rate, "seed": seed, "validation_accuracy": value}
        for (rate, seed), value in values.items()
    ]
    rates = [
        labels | {"learning_rate": rate, "num_values": 2, "validation_mean": mean, "test_mean": mean}
        for rate, mean in ((1e-3, 0.4), (1e-2, 0.6))
    ]
    pd.DataFrame(runs).to_csv(tmp_path / "runs.csv")
    pd.DataFrame(rates).to_csv(tmp_path / "learning_rates.csv")
    first, second, _ = rows(tmp_path / "runs.csv")
    assert first.split(" | ")[1:5] == ["1", "75%", "10.00", "20.00"]
    assert second.split(" | ")[1:5] == ["2", "100%", "0.00", "0.00"]


@pytest.mark.parametrize("grid", ["optimizers-digits", "bits-small"])
def test_as_many_winners_as_rates_are_the_whole_grid(grid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lr_sweep.benchmarks.winners.NUMBERS", (11,))
    (row,) = rows(RESULTS / grid / "runs.csv")
    assert row.split(" | ")[3:5] == ["0.00", "0.00"]
