"""Memory of a stack, predicted and measured; and what a process keeps of steps and runs."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lr_sweep.benchmarks.engine_cases import CELLS, run_of
from lr_sweep.benchmarks.engine_memory import SIZES, measured
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.tiny_study import cohort_here, runs_of, write_study
from lr_sweep.trainables.stacked.layers import onednn_is_faster
from lr_sweep.trainables.worker import memory
from lr_sweep.trainables.worker.memory import largest_stack, share_memory, stack_bytes
from lr_sweep.trainables.worker.session import Session

FAULTS = """
import resource, torch
from lr_sweep.trainables.worker.memory import keep_freed_memory
keep_freed_memory()
def step():  # as an evaluation does: many tensors of megabytes, freed together
    tensors = [torch.zeros(2**18 * n) for n in (1, 5, 3, 7) * 4]
for _ in range(5): step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20): step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_memory_that_was_freed_is_used_again_without_page_faults() -> None:
    """Without `keep_freed_memory` about half of such processes fault 200,000 times and more, by their layout."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
        assert int(done.stdout) < 100


ONEDNN_BYTES = 3.0e7
"""Of oneDNN's kernels and workspaces, some 20 MB for any stack, where stacks use it."""


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "number"), [(cell, number) for cell, sizes in SIZES.items() for number in sizes])
def test_the_peak_is_predicted_within_a_fifth(cell: str, number: int) -> None:
    case = measured(cell, number)
    unpredicted = ONEDNN_BYTES if onednn_is_faster() else 0.0
    assert case["predicted_bytes"] == pytest.approx(case["measured_bytes"], rel=0.2, abs=unpredicted)


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
    two = stack_bytes(runs[0].run, runs[0].shape, 2, 1, on_cpu=True)
    three, one = (cohort_here(runs, Results(tmp_path / "results"), runs_at_once=number) for number in (3, 1))
    assert Session(three, memory_bytes=two).num_slots == 2
    assert Session(one, memory_bytes=two).num_slots == 1
    assert Session(three).num_slots == 3


def test_a_share_of_a_gpu_is_held_to(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []
    fake: Any = SimpleNamespace(
        set_per_process_memory_fraction=held.append,
        get_device_properties=lambda index: SimpleNamespace(total_memory=100.0),
    )
    monkeypatch.setattr(torch, "cuda", fake)
    assert share_memory("cuda", 0.25) == pytest.approx(100 * 0.25 * memory.USABLE)
    assert share_memory("cuda", 1.0) == pytest.approx(100 * memory.USABLE)
    assert held == [0.25]
