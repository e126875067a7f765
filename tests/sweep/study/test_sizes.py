"""What a study asks for is counted before it is written out: too much is refused at once, with the numbers."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.study.file import study_of

TINY: dict[str, Any] = {
    "study": "example",
    "tasks": {"digits": {"num_steps": 20}},
    "models": {"tiny": {"size": {"layers": 1, "heads": 1, "width": 4}}},
    "variants": ["frozen-random"],
    "learning_rates": [1e-3],
    "seeds": 1,
    "protocol": {"evaluate_every": 10},
}
TEN = [0.01 * number for number in range(1, 11)]
MODEL = TINY["models"]["tiny"]
VARIANT = {"initialisation": "random", "trained": ["output"]}


def refusal(**changes: Any) -> str:
    """What a study with these changes is refused with, in less memory than would hold what it asks for."""
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as error:
            study_of(TINY | changes, Path.cwd())
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    return str(error.value)


def test_entries_of_cells_are_counted() -> None:
    assert refusal(cells=[{}] * 1001) == "cells: got 1001 entries, want at most 1000"


def test_combinations_of_a_space_are_counted_with_the_cells() -> None:
    space = {"dropout": TEN, "input_dropout": TEN}
    search = {"low": 1e-4, "high": 1e-1, "rates": 8, "space": space}
    many = {f"v{number}": VARIANT | {"protocol": {"weight_decay": number / 500}} for number in range(201)}
    assert refusal(learning_rates=None, search=search, variants=many) == (
        "search.space: these are 100 combinations of values x 201 cells to check, want at most 20000; give fewer values"
    )


def test_rates_times_seeds_are_counted() -> None:
    grid = {"low": 1e-5, "high": 1e-1, "per_decade": 25}
    assert refusal(learning_rates=grid, seeds=1000) == (
        "tasks x models x variants x learning rates x seeds are 101000 runs, want at most 100000; "
        "split it into several studies, which share their runs"
    )
    assert refusal(seeds=10**9) == "seeds: got 1000000000, want less than or equal to 1000"


@pytest.mark.parametrize(("number", "lines"), [(100, 100), (10_000, 101)])
def test_the_first_hundred_mistakes_are_reported(number: int, lines: int) -> None:
    found = refusal(learning_rates=[-1.0 - index for index in range(number)]).splitlines()
    assert len(found) == lines
    assert found[99] == "learning_rates[99]: got -100.0, want greater than 0"
    assert found[100:] == ["there are more mistakes; these are the first 100"][: lines - 100]
