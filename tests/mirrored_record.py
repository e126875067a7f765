"""A hand-made record to mirror, and questions to an MLflow store."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from analysis.columns import CURVES, RUNS, WANTED, Columns, best_of, table
from analysis.record import FORMAT, curve_path, run_path
from sweep.mirror import Mirror
from sweep.mlflow_store import open_client, tracking_uri

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
        **{
            "git_commit": "abc123",
            "git_dirty": False,
            "versions": "{}",
            "lost_steps": 0,
            "engine": "stacked",
            "code": None,
        },
        **best_of([]),
    }
    write(run_path(results, run_id), [row | changed], RUNS)


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


def empty_store(folder: Path) -> Path:
    """Make a database with MLflow's tables, which takes seconds."""
    path = folder / "mlflow.db"
    open_client(f"sqlite:///{path}").search_experiments()
    return path


def one_complete_run(folder: Path, store: Path) -> Path:
    """Make a results directory with one complete run, `aa`, of four evaluations, and a store that is a copy."""
    folder.mkdir()
    shutil.copy(store, folder / "mlflow.db")
    (folder / "format.json").write_text(json.dumps({"format": FORMAT}))
    write_study(folder, ["aa"])
    write_curve(folder, "aa", 4)
    write_end(folder, "aa")
    return folder
