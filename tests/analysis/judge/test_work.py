"""What a table of many cells costs, counted and not timed."""

from __future__ import annotations

import cProfile
import pstats
from itertools import product
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.write import write_judged
from lr_sweep.tests.support.judged import judge, rows_of

MOST_CALLS = 33_000
"""Of functions, for a further cell: 32,490 were counted, 39,100 when each cell had frames of its own."""
NUM_VARIANTS = 24


def calls(folder: Path, num_tasks: int) -> int:
    """Count the function calls of a report of a table."""
    rows = []
    for task, variant, decade, seed in product(range(num_tasks), range(NUM_VARIANTS), range(1, 5), range(3)):
        value = 0.5 + 0.01 * ((7 * variant + 3 * task) % 11) - 0.03 * abs(decade - 2 - variant % 2) + 0.001 * seed
        rows.append(f"t{task},v{variant},1e-{decade},{seed},{value:.4f},{value + 0.001 * seed:.4f}")
    folder.mkdir()
    path = folder / "table.csv"
    path.write_text(rows_of("task,variant,lr,seed,val_acc,test_acc", rows))
    with cProfile.Profile() as profile:
        write_judged(judge([path], Reading()), folder / "out")
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_further_cell_costs_few_calls(tmp_path: Path) -> None:
    calls(tmp_path / "first", 1)  # imports, and templates that are compiled once
    few, many = calls(tmp_path / "few", 2), calls(tmp_path / "many", 4)
    assert (many - few) / (2 * NUM_VARIANTS) < MOST_CALLS
