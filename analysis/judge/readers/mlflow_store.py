"""A database or a server of MLflow, by MLflow: the last value of each metric of each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.readers.from_rows import table_of_rows
from lr_sweep.analysis.judge.table_file import MOST_ROWS, TableFile
from lr_sweep.common.errors import UserError, reason

PAGE = 1000


def read_mlflow(uri: str, named: str) -> TableFile:
    """Read the runs of all experiments; several experiments are tasks. Raises UserError.

    `named`: the address, or the path, as reports and messages show it.
    """
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise UserError(
            f"{named} is of MLflow, which is not installed here: `pip install mlflow`, or write "
            "`mlflow.search_runs(search_all_experiments=True).to_csv('runs.csv')` where it is"
        ) from error
    try:
        client = MlflowClient(tracking_uri=uri)
        found = [(each.name, _runs(client, each.experiment_id)) for each in client.search_experiments()]
    except Exception as error:  # of MLflow, of its database, or of the network
        why = reason(error).replace(uri.rstrip("/"), named.rstrip("/"))
        raise UserError(f"{named} cannot be read as MLflow's ({why})") from error
    experiments = [(name, runs) for name, runs in found if runs]
    rows = [_row(run) | ({"task": name} if len(experiments) > 1 else {}) for name, runs in experiments for run in runs]
    tasks = f", {len(experiments)} experiments as tasks" if len(experiments) > 1 else ""
    return table_of_rows(
        Path(named.rstrip("/").rpartition("/")[2] or "mlflow"),
        rows,
        f"runs of MLflow{tasks}, the last value of each metric",
    )


def _runs(client: Any, experiment: str) -> list[Any]:
    runs: list[Any] = []
    token = None
    while len(runs) <= MOST_ROWS:
        page = client.search_runs([experiment], max_results=PAGE, page_token=token, order_by=["attributes.start_time"])
        runs += page
        if not (token := page.token):
            break
    return runs


def _row(run: Any) -> dict[str, Any]:
    settings = {f"params.{name}": value for name, value in run.data.params.items()}
    measured = {f"metrics.{name}": float(value) for name, value in run.data.metrics.items()}
    return {"run_id": run.info.run_id, "status": run.info.status, **settings, **measured}
