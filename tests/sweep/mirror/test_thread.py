"""The mirror in the background: a server that is gone, slow or late, or that refuses a run."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.sweep.mirror.client import MirrorError, open_client, tracking_uri
from lr_sweep.sweep.mirror.content import metric_names
from lr_sweep.sweep.mirror.mirror import Mirror, MirrorThread
from lr_sweep.tests.support.mirrored_record import find, new_mirror, points, write_curve, write_end
from lr_sweep.tests.support.waiting import free_port, mlflow_answers, wait_until


def test_a_bad_run_holds_up_no_other_but_the_study_which_closes_last() -> None:
    synced: list[str] = []
    problems: list[str] = []

    class OneBad(Mirror):
        def sync_run(self, run_id: str) -> None:
            if run_id == "bad":
                raise MirrorError("refused")
            synced.append(run_id)

        def close_study(self) -> None:
            synced.append("study")

    thread = MirrorThread(OneBad(Path(), "small", "sqlite://"), problems.append, retry_s=0.01, max_retry_s=0.01)
    thread.changed("bad", "aa", "bb")
    wait_until(lambda: len(synced) == 2, "two runs")
    assert thread.close(10.0) == ["bad"]
    assert synced == ["aa", "bb"]
    assert problems == ["refused; training continues, and mirroring is tried again"]
    thread = MirrorThread(OneBad(Path(), "small", "sqlite://"), pytest.fail)
    thread.changed("cc")
    assert thread.close(10.0) == []
    assert synced == ["aa", "bb", "cc", "study"]


def test_thread_without_notices_touches_nothing(tmp_path: Path) -> None:
    assert MirrorThread(Mirror(tmp_path, "small", tracking_uri(tmp_path)), pytest.fail).close(10.0) == []
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_never_answers_delays_the_end_by_its_patience_alone(tmp_path: Path) -> None:
    """Nothing was trained, so that the report is all that is put into MLflow."""
    forever = threading.Event()

    class Stuck(Mirror):
        def log_report(self, folder: Path) -> None:
            forever.wait(60)

    thread = MirrorThread(Stuck(tmp_path, "small", "sqlite://"), pytest.fail)
    assert thread.finish(tmp_path, 0.1) == ["the report is not in MLflow: no answer within 0 s"]
    forever.set()


def test_a_locked_database_is_reported_with_what_to_do(results: Path) -> None:
    problems: list[str] = []
    with closing(sqlite3.connect(results / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        thread = MirrorThread(new_mirror(results), problems.append)
        thread.changed("aa")
        assert thread.finish(results, 0.1) == [
            "not in MLflow yet: 1 run; the next `run` of this study mirrors the rest"
        ]


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/server.db",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.slow
def test_server_that_starts_late_and_restarts_has_each_point_once(results: Path, tmp_path: Path) -> None:
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    Paths(results).run("aa").unlink()
    write_curve(results, "aa", 2)
    problems: list[str] = []
    thread = MirrorThread(new_mirror(results, uri=uri), problems.append, retry_s=0.2, max_retry_s=0.5)
    thread.changed("aa")
    with mlflow_server(tmp_path, port):
        wait_until(lambda: mlflow_answers(port), "MLflow", 120.0)
        client = open_client(uri)
        wait_until(lambda: client.get_experiment_by_name("lr-sweep") and find(uri, "sweep.run_id", "aa"), "the run")
    write_curve(results, "aa", 4)
    write_end(results, "aa")
    thread.changed("aa")
    with mlflow_server(tmp_path, port):
        wait_until(lambda: mlflow_answers(port), "MLflow", 120.0)
        assert thread.close(timeout_s=30.0) == []
        assert all(len(points(uri, "aa", metric)) == 4 for metric in metric_names(ACCURACY))
        (run,) = find(uri, "sweep.run_id", "aa")
        assert run.info.status == "FINISHED"
        report = tmp_path / "report"
        report.mkdir()
        (report / "report.md").write_text("what we found")
        new_mirror(results, uri=uri).log_report(report)
    assert [path.name for path in (tmp_path / "files").rglob("*.md")] == ["report.md"]
    assert len(problems) in (1, 2)
