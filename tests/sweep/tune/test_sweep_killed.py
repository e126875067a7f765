"""`run` killed, interrupted, and run to its end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.background import Background
from lr_sweep.tests.support.tiny_study import curves, rows, succeeds, swept, trained_here, write_study
from lr_sweep.trainables.checkpoint import checkpoints

pytestmark = pytest.mark.cluster


@pytest.mark.slow
def test_killed_interrupted_and_finished_equals_undisturbed(tmp_path: Path) -> None:
    """SIGKILL to the whole process group, then Ctrl-C, then to the end; `status` looks on."""
    protocol = "{evaluate_every: 400, train_examples_evaluated: 100}"
    variants = ("frozen-pretrained", "unfrozen-random")
    num_steps = 4800  # none ends before it is interrupted
    study = write_study(tmp_path, rates=(1e-2,), variants=variants, num_steps=num_steps, protocol=protocol)
    results = tmp_path / "results"
    command = (study, "--results", results, "--cpus", "2", "--checkpoint-every-s", "0.1")
    with Background(tmp_path / "killed", *command) as run:
        run.wait_until(lambda: _newest_steps(results) and curves(results))
    assert not rows(results)
    progress = Results(results).progress("tiny")
    started_at_ns = time.time_ns()
    with Background(tmp_path / "stopped", *command) as run:
        run.wait_until(lambda: progress.exists() and progress.stat().st_mtime_ns > started_at_ns)
        before = _newest_steps(results)
        run.wait_until(lambda: _newest_steps(results) != before)
        output = succeeds("status", study, "--results", results)
        assert f"process {run.process.pid} on " in output
        with pytest.raises(UserError, match=f"is being written to by process {run.process.pid} "):
            Results(results).writing("tiny").__enter__()
        os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does
        code, output = run.ends()
    assert code == 130
    assert "stopped; the same command resumes from here" in output
    assert "Traceback" not in output
    assert not rows(results)
    assert all(step > before.get(run_id, 0) for run_id, step in _newest_steps(results).items())
    output = swept("run", study, "--results", results, "--cpus", "2")
    assert "Traceback" not in output
    assert f"{len(variants)} runs wanted, {len(variants)} started" in output
    assert curves(results) == trained_here(study, tmp_path / "undisturbed")
    assert all(len(checkpoints(folder)) == 1 for folder in (results / "checkpoints").iterdir())


def _newest_steps(results: Path) -> dict[str, int]:
    """Steps of the newest checkpoints, by run id."""
    folders = (results / "checkpoints").glob("*")
    return {folder.name: int(newest.name.split("-")[1]) for folder in folders for newest in checkpoints(folder)[:1]}
