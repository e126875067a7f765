"""The replays of recorded grids with fewer rates."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from lr_sweep.benchmarks.search import (
    FIRST_RATES,
    RecordedCell,
    read_table,
    scores,
    tried_by,
)
from lr_sweep.common.text import rate_text

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def _of_accuracy(report: Path) -> bool:
    with report.with_name("runs.csv").open() as runs:
        return "test_accuracy" in next(runs)


def _has_fresh_seeds(report: Path) -> bool:
    return report.with_name("fresh.csv").exists()


# What the replay is of; tables on fresh seeds are not of the runs that chose.
REPORTS = sorted(path for path in RESULTS.glob("*/report.md") if _of_accuracy(path) and not _has_fresh_seeds(path))


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.parent.name)
def test_the_replay_of_the_whole_grid_is_the_recorded_table(report: Path) -> None:
    recorded = recorded_cells(report)
    cells = read_table(report.with_name("runs.csv"))
    answers = {cell.labels: cell.answer(range(len(cell.rates))) for cell in cells}
    assert len(answers) == len(recorded)
    for cell in cells:
        answer = answers[cell.labels]
        assert answer is not None
        (numbers,) = (found for labels, found in recorded.items() if labels <= set(cell.labels))
        assert numbers == (rate_text(cell.rates[answer]), pytest.approx(100 * cell.test[answer], abs=0.0501))
    assert scores(cells, [*answers.values()])[0] == 0.0


def recorded_cells(report: Path) -> dict[frozenset[str], tuple[str, float]]:
    """Return the chosen rate and the test mean by the labels that a report shows of a cell."""
    table = report.read_text().partition("**Test accuracy.**")[2].partition("\n\n## ")[0]
    rows = [[entry.strip() for entry in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    found = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    return {
        frozenset(row[name] for name in ("task", "model", "variant") if name in row): (
            row["learning rate"],
            float(row["mean"].strip("*").split()[0]),
        )
        for row in found
    }


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.slow if way == "gp" else []) for way in FIRST_RATES]
)
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
    regret, wrong = scores(cells, [0, 0])
    assert (round(regret, 9), wrong) == (25.0, 1.0)


def test_the_best_rate_by_hand() -> None:
    """The smaller rate of equal means is chosen, and a rate without a value never."""
    values = np.array([0.3, math.nan, 0.5, 0.5, 0.1])
    cell = RecordedCell(("a", "b", "c"), np.logspace(-5, -1, 5), values, values)
    assert [cell.answer(tried) for tried in (range(5), [3, 2], [4, 1, 0], [1])] == [2, 2, 0, None]
