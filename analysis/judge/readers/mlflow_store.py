"""MLflow's runs, with the last value of each metric: a database by SQL, a server by MLflow."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.readers.from_rows import table_of_rows
from lr_sweep.analysis.judge.table_file import MOST_ROWS, TableFile
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.network import quiet_mlflow

PAGE = 1000
RUNS = """
    SELECT experiments.name, runs.run_uuid, runs.status FROM runs JOIN experiments USING (experiment_id)
    WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
    ORDER BY experiments.experiment_id, runs.start_time, runs.run_uuid
"""
PARAMS, METRICS = "SELECT run_uuid, key, value FROM params", "SELECT run_uuid, key, value, is_nan FROM latest_metrics"
Row = dict[str, Any]


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


def read_mlflow_database(path: Path, database: sqlite3.Connection) -> TableFile:
    """Read the same from a database of any version of MLflow; raises UserError, or an error of SQLite.

    `path`: of the database as reports and messages show it.
    """
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


def _row(run: str, status: str, params: Mapping[str, Any], metrics: Mapping[str, Any]) -> Row:
    settings = {f"params.{name}": value for name, value in params.items()}
    return {"run_id": run, "status": status, **settings, **{f"metrics.{k}": float(v) for k, v in metrics.items()}}
