"""Several processes mirror what one would mirror, and end with the process that started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import RecordError
from lr_sweep.sweep.mirror import sync
from lr_sweep.sweep.mirror.client import tracking_uri
from lr_sweep.sweep.mirror.content import METRICS
from lr_sweep.tests.support.mirrored_record import find, new_mirror, points, write_curve, write_end
from lr_sweep.tests.support.mirrored_record import write_study as write_wanted

RUNS = ["aa", "bb", "cc", "dd"]


@pytest.fixture
def results(results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of four ended runs and one that trains."""
    monkeypatch.setattr(sync, "RUNS_PER_WRITER", 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    write_wanted(results, [*RUNS, "ee"])
    for run_id in RUNS[1:]:
        write_curve(results, run_id, 200)
        write_end(results, run_id, num_steps=20_000)
    write_curve(results, "ee", 1)
    return results


@pytest.mark.slow
def test_two_writers_bring_every_run_and_every_point_once(results: Path) -> None:
    uri = tracking_uri(results)
    assert new_mirror(results).missing() == RUNS
    sync.mirror_in_parallel(results, "small", uri)
    assert new_mirror(results).missing() == []
    assert new_mirror(results).sync_all() == 5
    assert [len(points(uri, run_id, metric)) for run_id in RUNS for metric in METRICS] == [4] * 7 + [
        51
    ] * 21  # every fourth, and the last
    assert len(find(uri, "sweep.kind", "run")) == 5
    assert len(find(uri, "sweep.kind", "study")) == 1


def test_a_damaged_curve_is_reported(results: Path) -> None:
    path = Paths(results).curve("bb")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordError, match="bb.parquet"):
        sync.mirror_in_parallel(results, "small", tracking_uri(results))


@pytest.mark.slow
@pytest.mark.parametrize("at_work_s", [0.0, 8.0], ids=["starting", "at work"])
@pytest.mark.parametrize("killed_by", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_writers_end_with_the_command(results: Path, killed_by: signal.Signals, at_work_s: float) -> None:
    script = (
        "import sys, lr_sweep.sweep.mirror.sync as sync; sync.RUNS_PER_WRITER = 2\n"
        "if __name__ == '__main__':\n"
        "    from lr_sweep.sweep.cli.parser import main; sys.exit(main(sys.argv[1:]))"
    )
    facts = Paths(results).facts("small")
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"mirror": "all"}))
    for run_id in RUNS:
        write_curve(results, run_id, 20_000)
    command = [sys.executable, "-c", script, "mlflow", "sync", "--results", str(results)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while len(writers := psutil.Process(process.pid).children(recursive=True)) < 3:  # and the one that tracks resources
        assert process.poll() is None
        time.sleep(0.2)
    time.sleep(at_work_s)  # at 0 they still import MLflow
    os.killpg(process.pid, killed_by) if killed_by == signal.SIGINT else process.kill()
    _, errors = process.communicate(timeout=60)
    assert psutil.wait_procs(writers, timeout=20)[1] == []
    if killed_by == signal.SIGINT:
        assert errors == "stopped\n"
