"""The address of the mirror, a quiet MLflow client with errors that say what to do, and the runs that it writes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import partial_path
from lr_sweep.common.network import quiet_mlflow, shown_uri, without_secrets
from lr_sweep.sweep.results.directory import Results

from .content import ENDING_TAGS, METRICS, MirroredRun, logged_points

EXPERIMENT = "lr-sweep"
VIEW_TAG = "mlflow.sharedViewState."
"""The start of the name of an experiment's tag that holds a view of its page, as MLflow (3.17) shares views."""
REBUILT = "It is a copy of the record: the next `run` or `export --mlflow` adds what is missing, also to a new store"
_MAX_METRICS = 1000
_MAX_PARAMS = 100
"""Most metrics, and most params or tags, of a batch that MLflow takes."""
T = TypeVar("T")

_SQLITE, _QUOTED = "sqlite:///", "sqlite+pysqlite:///"
"""The starts of addresses of databases: before a plain path, and before one that is quoted for its `%?#;`."""


class MirrorError(UserError):
    """MLflow cannot be reached or refuses; the message says which store, why, and what to do."""


def tracking_uri(results: Path) -> str:
    """Return the mirror's address: `MLFLOW_TRACKING_URI` if set, else a SQLite database in the results directory."""
    return os.environ.get("MLFLOW_TRACKING_URI") or _own_uri(results)


def _own_uri(results: Path) -> str:
    """Return the address of the database in a results directory, which holds nothing of another one."""
    return _database_uri(Paths(results.resolve()).mlflow_database)


def owner_in(uri: str, results: Path) -> str:
    """Return the id by which a results directory's runs are known in a store; empty: its own database has no others."""
    return "" if uri == _own_uri(results) else Results(results).id


def _database_uri(path: Path) -> str:
    name = path.as_posix()
    return f"{_QUOTED}{quote(name)}" if set("%?#;") & set(name) else f"{_SQLITE}{name}"


def _database_at(uri: str) -> Path | None:
    """Return the file of a SQLite database; None: the address is another's."""
    if uri.startswith(_QUOTED):
        return Path(unquote(uri.removeprefix(_QUOTED)))
    return Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None


def is_server(uri: str) -> bool:
    """Return whether an address is of an MLflow server, not of a database."""
    return uri.startswith(("http:", "https:"))


def open_client(uri: str) -> Any:
    """Return an `MlflowClient` that logs nothing and retries nothing; raises MirrorError if MLflow refuses the address.

    The first call imports mlflow, which takes seconds.
    """
    quiet_mlflow()
    with store_problems(uri):
        from mlflow import MlflowClient

        # Its failures reach us as exceptions; alembic logs every table of a new database.
        logging.getLogger("mlflow").setLevel(logging.CRITICAL)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if not is_server(uri):
            from mlflow.store.db import utils

            utils.MAX_RETRY_COUNT = (
                1  # MLflow (3.17) would try for two minutes, of a wrong password, too
            )
        if (database := _own_database(uri)) and database.parent.is_dir() and not database.exists():
            _create(database)
        return MlflowClient(tracking_uri=uri)


def _create(database: Path) -> None:
    """Create an empty database with all tables, whole or not at all.

    MLflow's many migrations take seconds. Killed among them, they leave a database that MLflow refuses ever after.
    """
    from mlflow.store.db import utils

    partial = partial_path(database)
    try:
        partial.touch()  # with the permissions of other files; SQLite's own leave a group out, whatever the umask
        engine = utils.create_sqlalchemy_engine(_database_uri(partial))
        utils._initialize_tables(engine)
        engine.dispose()
        try:
            os.link(partial, database)
        except FileExistsError:
            pass  # another process was faster
        except OSError:
            partial.replace(database)  # a disk without hard links
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def store_problems(uri: str) -> Iterator[None]:
    """Turn what MLflow and the layers below it raise into a `MirrorError`: whatever it is, it stops no training."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cause = reason(error, partial(without_secrets, uri))
        raise MirrorError(f"MLflow at {shown_uri(uri)}: {cause}. {REBUILT}") from error


def _own_database(uri: str) -> Path | None:
    """Return the SQLite database of a results directory; None: the user set another address."""
    return None if os.environ.get("MLFLOW_TRACKING_URI") else _database_at(uri)


def database_exists(uri: str) -> bool:
    """Return whether a SQLite database is there, or the address is another store's."""
    database = _database_at(uri)
    return database is None or database.exists()


