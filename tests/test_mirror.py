from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest

from analysis.record import CURVES, RUNS, WANTED, Columns, curve_path, run_path, table
from sweep.mirror import Mirror
from sweep.mirror_content import METRICS
from sweep.mirror_thread import MirrorThread
from sweep.mlflow_store import MirrorError, open_client, shown_uri, tracking_uri

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
START_MS = 1767268800000
CONTENT = {
    "task": "mnist",
    "learning_rate": 0.001,
    "seed": 0,
    "data_checksum": "d",
    "weights_checksum": None,
    "initialisation": "random",
    "trained": ["input", "output"],
    "model": {"layers": 2, "heads": 4},
    "protocol": {"batch_size": 8, "gradient_clip_norm": None},
}


def write(path: Path, rows: list[dict[str, Any]], columns: Columns) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(rows, columns), path)


def write_study(results: Path, run_ids: list[str], study: str = "small") -> None:
    labels = {"task": "mnist", "model": "tiny", "variant": "frozen-random", "learning_rate": 1e-3, "seed": 0}
    rest = {"num_steps": 400, "pretrained_on": None, "data_origin": "torchvision"}
    rows = [{"run_id": run_id, **labels, **rest} for run_id in run_ids]
    write(results / "studies" / study / "wanted.parquet", rows, WANTED)
    info = {"study": study, "title": "A small study", "format": 1}
    (results / "studies" / study / "study.json").write_text(json.dumps(info))


def write_curve(results: Path, run_id: str, num_evaluations: int, **changed: float) -> None:
    """Evaluations at steps 100, 200, ...: one every 10 s; validation accuracy 0.1, 0.2, ..."""
    rows = [
        {"run_id": run_id, "step": 100 * n, "train_loss": 2.0 / n, "train_accuracy": 0.5, "validation_loss": 1.0}
        | {"validation_accuracy": n / 10, "test_loss": 1.0, "test_accuracy": 0.25}
        | {"time_ms": START_MS + 10_000 * n, "elapsed_s": 10.0 * n}
        | changed
        for n in range(1, num_evaluations + 1)
    ]
    write(curve_path(results, run_id), rows, CURVES)


