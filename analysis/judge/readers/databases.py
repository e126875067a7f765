"""Runs in the stores of Optuna (databases and journals), MLflow (databases, servers and folders) and Trackio.

MLflow's runs have the last value of each metric. Its databases are read by SQL, whatever its version.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lr_sweep.analysis.judge.readers.nested import yaml_content
from lr_sweep.analysis.judge.table_file import MOST_BYTES, MOST_ROWS, TableFile, table_of_rows
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, ReadFields, open_plain, read_plain
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
STATES = {1: "running", 2: "scheduled", 3: "finished", 4: "failed", 5: "killed"}
"""How the folders of MLflow number the states of runs."""
HISTORY = "SELECT run_id, run_name, step, metrics FROM metrics ORDER BY id"


def read_database(path: Path) -> TableFile:
    """Read a database of Optuna, MLflow or Trackio, or a journal of Optuna; raises UserError."""
    try:
        with copied(path) as copy:
            if is_journal(copy):
                return _read_optuna(path, copy)
            with closing(sqlite3.connect(copy)) as database:
                names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if {"studies", "trials"} <= names:
                    return _read_optuna(path, copy)
                if {"metrics", "configs"} <= names:
                    return table_of_rows(path, list(_trackio_rows(database)), "runs of Trackio")
                if {"experiments", "runs"} <= names:
                    return _mlflow_table(path, _mlflow_rows(database))
    except (OSError, sqlite3.Error, ValueError, TypeError) as error:  # the last two: of a value that is no number
        raise UserError(f"{path} cannot be read as a database ({reason(error)})") from error
    raise UserError(f"{path} is a database of neither Optuna nor MLflow, nor of Trackio: write its runs as a CSV file")


def is_journal(path: Path) -> bool:
    """Return whether a file is a journal of Optuna: JSON lines with its codes."""
    with open_plain(path) as file:
        line = file.readline(MOST_ROWS)
    try:
        return {"op_code", "worker_id"} <= json.loads(line).keys()
    except (ValueError, RecursionError, AttributeError):
        return False


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
    journal = optuna.storages.journal
    try:
        if is_journal(copy):
            storage: Any = optuna.storages.JournalStorage(journal.JournalFileBackend(str(copy)))
        else:
            storage = optuna.storages.RDBStorage(f"sqlite:///{copy}")
        studies = [optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)]
        rows = [row for study in studies for row in _trials(study)]
    except UserError:
        raise
    except Exception as error:  # of Optuna, of SQLAlchemy, or of a damaged file
        why = reason(error).replace(str(copy), str(path))
        raise UserError(f"{path} cannot be read as Optuna's ({why})") from error
    number = f"{len(studies)} studies" if len(studies) > 1 else "a study"
    return table_of_rows(path, _without_one(rows, "variant"), f"{number} of Optuna")


def _trials(study: Any) -> Iterator[Fields]:
    if len(study.directions) > 1:
        raise UserError(f"the study {study.study_name} has several objectives: write a table with the one that counts")
    for trial in study.trials:
        settings = {f"params_{name}": value for name, value in trial.params.items()}
        noted = {f"user_attrs_{name}": value for name, value in trial.user_attrs.items()}
        row = {"number": trial.number, "value": trial.value, "state": trial.state.name, **settings, **noted}
        yield row | {"direction": study.direction.name, "variant": study.study_name}


def _without_one(rows: Sequence[Fields], name: str) -> list[Fields]:
    """Leave out a column that has one value."""
    several = len({row[name] for row in rows}) > 1
    return [row if several else {key: row[key] for key in row if key != name} for row in rows]


def _trackio_rows(database: sqlite3.Connection) -> Iterator[Fields]:
    settings = {
        run: {f"config.{name}": value for name, value in json.loads(config).items() if name[:1] != "_"}
        for run, config in database.execute("SELECT run_id, config FROM configs")
    }
    for run, name, step, measured in database.execute(HISTORY):
        yield {"run_id": run, "name": name, **settings.get(run, {}), "step": step, **json.loads(measured)}


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
        rows = [row for each in client.search_experiments() for row in _served_rows(client, each)]
    except Exception as error:  # of MLflow, or of the network
        why = reason(error).replace(uri.rstrip("/"), named.rstrip("/"))
        advice = "start it, or download a table and name its file"
        raise UserError(f"{named} cannot be read as a server of MLflow ({why}): {advice}") from error
    return _mlflow_table(Path(named.rstrip("/").rpartition("/")[2] or "mlflow"), rows)


def _served_rows(client: Any, experiment: Any) -> list[Fields]:
    rows: list[Fields] = []
    token = None
    while len(rows) <= MOST_ROWS:
        asked = {"max_results": PAGE, "page_token": token, "order_by": ["attributes.start_time"]}
        page = client.search_runs([experiment.experiment_id], **asked)
        rows += [
            _row(experiment.name, run.info.run_id, run.info.status, run.data.params, run.data.metrics) for run in page
        ]
        if not (token := page.token):
            break
    return rows


def _mlflow_rows(database: sqlite3.Connection) -> list[Fields]:
    params, metrics = defaultdict[str, Fields](dict), defaultdict[str, Fields](dict)
    for run, name, value in database.execute(PARAMS):
        params[run][name] = value
    for run, name, value, is_nan in database.execute(METRICS):
        metrics[run][name] = math.nan if is_nan else value
    return [_row(task, run, status, params[run], metrics[run]) for task, run, status in database.execute(RUNS)]


def read_mlflow_folder(folder: Path, runs: Iterable[Path]) -> TableFile:
    """Read the folders of runs in MLflow's store of files; raises UserError."""
    try:
        return _mlflow_table(folder, [_stored_row(run) for run in runs])
    except (OSError, ValueError, IndexError) as error:
        raise UserError(f"{folder} cannot be read as a folder of MLflow ({reason(error)})") from error


def _stored_row(run: Path) -> Fields:
    """Return a run of MLflow's store of files: a file a parameter, and one a metric with a line a value."""
    meta = run / "meta.yaml"
    status = yaml_content(meta, read_plain(meta, MOST_BYTES)).get("status")
    params = {path.name: read_plain(path, MOST_BYTES).decode().strip() for path in sorted((run / "params").glob("*"))}
    files = sorted(path for path in (run / "metrics").rglob("*") if path.is_file())
    lines = {
        path.relative_to(run / "metrics").as_posix(): read_plain(path, MOST_BYTES).split(b"\n")[:-1] for path in files
    }
    metrics = {name: float(values[-1].split()[1]) for name, values in lines.items() if values}
    return _row(run.parent.name, run.name, STATES.get(status, str(status or "")), params, metrics)


def _row(task: str, run: str, status: str, params: ReadFields, metrics: ReadFields) -> Fields:
    settings = {f"params.{name}": value for name, value in params.items()}
    measured = {f"metrics.{name}": float(value) for name, value in metrics.items()}
    return {"run_id": run, "status": status, **settings, **measured, "task": task}


def _mlflow_table(path: Path, rows: Sequence[Fields]) -> TableFile:
    experiments = len({row["task"] for row in rows})
    tasks = f", {experiments} experiments as tasks" if experiments > 1 else ""
    reader = f"runs of MLflow{tasks}, the last value of each metric"
    return table_of_rows(path, _without_one(rows, "task"), reader)


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
