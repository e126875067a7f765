"""Runs in the stores of other tools: databases and journals of Optuna, databases and servers of MLflow.

MLflow's runs have the last value of each metric. Its databases are read by SQL, whatever its version.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lr_sweep.analysis.judge.readers.tables import table_of_rows
from lr_sweep.analysis.judge.table_file import MOST_ROWS, TableFile
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, ReadFields, open_plain
from lr_sweep.common.network import quiet_mlflow

SQLITE = b"SQLite format 3\0"
"""How such a database begins."""
TRIES = 5
JOURNALS = ("-wal", "-journal")
"""Endings of the files beside a database of SQLite that hold its last changes."""
PAGE = 1000
"""Runs that a server of MLflow is asked for at once."""
RUNS = """
    SELECT experiments.name, runs.run_uuid, runs.status FROM runs JOIN experiments USING (experiment_id)
    WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
    ORDER BY experiments.experiment_id, runs.start_time, runs.run_uuid
"""
PARAMS, METRICS = "SELECT run_uuid, key, value FROM params", "SELECT run_uuid, key, value, is_nan FROM latest_metrics"
Row = Fields


def read_database(path: Path) -> TableFile:
    """Read a database of Optuna or MLflow; raises UserError."""
    try:
        with copied(path) as copy, closing(sqlite3.connect(copy)) as database:
            names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if {"studies", "trials"} <= names:
                return _read_optuna(path, copy)
            if {"metrics", "configs"} <= names:
                return _read_trackio(path, database)
            if {"experiments", "runs"} <= names:
                return _read_mlflow_database(path, database)
    except (OSError, sqlite3.Error, ValueError, TypeError) as error:  # the last two: of a value that is no number
        raise UserError(f"{path} cannot be read as a database ({reason(error)})") from error
    raise UserError(f"{path} is a database of neither Optuna nor MLflow, nor of Trackio: write its runs as a CSV file")


def read_journal(path: Path) -> TableFile:
    """Read a journal of Optuna; raises UserError."""
    with copied(path) as copy:
        return _read_optuna(path, copy)


def is_journal(path: Path) -> bool:
    """Return whether a file of JSON lines is a journal."""
    with open_plain(path) as file:
        line = file.readline(1_000_000)
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"op_code", "worker_id"} <= first.keys()


def _read_optuna(path: Path, copy: Path) -> TableFile:
    """Read the trials of every study; several studies are variants. Raises UserError.

    `copy`: what is opened, and may be written to; `path` is what reports and messages show.
    """
    try:
        import optuna
    except ImportError as error:
        raise UserError(
            f"{path} is of Optuna, which is not installed here: `pip install optuna`, or write "
            "`study.trials_dataframe().to_csv('trials.csv')` where it is"
        ) from error
    optuna.logging.set_verbosity(logging.WARNING)
    try:
        if is_journal(copy):
            backend = optuna.storages.journal.JournalFileBackend(str(copy))
            storage = optuna.storages.JournalStorage(backend)
        else:
            storage = optuna.storages.RDBStorage(f"sqlite:///{copy}")
        studies = [optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)]
        rows = [row for study in studies for row in _trials(study, len(studies) > 1)]
    except UserError:
        raise
    except Exception as error:  # of Optuna, of SQLAlchemy, or of a damaged file
        why = reason(error).replace(str(copy), str(path))
        raise UserError(f"{path} cannot be read as Optuna's ({why})") from error
    return table_of_rows(path, rows, f"{len(studies)} studies of Optuna" if len(studies) > 1 else "a study of Optuna")


def _trials(study: Any, is_variant: bool) -> list[Fields]:
    if len(study.directions) > 1:
        raise UserError(f"the study {study.study_name} has several objectives: write a table with the one that counts")
    rows = []
    for trial in study.trials:
        settings = {f"params_{name}": value for name, value in trial.params.items()}
        noted = {f"user_attrs_{name}": value for name, value in trial.user_attrs.items()}
        row = {"number": trial.number, "value": trial.value, "state": trial.state.name, **settings, **noted}
        rows.append(row | {"direction": study.direction.name, **({"variant": study.study_name} if is_variant else {})})
    return rows


def read_mlflow_server(uri: str, named: str) -> TableFile:
    """Read the runs of all experiments; several experiments are tasks. Raises UserError.

    `named`: the address as reports and messages show it.
    """
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise UserError(
            f"{named} is of MLflow, which is not installed here: `pip install mlflow`, or write "
            "`mlflow.search_runs(search_all_experiments=True).to_csv('runs.csv')` where it is"
        ) from error
    quiet_mlflow()
    try:
        client = MlflowClient(tracking_uri=uri)
        found = {each.name: _runs(client, each.experiment_id) for each in client.search_experiments()}
    except Exception as error:  # of MLflow, or of the network
        why = reason(error).replace(uri.rstrip("/"), named.rstrip("/"))
        advice = "start it, or download a table and name its file"
        raise UserError(f"{named} cannot be read as a server of MLflow ({why}): {advice}") from error
    return _table(Path(named.rstrip("/").rpartition("/")[2] or "mlflow"), found)


def _read_trackio(path: Path, database: sqlite3.Connection) -> TableFile:
    settings = {
        run: {f"config.{name}": value for name, value in json.loads(config).items() if name[:1] != "_"}
        for run, config in database.execute("SELECT run_id, config FROM configs")
    }
    rows = database.execute("SELECT run_id, run_name, step, metrics FROM metrics ORDER BY id")
    found = [
        {"run_id": run, "name": name, **settings.get(run, {}), "step": step, **json.loads(measured)}
        for run, name, step, measured in rows
    ]
    return table_of_rows(path, found, "runs of Trackio")


def _read_mlflow_database(path: Path, database: sqlite3.Connection) -> TableFile:
    params, metrics = defaultdict[str, Row](dict), defaultdict[str, Row](dict)
    for run, name, value in database.execute(PARAMS):
        params[run][name] = value
    for run, name, value, is_nan in database.execute(METRICS):
        metrics[run][name] = math.nan if is_nan else value
    found = defaultdict[str, list[Row]](list)
    for experiment, run, status in database.execute(RUNS):
        found[experiment].append(_row(run, status, params[run], metrics[run]))
    return _table(path, found)


def _table(path: Path, found: Mapping[str, list[Row]]) -> TableFile:
    experiments = {name: rows for name, rows in found.items() if rows}
    several = len(experiments) > 1
    rows = [row | ({"task": name} if several else {}) for name, rows in experiments.items() for row in rows]
    tasks = f", {len(experiments)} experiments as tasks" if several else ""
    return table_of_rows(path, rows, f"runs of MLflow{tasks}, the last value of each metric")


def _runs(client: Any, experiment: str) -> list[Row]:
    rows: list[Row] = []
    token = None
    while len(rows) <= MOST_ROWS:
        page = client.search_runs([experiment], max_results=PAGE, page_token=token, order_by=["attributes.start_time"])
        rows += [_row(run.info.run_id, run.info.status, run.data.params, run.data.metrics) for run in page]
        if not (token := page.token):
            break
    return rows


def _row(run: str, status: str, params: ReadFields, metrics: ReadFields) -> Row:
    settings = {f"params.{name}": value for name, value in params.items()}
    return {"run_id": run, "status": status, **settings, **{f"metrics.{k}": float(v) for k, v in metrics.items()}}


@contextmanager
def copied(path: Path) -> Iterator[Path]:
    """Copy a file, a database with its journals, into a temporary folder: libraries may write to what they open.

    Raises UserError while another program writes it.
    """
    path = path.resolve()  # SQLite, too, has the journals beside the file that a link leads to
    with TemporaryDirectory(prefix="lr-sweep-") as folder:
        copy = Path(folder) / "copy"
        copies = {path.with_name(path.name + end): Path(f"{copy}{end}") for end in ("", *JOURNALS)}
        for _ in range(TRIES):
            before = _states(copies)
            for file, to in copies.items():
                to.unlink(missing_ok=True)
                if file.is_file():
                    shutil.copyfile(file, to)
            if _states(copies) == before:
                break
        else:
            raise UserError(f"{path} changed while it was copied, {TRIES} times: read it once no program writes to it")
        yield copy


def _states(files: Iterable[Path]) -> list[tuple[int, int] | None]:
    found = [file.stat() if file.is_file() else None for file in files]
    return [stat and (stat.st_size, stat.st_mtime_ns) for stat in found]
