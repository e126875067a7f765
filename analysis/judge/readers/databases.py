"""Runs in databases of Optuna, MLflow and Trackio, on a server of MLflow, and in MLflow's folders.

MLflow's runs have the last value of each metric. Its databases are read by SQL, whatever its version.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lr_sweep.analysis.judge.limits import (
    BoundedDatabase,
    check_folder,
    files_below,
    read_bounded,
)
from lr_sweep.analysis.judge.readers.labels import flat_settings
from lr_sweep.analysis.judge.readers.nested import yaml_content
from lr_sweep.analysis.judge.table_file import TableFile, damage_named, table_of_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields
from lr_sweep.common.network import quiet_mlflow

WAY_OUT = "write its runs as a CSV file, as of a database with views, or with very many rows"
MOST_RUNS = 50_000
"""Runs that a server of MLflow gives at once."""
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
STATES = {1: "running", 2: "scheduled", 3: "finished", 4: "failed", 5: "killed"}
"""Words for the numbers of states in MLflow's folders."""


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
            with closing(sqlite3.connect(copy, factory=BoundedDatabase)) as database:
                return _table_of_database(path, copy, database)


def _copy(path: Path, copy: str) -> None:
    """Copy a database with its journals; raises UserError if a program writes to them meanwhile."""
    before = _states(path)
    check_folder(path, before)
    for file in before:
        shutil.copyfile(file, copy + str(file).removeprefix(str(path.resolve())))
    if _states(path) != before:
        raise UserError(f"{path} changed while it was copied: read it once no program writes to it")


def _states(path: Path) -> dict[Path, tuple[int, int]]:
    """Return size and time of a file, and of the journals beside it in which SQLite has a database's last changes."""
    states = {}
    for end in ("", "-wal", "-journal"):
        file = Path(f"{path.resolve()}{end}")  # beside the file that a link leads to
        if file.is_file():
            stat = file.stat()
            states[file] = (stat.st_size, stat.st_mtime_ns)
    return states


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
        bounded = {"connect_args": {"factory": BoundedDatabase}}
        storage = optuna.storages.RDBStorage(f"sqlite:///{copy}", bounded)
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


def read_mlflow_server(uri: str, named: str) -> TableFile:
    """Read the runs of all experiments; raises UserError.

    `named`: the address as reports and messages show it.
    """
    quiet_mlflow()
    advice = "start its server of MLflow, or download a table"
    with damage_named(named.rstrip("/"), uri.rstrip("/"), advice):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        names = {each.experiment_id: each.name for each in client.search_experiments()}
        order = ["attributes.start_time"]
        runs = client.search_runs(list(names), max_results=MOST_RUNS, order_by=order)
    if runs.token:
        raise UserError(
            f"{named} has more than {MOST_RUNS:,} runs: download a table of those that count"
        )
    rows = []
    for run in runs:
        cells = {"params": run.data.params, "metrics": run.data.metrics}
        row = {"run_id": run.info.run_id, "status": run.info.status}
        row["experiment"] = names[run.info.experiment_id]
        rows.append(row | flat_settings(cells, ""))
    path = named.removesuffix("?...").rstrip("/").rpartition("/")[2]
    return _mlflow_table(Path(path or "mlflow"), rows)


def _mlflow_table(path: Path, rows: Sequence[Fields]) -> TableFile:
    table = table_of_rows(path, rows, "runs of MLflow, the last value of each metric")
    return replace(table, known={"run": "run_id", "status": "status"})


def _mlflow_rows(database: sqlite3.Connection) -> list[Fields]:
    rows = {row["run_id"]: dict(row) for row in database.execute(RUNS)}
    for run, name, value in database.execute(CELLS):
        if run in rows:
            rows[run][name] = value
    return list(rows.values())


def read_mlflow_folder(folder: Path, runs: Iterable[Path]) -> TableFile:
    """Read runs in MLflow's store of files: a file a parameter, and one a metric, a line a value; raises UserError."""
    with damage_named(folder):
        return _mlflow_table(folder, list(map(_mlflow_run, runs)))


def _mlflow_run(folder: Path) -> Fields:
    status = yaml_content(read_bounded(folder / "meta.yaml").decode()).get("status")
    row = {"run_id": folder.name, "status": STATES.get(status, status)}
    row["experiment"] = folder.parent.name
    for path in files_below(folder)[0]:
        kind, *names = path.relative_to(folder).parts
        if kind not in ("params", "metrics"):
            continue
        text = read_bounded(path).decode()
        *lines, _ = text.split("\n")  # time, value and step
        if kind == "params":
            row[f"params.{'/'.join(names)}"] = text
        elif lines:
            row[f"metrics.{'/'.join(names)}"] = lines[-1].split()[1]
    return row