def write_end(results: Path, run_id: str, status: str = "complete", ended_s: int = 60, **changed: Any) -> None:
    row = {
        **{"run_id": run_id, "protocol_version": 1, "status": status, "num_steps": 400, "diverged_at_step": None},
        **{"failure": None, "task": "mnist", "model": "tiny", "variant": "frozen-random", "learning_rate": 1e-3},
        **{"seed": 0, "content": json.dumps(CONTENT), "pretrained_on": None, "weights_checksum": None},
        **{"data_checksum": "d", "data_origin": "torchvision", "device": "CPU", "wall_s": 60.0, "device_s": 60.0},
        **{"started_at": START, "finished_at": START + timedelta(seconds=ended_s), "attempts": 1},
        **{"git_commit": "abc123", "git_dirty": False, "versions": "{}"},
    }
    write(run_path(results, run_id), [row | changed], RUNS)


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables: making them takes seconds."""
    path = tmp_path_factory.mktemp("template") / "mlflow.db"
    open_client(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def results(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results directory with one complete run, `aa`, of four evaluations, and an empty store."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "results"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    write_study(folder, ["aa"])
    write_curve(folder, "aa", 4)
    write_end(folder, "aa")
    return folder


def new_mirror(results: Path, study: str = "small", uri: str | None = None) -> Mirror:
    """As a new process would: it knows nothing of what was mirrored before."""
    return Mirror(results, study, uri or tracking_uri(results))


def find(uri: str, tag: str, value: str) -> list[Any]:
    client = open_client(uri)
    experiment = client.get_experiment_by_name("lr-sweep")
    return list(client.search_runs([experiment.experiment_id], f"tags.`{tag}` = '{value}'"))


def points(uri: str, run_id: str, metric: str) -> list[tuple[int, float, int]]:
    (run,) = find(uri, "sweep.run_id", run_id)
    history = open_client(uri).get_metric_history(run.info.run_id, metric)
    return sorted((point.step, point.value, point.timestamp) for point in history)


def test_complete_run_is_mirrored_with_params_tags_times_and_points(results: Path) -> None:
    new_mirror(results).sync_all(["aa"])
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.run_id", "aa")
    assert run.info.run_name == "mnist/tiny/frozen-random lr=0.001 seed=0"
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("FINISHED", START_MS, START_MS + 60_000)
    assert run.data.params == {
        **{"task": "mnist", "model": "tiny", "variant": "frozen-random", "learning_rate": "0.001", "seed": "0"},
        **{"initialisation": "random", "trained": '["input", "output"]', "model.layers": "2", "model.heads": "4"},
        **{"protocol.batch_size": "8", "protocol.gradient_clip_norm": "null"},
    }
    assert run.data.tags["mlflow.source.git.commit"] == "abc123"
    assert run.data.tags["sweep.status"] == "complete"
    assert run.data.tags["sweep.data_origin"] == "torchvision"
    assert "sweep.pretrained_on" not in run.data.tags
    assert points(uri, "aa", "validation_accuracy") == [(100 * n, n / 10, START_MS + 10_000 * n) for n in range(1, 5)]
    (parent,) = find(uri, "sweep.study", "small")
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert parent.data.tags["mlflow.note.content"] == "A small study"
    assert (parent.info.status, parent.info.start_time, parent.info.end_time) == (
        "FINISHED",
        START_MS,
        START_MS + 60_000,
    )


def test_replay_changes_nothing(results: Path) -> None:
    for _ in range(3):
        mirror = new_mirror(results)
        mirror.sync_all(["aa", "aa"])
    uri = tracking_uri(results)
    assert len(find(uri, "sweep.kind", "run")) == len(find(uri, "sweep.kind", "study")) == 1
    assert all(len(points(uri, "aa", metric)) == 4 for metric in METRICS)


def test_lost_answer_does_not_double_points(results: Path) -> None:
    """The points arrive, but we never hear of it, and even the mark of a full mirror is missing."""
    mirror = new_mirror(results)
    mirror.sync_run("aa")
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.run_id", "aa")
    open_client(uri).delete_tag(run.info.run_id, "sweep.mirrored_end_ms")
    new_mirror(results).sync_all(["aa"])
    assert all(len(points(uri, "aa", metric)) == 4 for metric in METRICS)


def test_lost_answer_does_not_double_the_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow creates the run, but its answer is lost; the same mirror tries again."""
    mirror = new_mirror(results)
    mirror.sync_study()
    create_run = mirror._client.create_run

    def create_and_lose_the_answer(*args: Any, **kwargs: Any) -> None:
        create_run(*args, **kwargs)
        raise ConnectionError("connection reset")

    with monkeypatch.context() as broken:
        broken.setattr(mirror._client, "create_run", create_and_lose_the_answer)
        with pytest.raises(MirrorError, match="connection reset"):
            mirror.sync_run("aa")
    mirror.sync_run("aa")
    assert len(points(tracking_uri(results), "aa", "test_loss")) == 4


def test_evaluation_made_again_at_another_time_stays_one_point(results: Path) -> None:
    """After a crash an evaluation is repeated from a checkpoint: same step, later time."""
    run_path(results, "aa").unlink()
    new_mirror(results).sync_run("aa")
    write_curve(results, "aa", 4, time_ms=START_MS + 999_000)
    write_end(results, "aa")
    new_mirror(results).sync_run("aa")
    assert len(points(tracking_uri(results), "aa", "test_loss")) == 4


def test_run_grows_while_it_trains_and_continues_after_a_restart(results: Path) -> None:
    run_path(results, "aa").unlink()
    write_curve(results, "aa", 1)
    mirror = new_mirror(results)
    mirror.sync_all(["aa"])
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.run_id", "aa")
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("RUNNING", START_MS, None)
    assert run.data.params["variant"] == "frozen-random"
    assert run.data.tags["sweep.status"] == "training"
    assert find(uri, "sweep.study", "small")[0].info.status == "RUNNING"
    write_curve(results, "aa", 2)
    mirror.sync_run("aa")
    assert [step for step, _, _ in points(uri, "aa", "test_loss")] == [100, 200]
    write_curve(results, "aa", 4)
    write_end(results, "aa")
    new_mirror(results).sync_all(["aa"])
    assert [step for step, _, _ in points(uri, "aa", "test_loss")] == [100, 200, 300, 400]
    assert find(uri, "sweep.run_id", "aa")[0].info.status == "FINISHED"
    assert find(uri, "sweep.study", "small")[0].info.status == "FINISHED"


def test_raised_budget_reopens_the_run(results: Path) -> None:
    new_mirror(results).sync_run("aa")
    write_curve(results, "aa", 5)
    new_mirror(results).sync_run("aa")
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.run_id", "aa")
    assert (run.info.status, run.data.tags["sweep.status"]) == ("RUNNING", "training")
    write_end(results, "aa", num_steps=500, ended_s=90)
    new_mirror(results).sync_run("aa")
    (run,) = find(uri, "sweep.run_id", "aa")
    assert (run.info.status, run.info.end_time) == ("FINISHED", START_MS + 90_000)
    assert run.data.tags["sweep.num_steps"] == "500"
    assert len(points(uri, "aa", "test_loss")) == 5


