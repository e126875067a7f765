"""A searched study, killed with its whole process group in the middle of a round, then finished; with Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.tiny_study import ROOT, command_line, curves, environment, sweep
from lr_sweep.tests.sweep.study.test_search import searched

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SEARCH = "{sampler: gp, low: 1e-4, high: 1e-1, rates: 6, at_once: 4}"


def test_killed_in_the_last_round_and_resumed_equals_undisturbed(tmp_path: Path) -> None:
    """The last round is the Gaussian process's; it is killed once it is stored."""
    study, killed, undisturbed = searched(tmp_path, SEARCH), tmp_path / "killed", tmp_path / "undisturbed"
    command = command_line("run", study, "--results", killed, "--cpus", "2")
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 600
        while len(proposals(killed)) < 12:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for results in (killed, undisturbed):
        code, output = sweep("run", study, "--results", results, "--cpus", "2", timeout_s=600)
        assert code == 0, output
    pd.testing.assert_frame_equal(proposals(killed), proposals(undisturbed))
    assert curves(killed) == curves(undisturbed)


def proposals(results: Path) -> pd.DataFrame:
    path = Results(results).proposals("tiny")
    return pd.read_parquet(path) if path.exists() else pd.DataFrame()