@dataclass
class MlflowRun:
    """What MLflow is known to hold of a run; its methods add what is not there yet."""

    client: Any
    mlflow_id: str
    status: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    steps: set[tuple[int, int]] | None = None
    """Step and time, in milliseconds, of each evaluation that is there; None: not known."""

    def log_params(self, params: Mapping[str, str]) -> None:
        """Add the params that are not there yet: another study may have given the run other labels before."""
        from mlflow.entities import Param

        new = [Param(key, value) for key, value in params.items() if key not in self.params]
        self._log("params", new, _MAX_PARAMS)
        self.params |= {param.key: param.value for param in new}

    def log_metrics(self, metrics: Mapping[str, float], time_ms: int) -> None:
        """Add the metrics that have another value there, at step 0: MLflow draws bars of these, and not lines."""
        from mlflow.entities import Metric

        new = [
            Metric(key, value, time_ms, 0)
            for key, value in metrics.items()
            if self.metrics.get(key) != value
        ]
        self._log("metrics", new, _MAX_METRICS)
        self.metrics |= metrics

    def log_points(self, recorded: MirroredRun) -> None:
        """Add the wanted evaluations that are not there yet, each whole in one batch, which is one transaction.

        They keep their recorded time: MLflow takes the same point at another time as a second one.
        """
        from mlflow.entities import Metric

        steps = self._known_steps()
        new = [row for row in recorded.thinned() if (row["step"], row["time_ms"]) not in steps]
        # Before their evaluations, by which they are known to be there.
        self._log("metrics", [Metric(*point) for point in logged_points(new)], _MAX_METRICS)
        for batch in _batches(recorded.points(new), _MAX_METRICS // len(METRICS)):
            metrics = [Metric(*point) for evaluation in batch for point in evaluation]
            self.client.log_batch(self.mlflow_id, metrics=metrics)
        steps |= {(row["step"], row["time_ms"]) for row in new}

    def was_trained_anew(self, recorded: MirroredRun) -> bool:
        """Return whether an evaluation is there that the record no longer has: it is of an earlier attempt."""
        return not self._known_steps() <= {(row["step"], row["time_ms"]) for row in recorded.curve}

    def _known_steps(self) -> set[tuple[int, int]]:
        if self.steps is None:
            history = self.client.get_metric_history(self.mlflow_id, "elapsed_s")
            self.steps = {(point.step, point.timestamp) for point in history}
        return self.steps

    def set_status(self, status: str, ended_ms: int | None = None) -> None:
        """Set the status, if it is another one; of a run that has ended, with the time of its end."""
        if ended_ms is not None:
            self.client.set_terminated(self.mlflow_id, status, end_time=ended_ms)
        elif self.status != status:
            self.client.update_run(self.mlflow_id, status=status)
        self.status = status

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set the tags that have another value there; with a new status, remove those of an end before it."""
        from mlflow.entities import RunTag

        for key in ENDING_TAGS:
            if "sweep.status" in tags and key in self.tags and key not in tags:
                self.client.delete_tag(self.mlflow_id, key)
                del self.tags[key]
        changed = {key: value for key, value in tags.items() if self.tags.get(key) != value}
        self._log("tags", [RunTag(*tag) for tag in changed.items()], _MAX_PARAMS)
        self.tags |= changed

    def _log(self, kind: str, entities: list[Any], most: int) -> None:
        for batch in _batches(entities, most):
            self.client.log_batch(self.mlflow_id, **{kind: batch})


def _batches(items: list[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def known_run(client: Any, run: Any) -> MlflowRun:
    """Return what an `mlflow.entities.Run` says of itself."""
    data = run.data
    return MlflowRun(
        client,
        run.info.run_id,
        run.info.status,
        dict(data.params),
        dict(data.metrics),
        dict(data.tags),
    )