def test_diverged_and_failed_runs_and_a_failure_that_is_put_right(results: Path) -> None:
    write_study(results, ["aa", "bb", "cc"])
    write_curve(results, "bb", 1)
    write_end(results, "bb", "diverged", num_steps=150, diverged_at_step=150)
    write_end(results, "cc", "failed", num_steps=0, failure="out of memory")
    new_mirror(results).sync_all(["aa", "bb", "cc"])
    uri = tracking_uri(results)
    (diverged,), (failed,) = find(uri, "sweep.run_id", "bb"), find(uri, "sweep.run_id", "cc")
    assert (diverged.info.status, diverged.data.tags["sweep.status"]) == ("FINISHED", "diverged")
    assert diverged.data.tags["sweep.diverged_at_step"] == "150"
    assert (failed.info.status, failed.data.tags["sweep.failure"]) == ("FAILED", "out of memory")
    assert failed.data.metrics == {}
    write_curve(results, "cc", 4)
    write_end(results, "cc", ended_s=200)
    new_mirror(results).sync_run("cc")
    (repaired,) = find(uri, "sweep.run_id", "cc")
    assert (repaired.info.status, repaired.data.tags["sweep.status"]) == ("FINISHED", "complete")
    assert "sweep.failure" not in repaired.data.tags


def test_missing_stays_missing(results: Path) -> None:
    write_curve(results, "aa", 4, train_loss=float("nan"), test_loss=float("inf"))
    new_mirror(results).sync_run("aa")
    (run,) = find(tracking_uri(results), "sweep.run_id", "aa")
    assert set(run.data.metrics) == set(METRICS) - {"train_loss", "test_loss"}


def test_run_without_anything_recorded_is_not_created(results: Path) -> None:
    write_study(results, ["aa", "bb"])
    new_mirror(results).sync_all(["aa", "bb"])
    uri = tracking_uri(results)
    assert len(find(uri, "sweep.kind", "run")) == 1
    assert find(uri, "sweep.study", "small")[0].info.status == "RUNNING"


def test_shared_run_stays_below_its_first_study_and_names_both(results: Path) -> None:
    write_study(results, ["aa"], study="second")
    new_mirror(results).sync_run("aa")
    new_mirror(results, "second").sync_all(["aa"])
    uri = tracking_uri(results)
    (run,), (first,) = find(uri, "sweep.run_id", "aa"), find(uri, "sweep.study", "small")
    assert run.data.tags["mlflow.parentRunId"] == first.info.run_id
    assert run.data.tags["sweep.studies"] == "second,small"
    assert find(uri, "sweep.study", "second")[0].info.status == "FINISHED"


def test_deleted_store_is_rebuilt_and_long_curves_go_in_whole_evaluations(results: Path, tmp_path: Path) -> None:
    """300 evaluations x 7 metrics are more than two batches of 1000 points."""
    write_curve(results, "aa", 300)
    write_end(results, "aa", num_steps=30_000)
    new_mirror(results).sync_all(["aa"])
    # MLflow keeps a deleted database open for the life of the process: a copy stands for a new process.
    copy = Path(shutil.copytree(results, tmp_path / "copy", ignore=shutil.ignore_patterns("mlflow*")))
    new_mirror(copy).sync_all(["aa"])
    for metric in METRICS:
        rebuilt = points(tracking_uri(copy), "aa", metric)
        assert len(rebuilt) == 300
        assert rebuilt == points(tracking_uri(results), "aa", metric)


def test_report_is_stored_below_the_results_directory(results: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.mkdir()
    (report / "report.md").write_text("what we found")
    mirror = new_mirror(results)
    mirror.log_report(report)
    mirror.log_report(report)
    (stored,) = (results / "mlflow-artifacts").rglob("report.md")
    assert stored.read_text() == "what we found"
    moved = Path(shutil.copytree(results, tmp_path / "moved"))
    with pytest.raises(MirrorError, match="was moved"):
        new_mirror(moved).log_report(report)


def test_user_server_is_preferred_and_passwords_are_not_shown(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracking_uri(results) == f"sqlite:///{results}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@host:1234/path")
    assert tracking_uri(results) == "https://me:secret@host:1234/path"
    assert shown_uri(tracking_uri(results)) == "https://host:1234/path"


def test_path_that_sqlite_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MirrorError, match="Rename the results directory"):
        tracking_uri(tmp_path / "a%20b")


