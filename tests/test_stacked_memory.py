"""The memory of a stack, predicted and measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.engine_cases import CELLS, run_of
from benchmarks.engine_memory import SIZES, in_a_process
from sweep.placement import Placement
from sweep.results import Results
from sweep.study import Resources
from sweep.trials import assignment
from tests.tiny_study import runs_of, write_study
from trainables import device_memory
from trainables.device_memory import share_memory
from trainables.stacked_memory import largest_stack, stack_bytes
from trainables.stacked_session import StackedSession

QUICK = [("small-frozen", 4), ("small-unfrozen", 4)]
REST = [(cell, number) for cell, sizes in SIZES.items() for number in sizes if (cell, number) not in QUICK]


@pytest.mark.parametrize(("cell", "number"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)])
def test_the_peak_is_predicted_within_a_fifth(cell: str, number: int) -> None:
    case = in_a_process(cell, number)
    assert case["predicted_bytes"] == pytest.approx(case["measured_bytes"], rel=0.2)


def test_one_run_more_takes_more_and_the_largest_stack_fits() -> None:
    cell = CELLS["small-unfrozen"]
    runs = [run_of(cell, seed=index // 4, learning_rate=10.0 ** -(index % 4)) for index in range(12)]
    sizes = [stack_bytes(runs[0], cell.shape, number, (number + 3) // 4, on_cpu=True) for number in range(1, 13)]
    assert sizes == sorted(set(sizes))
    for number, size in enumerate(sizes, start=1):
        assert largest_stack(runs, cell.shape, size, on_cpu=True) == number
    assert largest_stack(runs, cell.shape, 0, on_cpu=True) == 1


def test_a_session_trains_no_more_runs_at_once_than_fit(tmp_path: Path) -> None:
    study = write_study(tmp_path, rates=(1e-3, 3e-3, 1e-2), variants=("unfrozen-random",))
    runs = runs_of(study, tmp_path / "results")
    folder = tmp_path / "results"
    given = [assignment(run, Placement(resources=Resources()), Results(folder), folder, 0.0) for run in runs]
    two = stack_bytes(runs[0].run, runs[0].shape, 2, 1, on_cpu=True)
    assert StackedSession(given, 3, memory_bytes=two).num_places == 2
    assert StackedSession(given, 1, memory_bytes=two).num_places == 1
    assert StackedSession(given, 3).num_places == 3


def test_a_share_of_a_gpu_is_held_to(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []
    fake: Any = SimpleNamespace(
        set_per_process_memory_fraction=held.append,
        get_device_properties=lambda index: SimpleNamespace(total_memory=100.0),
    )
    monkeypatch.setattr(torch, "cuda", fake)
    assert share_memory("cuda", 0.25) == pytest.approx(100 * 0.25 * device_memory.USABLE)
    assert share_memory("cuda", 1.0) == pytest.approx(100 * device_memory.USABLE)
    assert held == [0.25]
