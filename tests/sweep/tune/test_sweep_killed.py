"""`run` killed, interrupted, and run to its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.study_commands import CUT_SHORT
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.tiny_study import (
    ROOT,
    command_line,
    curves,
    environment,
    in_process,
    rows,
    sweep,
    trained_here,
    write_study,
)
from lr_sweep.trainables.checkpoint import checkpoints

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_interrupted_then_finished_equals_undisturbed(tmp_path: Path, is_killed: bool) -> None:
    """Perhaps SIGKILL to the whole process group, then Ctrl-C, then to the end; `status` looks on."""
    protocol = "{evaluate_every: 400, train_examples_evaluated: 100}"
    variants = ("frozen-pretrained", "unfrozen-random") if is_killed else ("unfrozen-random",)
    num_steps = 4800 if is_killed else 1600  # none ends before it is interrupted
    study = write_study(tmp_path, rates=(1e-2,), variants=variants, num_steps=num_steps, protocol=protocol)
    results = tmp_path / "results"
    if is_killed:
        with _started(study, results) as (process, wait_for):
            wait_for(lambda: _newest_steps(results) and curves(results))
            os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout
            assert CUT_SHORT in process.stdout.read()
        assert not rows(results)

    progress = Results(results).progress("tiny")
    started_at_ns = time.time_ns()
    with _started(study, results) as (process, wait_for):
        wait_for(lambda: progress.exists() and progress.stat().st_mtime_ns > started_at_ns)
        before = _newest_steps(results)
        wait_for(lambda: _newest_steps(results) != before)
        code, output = in_process("status", study, "--results", results)
        assert code == 0
        assert f"process {process.pid} on " in output
        with pytest.raises(UserError, match=f"is being written to by process {process.pid} "):
            Results(results).writing("tiny").__enter__()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(timeout=60) == 130  # takes 8 s on two busy cores
        assert process.stdout
        output = process.stdout.read()
        assert "stopped; the same command resumes from here" in output
        assert "Traceback" not in output
    assert not rows(results)
    assert all(step > before.get(run_id, 0) for run_id, step in _newest_steps(results).items())

    code, output = sweep("run", study, "--results", results, "--cpus", "2")
    assert code == 0, output
    assert "Traceback" not in output
    assert f"{len(variants)} runs wanted, {len(variants)} started" in output
    assert curves(results) == trained_here(study, tmp_path / "undisturbed")
    assert all(len(checkpoints(folder)) == 1 for folder in (results / "checkpoints").iterdir())


@contextlib.contextmanager
def _started(study: Path, results: Path) -> Iterator[tuple[subprocess.Popen[str], Callable[[Callable[[], Any]], None]]]:
    """Start `run` in a process group of its own; yield it and a function that waits for something while it runs."""
    process = subprocess.Popen(
        command_line("run", study, "--results", results, "--cpus", "2", "--checkpoint-every-s", "0.1"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )

    def wait_for(happened: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 120
        while not happened():
            assert process.poll() is None, process.stdout and process.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    try:
        yield process, wait_for
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _newest_steps(results: Path) -> dict[str, int]:
    """Steps of the newest checkpoints, by run id."""
    folders = (results / "checkpoints").glob("*")
    return {folder.name: int(newest.name.split("-")[1]) for folder in folders for newest in checkpoints(folder)[:1]}