def test_thread_mirrors_and_coalesces_notices() -> None:
    """While the first run is being mirrored, a hundred notices of the second come to one turn."""
    at_work, go_on, synced = threading.Event(), threading.Event(), []

    class Recorded(Mirror):
        def sync_run(self, run_id: str) -> None:
            at_work.set()
            assert go_on.wait(10)
            synced.append(run_id)

        def sync_study(self) -> None:
            synced.append("study")

    problems: list[str] = []
    thread = MirrorThread(Recorded(Path(), "small", "sqlite://"), problems.append)
    thread.changed("aa")
    assert at_work.wait(10)
    for _ in range(100):
        thread.changed("bb")
    assert thread.close(timeout_s=0.0) == ["aa", "bb"]
    go_on.set()
    assert thread.close(timeout_s=10.0) == []
    assert synced == ["aa", "bb", "study"]
    assert problems == []


def test_thread_that_was_told_nothing_touches_nothing(tmp_path: Path) -> None:
    assert MirrorThread(Mirror(tmp_path, "small", tracking_uri(tmp_path)), pytest.fail).close(10.0) == []
    assert list(tmp_path.iterdir()) == []


def test_one_bad_run_does_not_hold_up_the_others() -> None:
    synced: list[str] = []
    told: list[str] = []

    class OneBad(Mirror):
        def sync_run(self, run_id: str) -> None:
            if run_id == "bad":
                raise MirrorError("refused")
            synced.append(run_id)

        def sync_study(self) -> None:
            synced.append("study")

    thread = MirrorThread(OneBad(Path(), "small", "sqlite://"), told.append, retry_s=0.01, max_retry_s=0.01)
    thread.changed("bad", "aa", "bb")
    deadline = time.monotonic() + 10
    while len(synced) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert thread.close(10.0) == ["bad"]
    assert synced == ["aa", "bb"]
    assert len(told) == 1


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_unreachable_server_is_told_once_and_a_later_sync_catches_up(results: Path) -> None:
    write_study(results, ["aa", "bb"])
    write_curve(results, "bb", 2)
    problems: list[str] = []
    uri = f"http://me:secret@127.0.0.1:{closed_port()}"
    thread = MirrorThread(new_mirror(results, uri=uri), problems.append, retry_s=0.01, max_retry_s=0.05)
    thread.changed("aa", "bb")
    deadline = time.monotonic() + 20
    while not problems and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert sorted(thread.close(timeout_s=20.0)) == ["aa", "bb"]
    (problem,) = problems
    assert "training goes on" in problem
    assert "secret" not in problem
    good: list[str] = []
    thread = MirrorThread(new_mirror(results), good.append)
    thread.changed("aa", "bb")
    assert thread.close(timeout_s=30.0) == []
    assert good == []
    assert len(points(tracking_uri(results), "aa", "test_loss")) == 4
    assert len(points(tracking_uri(results), "bb", "test_loss")) == 2


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


def wait_for(port: int, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
            return
        except (URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(f"no MLflow server on port {port} after {timeout_s} s")


@pytest.mark.slow
def test_server_that_comes_late_goes_and_comes_back_has_each_point_once(results: Path, tmp_path: Path) -> None:
    port = closed_port()
    uri = f"http://127.0.0.1:{port}"
    run_path(results, "aa").unlink()
    write_curve(results, "aa", 2)
    problems: list[str] = []
    thread = MirrorThread(new_mirror(results, uri=uri), problems.append, retry_s=0.2, max_retry_s=0.5)
    thread.changed("aa")
    with mlflow_server(tmp_path, port):
        wait_for(port)
        deadline = time.monotonic() + 20
        while not (open_client(uri).get_experiment_by_name("lr-sweep") and find(uri, "sweep.run_id", "aa")):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    write_curve(results, "aa", 4)
    write_end(results, "aa")
    thread.changed("aa")
    with mlflow_server(tmp_path, port):
        wait_for(port)
        assert thread.close(timeout_s=30.0) == []
        assert all(len(points(uri, "aa", metric)) == 4 for metric in METRICS)
        (run,) = find(uri, "sweep.run_id", "aa")
        assert run.info.status == "FINISHED"
        report = tmp_path / "report"
        report.mkdir()
        (report / "report.md").write_text("what we found")
        new_mirror(results, uri=uri).log_report(report)
    assert [path.name for path in (tmp_path / "files").rglob("*.md")] == ["report.md"]
    assert len(problems) in (1, 2)
