"""A hand-made record to mirror, and queries of an MLflow store."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lr_sweep.analysis.record.columns import CURVES, RUNS
from lr_sweep.analysis.record.parquet import FORMAT
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.sweep.mirror.client import open_client, tracking_uri
from lr_sweep.sweep.mirror.mirror import Mirror
from lr_sweep.tests.support import records
from lr_sweep.tests.support.records import ended_row, evaluation, wanted_row, write

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


def write_study(results: Path, run_ids: list[str], study: str = "small") -> None:
    rows = [wanted_row(run_id, 400, model="tiny") | {"seed": seed} for seed, run_id in enumerate(run_ids)]
    records.write_study(results, study, rows)


def write_curve(results: Path, run_id: str, num_evaluations: int, **changed: Any) -> None:
    """Evaluations at steps 100, 200, ...: one every 10 s; validation accuracy 0.1, 0.2, ..."""
    rows = [
        evaluation(run_id, 100 * n, train_loss=2.0 / n, validation=n / 10)
        | {"time_ms": START_MS + 10_000 * n, "elapsed_s": 10.0 * n}
        | changed
        for n in range(1, num_evaluations + 1)
    ]
    write(Paths(results).curve(run_id), rows, CURVES)


def write_end(results: Path, run_id: str, status: str = "complete", ended_s: int = 60, **changed: Any) -> None:
    times = {"started_at": START, "finished_at": START + timedelta(seconds=ended_s), "device_s": 60.0}
    row = ended_row(wanted_row(run_id, model="tiny"), [], status, trained=400) | times
    row |= {"content": json.dumps(CONTENT), "git_commit": "abc123", "versions": "{}"}
    write(Paths(results).run(run_id), [row | changed], RUNS)


def new_mirror(results: Path, study: str = "small", uri: str | None = None) -> Mirror:
    """Return a mirror as a new process has it: with no memory of what was mirrored before."""
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
