"""Runs in databases of Optuna, MLflow and Trackio, and in MLflow's folders.

MLflow's runs have the last value of each metric. They are read without MLflow, whatever its version.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lr_sweep.analysis.judge.table_file import (
    TableFile,
    check_folder,
    damage_named,
    read_bounded,
    table_of_rows,
)
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields, load_yaml

from .nested import flat_settings

WAY_OUT = "write its runs as a CSV file"
METRICS = "metrics"
MLFLOW_RUNS = "runs of MLflow, the last value of each metric"
STATES = ("", "RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
"""Words for the numbers by which MLflow's store of files names the state of a run."""
TRIAL = ("number", "value", "params", "user_attrs", "state")
"""Columns of a trial of Optuna that are read."""
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
MLFLOW = """
    WITH active AS (
        SELECT runs.run_uuid AS run_id, runs.status, experiments.name, runs.start_time
        FROM runs JOIN experiments USING (experiment_id)
        WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
    )
    SELECT run_id, key, value FROM active JOIN (
        SELECT run_id, 'status' AS key, status AS value FROM active
        UNION ALL SELECT run_id, 'experiment', name FROM active
        UNION ALL SELECT run_uuid, 'params.' || key, value FROM params
        UNION ALL SELECT run_uuid, 'metrics.' || key, iif(is_nan, 'nan', value) FROM latest_metrics
    ) USING (run_id)
    ORDER BY name, start_time, run_id
"""
"""Fields of the runs of MLflow that were not deleted."""
HISTORY = """
    SELECT run_id, metrics.run_name AS name, step, config, metrics
    FROM metrics LEFT JOIN configs USING (run_id) ORDER BY metrics.id
"""


def read_database(path: Path, *, is_journal: bool) -> TableFile:
    """Read a database of Optuna, MLflow or Trackio, or a journal of Optuna; raises UserError.

    A copy is read, as libraries may write to what they open.
    """
    with TemporaryDirectory(prefix="lr-sweep-") as folder:
        copy = f"{folder}/copy"
        with damage_named(path, WAY_OUT):
            _copy(path, copy)
            if is_journal:
                return _optuna_table(path, copy, is_journal=True)
            with closing(sqlite3.connect(copy)) as database:
                return _table_of_database(path, copy, database)


def _copy(path: Path, copy: str) -> None:
    """Copy a database with its journals, in which SQLite has the last changes.

    Raises UserError if a program writes to them meanwhile.
    """
    before = _files_of(path)
    check_folder(path, before)
    for file in before:
        shutil.copyfile(file, copy + str(file).removeprefix(str(path.resolve())))
    if _files_of(path) != before:
        raise UserError(f"{path} changed while it was copied: read it once no program writes to it")


def _files_of(path: Path) -> dict[Path, int]:
    """Return the times of a file and its journals; those of a link stand beside the file to which it leads."""
    files = [Path(f"{path.resolve()}{end}") for end in ("", "-wal", "-journal")]
    return {file: file.stat().st_mtime_ns for file in files if file.exists()}


def _table_of_database(path: Path, copy: str, database: sqlite3.Connection) -> TableFile:
    names = {name for (name,) in database.execute(TABLES)}
    database.row_factory = sqlite3.Row
    if {"studies", "trials"} <= names:
        return _optuna_table(path, copy, is_journal=False)
    if {"metrics", "configs"} <= names:
        rows = [_trackio_row(**row) for row in database.execute(HISTORY)]
        return table_of_rows(path, rows)
    if {"experiments", "runs"} <= names:
        runs = defaultdict[str, Fields](Fields)
        for run, name, value in database.execute(MLFLOW):
            runs[run] |= {"run_id": run, name: value}
        return replace(table_of_rows(path, [*runs.values()]), reader=MLFLOW_RUNS)
    raise UserError(
        f"{path} is a database of neither Optuna nor MLflow, nor of Trackio: write its runs as a CSV file"
    )


def _trackio_row(config: str | None, metrics: str, **of_row: object) -> Fields:
    settings = flat_settings(json.loads(config or "{}"))
    return {**of_row, **settings, **json.loads(metrics)}


def _optuna_table(path: Path, copy: str, *, is_journal: bool) -> TableFile:
    """Return the trials of every study; the direction is known if all studies have the same."""
    import optuna

    optuna.logging.set_verbosity(logging.WARNING)
    if is_journal:
        backend = optuna.storages.journal.JournalFileBackend(copy)
        storage: Any = optuna.storages.JournalStorage(backend)
    else:
        storage = optuna.storages.RDBStorage(f"sqlite:///{copy}")
    rows, directions = list[Fields](), set[str]()
    names = optuna.get_all_study_names(storage)
    for name in names:
        study = optuna.load_study(study_name=name, storage=storage)
        if len(study.directions) > 1:
            raise UserError(
                f"the study {name} has several objectives: write a table with the one that counts"
            )
        directions.add(study.direction.name)
        above = f"{name}/" if len(names) > 1 else ""  # other studies have the same numbers
        trials = study.trials_dataframe(TRIAL).astype(object)
        for trial in trials.where(trials.notna(), None).to_dict("records"):
            rows.append({"study_name": name, **trial, "number": f"{above}{trial['number']}"})
    return replace(
        table_of_rows(path, rows),
        known={"run": "number", "validation": "value"},
        higher_is_better="MAXIMIZE" in directions if len(directions) == 1 else None,
    )


def is_mlflow_run(path: Path) -> bool:
    """Return whether a file describes a run in MLflow's store of files."""
    return path.name == "meta.yaml" and path.with_name(METRICS).is_dir()


def read_mlflow_folder(folder: Path, files: Sequence[Path]) -> TableFile:
    """Read MLflow's store of files: each run has a folder, and its parameters and metrics a file each."""
    rows = []
    for meta in filter(is_mlflow_run, files):
        run, about = meta.parent, load_yaml(meta)
        if about["lifecycle_stage"] != "active":
            continue
        row = {"run_id": about["run_id"], "status": STATES[about["status"]]}
        row["experiment"] = load_yaml(run.with_name("meta.yaml"))["name"]
        for path in sorted({*files}.intersection(run.rglob("*"))):
            kind, *keys = path.relative_to(run).parts
            if kind in ("params", METRICS):
                text = read_bounded(path).decode()
                row[f"{kind}.{'/'.join(keys)}"] = _last_value(kind, text)
        rows.append(row)
    return replace(table_of_rows(folder, rows), reader=MLFLOW_RUNS)


def _last_value(kind: str, text: str) -> str:
    """Return a parameter, or the last value in the lines `time value step` of a metric."""
    return text if kind == "params" else text.splitlines()[-1].split()[1]
