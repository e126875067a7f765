"""The address of the mirror, and a quiet MLflow client with errors that say what to do."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import partial_path
from lr_sweep.common.network import quiet_mlflow, shown_uri
from lr_sweep.sweep.results.directory import Results

EXPERIMENT = "lr-sweep"
"""The MLflow experiment that holds everything."""
VIEW_TAG = "mlflow.sharedViewState."
"""The start of the name of an experiment's tag that holds a view of its page, as MLflow (3.17) shares views."""

_SQLITE, _QUOTED = "sqlite:///", "sqlite+pysqlite:///"
"""The starts of addresses of databases: before a plain path, and before one that is quoted for its `%?#;`."""
_DAMAGE = re.compile(
    r"file is not a database|database disk image is malformed|table \w+ already exists|duplicate column name"
)
"""What SQLite says of a damaged database; the last two come from a migration that was killed."""
_LOCKED = re.compile(r"database (table )?is locked")


class MirrorError(UserError):
    """MLflow cannot be reached or refuses; the message says which store, why, and what to do."""


def tracking_uri(results: Path) -> str:
    """Return the mirror's address: `MLFLOW_TRACKING_URI` if set, else a SQLite database in the results directory."""
    return os.environ.get("MLFLOW_TRACKING_URI") or own_uri(results)


def own_uri(results: Path) -> str:
    """Return the address of the database in a results directory, which holds nothing of another one."""
    return _database_uri(Paths(results.resolve()).mlflow_database)


def owner_in(uri: str, results: Path) -> str:
    """Return the id by which a results directory's runs are known in a store; empty: its own database has no others."""
    return "" if uri == own_uri(results) else Results(results).id


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
        cause = reason(error).replace(uri.rstrip("/"), shown_uri(uri).rstrip("/"))
        raise MirrorError(f"MLflow at {shown_uri(uri)}: {cause}{_mend(uri, cause)}") from error


def _mend(uri: str, cause: str) -> str:
    """Return what to do about a database, as the end of a message."""
    database = _own_database(uri)
    if database is not None and _DAMAGE.search(cause):
        return (
            f". The database is damaged; it only mirrors the record: delete {database} (and "
            f"{database.name}-journal, if there is one), and the next `run` or `export --mlflow` rebuilds it"
        )
    if _LOCKED.search(cause):
        return ". Another process holds it: end that, and the next `run` or `export --mlflow` mirrors what is missing"
    return ""


def _own_database(uri: str) -> Path | None:
    """Return the SQLite database of a results directory; None: the user set another address."""
    return None if os.environ.get("MLFLOW_TRACKING_URI") else _database_at(uri)


def database_exists(uri: str) -> bool:
    """Return whether a SQLite database is there, or the address is another store's."""
    database = _database_at(uri)
    return database is None or database.exists()
