"""The replay of recorded grids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lr_sweep.benchmarks.search import WAYS, RecordedCell, read_cells, replay, tried_by

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("grid", ["quickstart", "optimizers-digits", "cifar10-small"])
def test_the_replay_of_the_whole_grid_is_the_recorded_table(grid: str) -> None:
    table = pd.read_csv(RESULTS / grid / "cells.csv").set_index(["task", "model", "variant"])
    cells = read_cells(RESULTS / grid / "learning_rates.csv")
    assert [cell.labels for cell in cells] == list(table.index)
    for cell in cells:
        answer = cell.answer(range(len(cell.rates)))
        assert answer is not None
        recorded = table.loc[cell.labels]
        assert (cell.rates[answer], cell.test[answer]) == (recorded["learning_rate"], recorded["test_mean"])
    assert replay(cells, lambda cell: range(len(cell.rates))) == (0.0, 0.0)


@pytest.mark.parametrize("way", WAYS)
def test_ways_try_distinct_rates_up_to_the_whole_grid(way: str) -> None:
    rates = np.logspace(-5, -1, 9)
    cell = RecordedCell(("a", "b", "c"), rates, np.linspace(0.1, 0.9, 9), np.linspace(0.1, 0.9, 9))
    for number in (2, 6, 9):
        tried = tried_by(way, cell, number, seed=1)
        assert len(set(tried)) == len(tried) == number
    assert tried == tried_by(way, cell, 9, seed=1)


def test_regret_and_wrong_orders_by_hand() -> None:
    """At the first rate alone both variants are at 0.5 and 0.4; at the best, 0.6 and 0.8: regrets 10 and 40 points."""
    rates = np.array([1e-3, 1e-2])
    cells = [
        RecordedCell(("t", "m", name), rates, np.array(values), np.array(values))
        for name, values in (("a", (0.5, 0.6)), ("b", (0.4, 0.8)))
    ]
    regret, wrong = replay(cells, lambda cell: [0])
    assert (round(regret, 9), wrong) == (25.0, 1.0)
