"""Where the mirror is, and how MLflow is spoken to: quietly, and with errors that a person can act on."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from sweep.errors import UserError

EXPERIMENT = "lr-sweep"
"""The MLflow experiment that holds everything."""

_DEFAULT_ENVIRONMENT = {
    # We retry ourselves, after asking what has arrived: MLflow's own retry of a lost answer can create a run twice.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}

_SQLITE = "sqlite:///"
_DAMAGE = ("file is not a database", "database disk image is malformed")
"""What SQLite says of a database that came to harm."""


class MirrorError(UserError):
    """MLflow cannot be reached or refuses; the message says which store, why, and what to do."""


def tracking_uri(results: Path) -> str:
    """Tell where the mirror is: `MLFLOW_TRACKING_URI` if set, else a SQLite database in the results directory.

    Raises:
        MirrorError: the directory's name has a character that a SQLite address cannot hold.
    """
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    path = (results.resolve() / "mlflow.db").as_posix()
    if unusable := set("%?") & set(path):
        raise MirrorError(
            f"{path} contains {' '.join(sorted(unusable))}, which the address of a SQLite database cannot hold. "
            "Rename the results directory, or set MLFLOW_TRACKING_URI."
        )
    return f"{_SQLITE}{path}"


def shown_uri(uri: str) -> str:
    """Return the address without user name and password, for messages."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else uri


def open_client(uri: str) -> Any:
    """Return an `MlflowClient`, quiet and impatient. The first call imports mlflow, which takes seconds.

    Raises:
        MirrorError: MLflow does not take the address.
    """
    for name, value in _DEFAULT_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with store_problems(uri):
        from mlflow import MlflowClient

        # Its failures reach us as exceptions; alembic tells of every table of a new database.
        logging.getLogger("mlflow").setLevel(logging.CRITICAL)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if (database := _own_database(uri)) and database.parent.is_dir() and not database.exists():
            database.touch()  # with the permissions of other files; SQLite's own leave a group out, whatever the umask
        return MlflowClient(tracking_uri=uri)


@contextmanager
def store_problems(uri: str) -> Iterator[None]:
    """Turn what MLflow and the layers below it raise into a `MirrorError`."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as problem:
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0][:300].replace(uri, shown_uri(uri))
        raise MirrorError(f"MLflow at {shown_uri(uri)}: {reason}{_mend(uri, reason)}") from problem


def _own_database(uri: str) -> Path | None:
    """Return the SQLite database of a results directory; None: MLflow is at a place that the user named."""
    named = os.environ.get("MLFLOW_TRACKING_URI") or not uri.startswith(_SQLITE)
    return None if named else Path(uri.removeprefix(_SQLITE))


def _mend(uri: str, reason: str) -> str:
    """Return what to do about a damaged database, which holds nothing that the record does not."""
    database = _own_database(uri)
    if database is None or not any(damage in reason for damage in _DAMAGE):
        return ""
    return (
        f". The database is damaged; it only mirrors the record: delete {database} (and {database.name}-journal, if "
        f"there is one), and the next `run` or `mlflow sync` rebuilds it"
    )
