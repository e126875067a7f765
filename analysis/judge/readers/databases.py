"""Runs in databases of Optuna, MLflow and Trackio, on a server of MLflow, and in MLflow's folders.

MLflow's runs have the last value of each metric. Its databases are read by SQL, whatever its version.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lr_sweep.analysis.judge.limits import check_folder
from lr_sweep.analysis.judge.table_file import TableFile, damage_named, table_of_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields
from lr_sweep.common.network import quiet_mlflow

from .labels import flat_settings

WAY_OUT = "write its runs as a CSV file"
MOST_RUNS = 50_000
"""Runs that MLflow gives at once."""
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
RUNS = """
    SELECT runs.run_uuid AS run_id, runs.status, experiments.name AS experiment
    FROM runs JOIN experiments USING (experiment_id)
    WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
    ORDER BY experiments.experiment_id, runs.start_time, runs.run_uuid
"""
CELLS = """
    SELECT run_uuid, 'params.' || key, value FROM params
    UNION ALL SELECT run_uuid, 'metrics.' || key, CASE WHEN is_nan THEN 'nan' ELSE value END FROM latest_metrics
"""
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
        with damage_named(path, copy, WAY_OUT):
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
        table = table_of_rows(path, rows, "runs of Trackio")
        return replace(table, known={"run": "run_id", "step": "step"})
    if {"experiments", "runs"} <= names:
        return _mlflow_table(path, _mlflow_rows(database))
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
        above = f"{name}/" if len(names) > 1 else ""
        rows += [{"study_name": name, **_trial(trial, above)} for trial in study.trials]
    table = table_of_rows(path, rows, "trials of Optuna")
    known = {"run": "number", "status": "state", "validation": "value"}
    higher_is_better = "MAXIMIZE" in directions if len(directions) == 1 else None
    return replace(table, known=known, higher_is_better=higher_is_better)


def _trial(trial: Any, above: str) -> Fields:
    """Return a trial; `above`: what is written before its number, which other studies have, too."""
    row = {
        "number": f"{above}{trial.number}",
        "value": trial.value,
        "state": trial.state.name,
    }
    for kind, values in (("params", trial.params), ("user_attrs", trial.user_attrs)):
        row |= {f"{kind}_{name}": value for name, value in values.items()}
    return row


def read_mlflow(uri: str, named: str) -> TableFile:
    """Read the runs of all experiments of a server or a folder; raises UserError.

    `named`: the address as reports and messages show it.
    """
    quiet_mlflow()
    advice = "start its server of MLflow, or download a table"
    with damage_named(named.rstrip("/"), uri.rstrip("/"), advice):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        names = {run.experiment_id: run.name for run in client.search_experiments()}
        order = ["attributes.start_time"]
        runs = client.search_runs(list(names), max_results=MOST_RUNS, order_by=order)
    if runs.token:
        advice = "download a table of those that count"
        raise UserError(f"{named} has more than {MOST_RUNS:,} runs: {advice}")
    rows = []
    for run in runs:
        row = {"run_id": run.info.run_id, "status": run.info.status}
        row["experiment"] = names[run.info.experiment_id]
        cells = {"params": run.data.params, "metrics": run.data.metrics}
        rows.append(row | flat_settings(cells, ""))
    path = named.removesuffix("?...").rstrip("/").rpartition("/")[2]
    return _mlflow_table(Path(path or "mlflow"), rows)


def read_mlflow_folder(folder: Path) -> TableFile:
    """Read MLflow's store of files, as a copy, since its client writes to what it opens; raises UserError."""
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    with TemporaryDirectory(prefix="lr-sweep-") as copy:
        shutil.copytree(folder, copy, ignore=_not_copied, dirs_exist_ok=True)
        return read_mlflow(copy, str(folder))


def _not_copied(folder: str, names: list[str]) -> list[str]:
    """Return what is large and has no metrics, and the links, which may lead anywhere."""
    return [name for name in names if name == "artifacts" or Path(folder, name).is_symlink()]


def _mlflow_rows(database: sqlite3.Connection) -> list[Fields]:
    rows = {row["run_id"]: dict(row) for row in database.execute(RUNS)}
    for run, name, value in database.execute(CELLS):
        if run in rows:
            rows[run][name] = value
    return list(rows.values())


def _mlflow_table(path: Path, rows: Sequence[Fields]) -> TableFile:
    table = table_of_rows(path, rows, "runs of MLflow, the last value of each metric")
    return replace(table, known={"run": "run_id", "status": "status"})
