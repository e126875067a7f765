"""Early stopping with Ray: killed with its whole process group after the first decision, then finished."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lr_sweep.analysis.record.rungs import read_judgements, rungs_path
from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment, rows, sweep, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_decisions_survive_a_kill_and_take_effect(tmp_path: Path) -> None:
    study = write_study(
        tmp_path,
        rates=(1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
        variants=("unfrozen-random",),
        num_steps=3000,
        seeds=2,
        runs_per_trial=10,
        stop_early="{rule: halving, first: 200}",
        protocol="{evaluate_every: 200, train_examples_evaluated: 100}",
    )
    results = tmp_path / "results"
    process = subprocess.Popen(
        command_line("run", study, "--results", results, "--cpus", "1"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not rungs_path(results, "tiny").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    stored = read_judgements(results, "tiny")
    code, output = sweep("run", study, "--results", results, "--cpus", "1", timeout_s=600)
    assert code == 0, output
    judged = read_judgements(results, "tiny")
    assert judged[: len(stored)] == stored
    stopped = {each.learning_rate: each.step for each in judged if not each.kept}
    assert 0 < len(stopped) < 5
    for row in rows(results).values():
        rung = stopped.get(row["learning_rate"])
        assert (row["status"], row["stopped_at_step"]) == (("stopped", rung) if rung else ("complete", None))
        assert rung is None or rung <= row["num_steps"] < 3000
    assert "were stopped early" in output
