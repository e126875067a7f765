"""The replay of recorded grids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lr_sweep.analysis.statistics.rates.refinement import Observation
from lr_sweep.benchmarks.recorded_cells import Curves, RecordedCell, Replay, read_cells
from lr_sweep.benchmarks.search import WAYS, replayed, scores
from lr_sweep.common.text import rate_text
from lr_sweep.sweep.study.settings import StopEarly

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def _of_accuracy(report: Path) -> bool:
    with report.with_name("runs.csv").open() as runs:
        return "test_accuracy" in next(runs)


REPORTS = sorted(filter(_of_accuracy, RESULTS.glob("*/report.md")))  # what the replay is of


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.parent.name)
def test_the_replay_of_the_whole_grid_is_the_recorded_table(report: Path) -> None:
    recorded = recorded_cells(report)
    cells = read_cells(report.with_name("runs.csv"))
    answers = {cell.labels: cell.answer(range(len(cell.rates))) for cell in cells}
    assert answers.keys() == recorded.keys()
    for cell in cells:
        answer = answers[cell.labels]
        assert answer is not None
        rate, *means = recorded[cell.labels]
        assert rate_text(cell.rates[answer]) == rate
        assert [100 * cell.validation[answer], 100 * cell.test[answer]] == pytest.approx(means, abs=0.0501)
    assert scores(cells, answers)[0] == 0.0


def recorded_cells(report: Path) -> dict[tuple[str, str, str], tuple[str, float, float]]:
    """Return the chosen rate, the validation mean and the test mean by task, model and variant, as a report shows."""
    table = report.read_text().partition("**Every cell at its chosen learning rate.**")[2].partition("\n\n## ")[0]
    rows = [[entry.strip() for entry in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    found = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    return {
        (row["task"], row["model"], row["variant"]): (
            row["learning rate"],
            float(row["validation, mean"]),
            float(row["test, mean ± SEM"].partition(" ± ")[0]),
        )
        for row in found
    }


@pytest.mark.parametrize("way", WAYS)
def test_ways_try_distinct_rates_up_to_the_whole_grid(way: str) -> None:
    rates = np.logspace(-5, -1, 9)
    cell = RecordedCell(("a", "b", "c"), rates, np.linspace(0.1, 0.9, 9), np.linspace(0.1, 0.9, 9))
    for number in (2, 6, 9):
        tried = replayed(way, cell, number, seed=1).tried
        assert len(set(tried)) == len(tried) == number
    assert tried == replayed(way, cell, 9, seed=1).tried


def test_regret_and_wrong_orders_by_hand() -> None:
    """At the first rate alone both variants are at 0.5 and 0.4; at the best, 0.6 and 0.8: regrets 10 and 40 points."""
    rates = np.array([1e-3, 1e-2])
    cells = [
        RecordedCell(("t", "m", name), rates, np.array(values), np.array(values))
        for name, values in (("a", (0.5, 0.6)), ("b", (0.4, 0.8)))
    ]
    regret, wrong = scores(cells, {cell.labels: 0 for cell in cells})
    assert (round(regret, 9), wrong) == (25.0, 1.0)


def test_early_stopping_by_hand() -> None:
    """Of 3 rates one is kept at the first of 9 evaluations: the fast starter, though the second ends higher."""
    best = np.array([[0.1] * 9, [0.2] + [0.9] * 8, [0.3] + [0.4] * 8])
    steps = np.arange(1, 10) * 10
    cost = np.tile(2.0 * steps, (3, 1))
    curves = Curves(steps=steps, best=best, running=best, run_steps=cost, seconds=cost / 10)
    cell = RecordedCell(("a", "b", "c"), np.array([1e-3, 1e-2, 1e-1]), best[:, -1], best[:, -1], curves)
    stopping, whole = Replay(cell, StopEarly()), Replay(cell, None)
    for each in (stopping, whole):
        each.train([0, 1, 2])
    assert (stopping.answer, stopping.stopped, stopping.run_steps, stopping.seconds) == (2, {0: 10, 1: 10}, 220, 22)
    assert (whole.answer, whole.run_steps, whole.seconds) == (1, *cell.whole_cost) == (1, 540, 54)
    assert stopping.observation(1) == Observation(1e-2, "stopped", None)
