"""Compiled steps against the plain engine: the same curves, before and after runs have left."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from lr_sweep.tests.support.small_runs import CPU, TASKS, assert_close, plain, sweep_of, weights_for
from lr_sweep.trainables.stacked.engine import StackedTraining, compiled_dir, compiled_losses

COMPILERS = ("g++", "clang++")


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason=f"no C++ compiler: {' or '.join(COMPILERS)}")
def test_compiled_with_inductor_a_run_has_the_plain_engine_s_curve() -> None:
    compared_with_plain("unfrozen-random", "numbers")


@pytest.mark.slow
def test_what_is_compiled_has_the_plain_engine_s_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same graphs run operation by operation, which saves the minutes of a C++ compiler."""
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, mode: compiled(function, backend="aot_eager"))
    compared_with_plain("frozen-pretrained", "symbols")


def test_compiled_code_is_kept_by_user_torch_and_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # so that it is put back
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    compiled_losses(CPU)
    folder = compiled_dir()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
    assert folder.is_relative_to(tmp_path / "lr-sweep")
    monkeypatch.setattr(torch, "__version__", "1.0")
    assert compiled_dir() != folder
    compiled_losses(CPU)  # what is set stays
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)


def compared_with_plain(variant: str, task: str) -> None:
    runs = sweep_of(variant, readout="last_token")
    stack = StackedTraining(TASKS[task], weights_for(runs[0]), CPU, lambda: 1000.0, compiled=True)
    counters.clear()
    slots = stack.add(runs)
    stack.advance()
    stack.remove(slots[3:])  # runs of another number, then of one seed alone
    stack.advance()
    stack.remove(slots[2:3])
    stack.advance()
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 3
    for slot, num_steps in zip(slots, (30, 30, 20, 10), strict=True):
        assert slot.progress.step == num_steps
        oracle = plain(slot.run, num_steps, TASKS[task])
        assert_close(slot.progress.curve, oracle.progress.curve, 1e-4)
