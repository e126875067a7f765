"""The replay of seeds for the winners alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lr_sweep.benchmarks.recorded_cells import Curves, RecordedCell
from lr_sweep.benchmarks.winners import Grid, read_table, replayed, rows
from lr_sweep.sweep.study.settings import StopEarly

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_the_best_of_the_first_seed() -> None:
    values = np.array([0.3, math.nan, 0.5, 0.5, 0.1])
    cell = RecordedCell(("a", "b", "c"), np.logspace(-5, -1, 5), values, values)
    assert cell.best(range(5), 2) == [2, 3]
    assert cell.best([0, 1, 4], 2) == [0, 4]
    assert (cell.answer(range(5)), cell.answer([1])) == (2, None)


def test_one_winner_by_hand(tmp_path: Path) -> None:
    """By seed 0 the first rate wins, by seed 1 the second, which has the better mean: 60 on test data against 40.

    One winner trains 3 of 4 runs. Its regret is 20 points after seed 0, and nothing after seed 1.
    """
    labels = {"task": "t", "model": "m", "variant": "v"}
    values = {(1e-3, 0): 0.5, (1e-3, 1): 0.3, (1e-2, 0): 0.4, (1e-2, 1): 0.8}
    runs = [
        labels
        | {"learning_rate": rate, "seed": seed, "status": "complete"}
        | {"validation_accuracy": value, "test_accuracy": value}
        for (rate, seed), value in values.items()
    ]
    pd.DataFrame(runs).to_csv(tmp_path / "runs.csv")
    first, second, _ = rows(read_table(tmp_path / "runs.csv"))
    assert first[:4] == (1, 0.75, pytest.approx(10.0), pytest.approx(20.0))
    assert second[:4] == (2, 1.0, 0.0, 0.0)


def test_a_rule_stops_runs_of_the_first_seed_by_hand() -> None:
    """Of 3 rates one is kept at the first of 9 evaluations of 10 steps: 90 + 2 x 10 steps, then 90 for the other."""
    best = np.array([[0.1] * 9, [0.2] * 9, [0.3] * 9])
    steps = np.arange(1, 10) * 10
    of_two, of_one = (
        Curves(steps=steps, best=best, running=best, run_steps=cost, seconds=cost)
        for cost in (np.tile(2.0 * steps, (3, 1)), np.tile(1.0 * steps, (3, 1)))
    )
    rates = np.array([1e-3, 1e-2, 1e-1])
    cell, first = (
        RecordedCell(("a", "b", "c"), rates, best[:, -1], best[:, -1], curves) for curves in (of_two, of_one)
    )
    answer = replayed(cell, first, seeds=2, number=2, rule=StopEarly())
    assert (answer.index, answer.run_steps, answer.of) == (2, 90 + 20 + 90, 540)
    row = next(rows(Grid("g", [cell], {0: [first], 1: [first]}), StopEarly()))
    assert row[1:4] == (200 / 540, 0.0, 0.0)


@pytest.mark.parametrize("grid", ["optimizers-digits", "bits-small"])
def test_as_many_winners_as_rates_are_the_whole_grid(grid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lr_sweep.benchmarks.winners.NUMBERS", (11,))
    (row,) = rows(read_table(RESULTS / grid / "runs.csv"))
    assert row[2:] == (0.0, 0.0, 0.0)
