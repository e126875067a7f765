"""Ray's memory monitor kills workers where memory is nearly full: their runs resume, and the sweep continues."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lr_sweep.tests.support.background import Background
from lr_sweep.tests.support.tiny_study import as_text, curves, rows, trained_here, write_study
from lr_sweep.tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
MARGIN = 4 * 2**30
"""Bytes from what is used now to where Ray begins to kill; the sweep itself takes a part of it."""


@pytest.mark.parametrize("together", [4, 1])
def test_runs_whose_worker_is_killed_resume(tmp_path: Path, together: int) -> None:
    study, results, log = long_study(tmp_path, together), tmp_path / "results", tmp_path / "printed"
    options = ("--results", results, "--cpus", "1", "--checkpoint-every-s", "1")
    with Background(log, study, *options, env=soon_full()) as run:
        run.wait_until(lambda: any((results / "checkpoints").rglob("*.safetensors")))
        fill_memory_until(run.process, lambda: "killed by Ray's memory monitor" in log.read_text())
        code, printed = run.ends()
    assert code == 0, printed
    assert "Traceback" not in printed
    expected = "they resume from their checkpoints, 2 at a time" if together > 1 else "; it is tried again: killed by"
    assert expected in printed
    assert {row["status"] for row in rows(results).values()} == {"complete"}
    assert as_text(curves(results)) == as_text(trained_here(study, tmp_path / "here"))


def soon_full() -> dict[str, str]:
    """Return settings of a Ray that kills workers when `MARGIN` more bytes of the machine are used than now."""
    memory = psutil.virtual_memory()
    threshold = (memory.total - memory.available + MARGIN) / memory.total
    return {"RAY_memory_usage_threshold": f"{threshold:.4f}", "RAY_memory_monitor_refresh_ms": "100"}


def long_study(folder: Path, together: int) -> Path:
    """Runs of a cell, of some seconds each."""
    return write_study(
        folder,
        rates=(1e-4, 1e-3, 3e-3, 1e-2),
        variants=("unfrozen-random",),
        num_steps=3000,
        runs_per_trial=together,
        protocol="{evaluate_every: 500, train_examples_evaluated: 100}",
    )


def fill_memory_until(process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    """Hold more memory, a quarter of a gigabyte at a time, until it has happened; then let it go."""
    held: list[bytearray] = []
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert process.poll() is None
        assert time.monotonic() < deadline
        if psutil.virtual_memory().available > 2 * 2**30:
            held.append(bytearray(b"x") * 2**28)
        time.sleep(0.2)
