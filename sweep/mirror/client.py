"""The address of the mirror, a quiet MLflow client with errors that say what to do, and MLflow's web page."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import partial_path
from lr_sweep.common.network import check_answers, check_listening, shown_uri

EXPERIMENT = "lr-sweep"
"""The MLflow experiment that holds everything."""
VIEW_TAG = "mlflow.sharedViewState."
"""Begins the name of an experiment's tag that holds a view of its page, as MLflow (3.17) itself saves one to share."""

_DEFAULT_ENVIRONMENT = {
    # We retry ourselves, after asking what has arrived: MLflow's own retry of a lost answer can create a run twice.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}

_LOOK_EVERY_S = 2.0
"""Between looks for studies that the mirror has written, while its pages are served."""
_SQLITE, _QUOTED = "sqlite:///", "sqlite+pysqlite:///"
"""Begin addresses of databases: by a path as it is, and by one that is quoted since it has `%`, `?`, `#` or `;`."""
_DAMAGE = re.compile(
    r"file is not a database|database disk image is malformed|table \w+ already exists|duplicate column name"
)
"""What SQLite says of a damaged database; the last two, of one whose migration was killed."""
_LOCKED = re.compile(r"database (table )?is locked")


class MirrorError(UserError):
    """MLflow cannot be reached or refuses; the message says which store, why, and what to do."""


def tracking_uri(results: Path) -> str:
    """Return the mirror's address: `MLFLOW_TRACKING_URI` if set, else a SQLite database in the results directory."""
    return os.environ.get("MLFLOW_TRACKING_URI") or _database_uri(Paths(results.resolve()).mlflow_database)


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
    for name, value in _DEFAULT_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
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
            f"{database.name}-journal, if there is one), and the next `run` or `mlflow sync` rebuilds it"
        )
    if _LOCKED.search(cause):
        return ". Another process holds it: end that, and the next `run` or `mlflow sync` mirrors what is missing"
    return ""


def _own_database(uri: str) -> Path | None:
    """Return the SQLite database of a results directory; None: the user set another address."""
    return None if os.environ.get("MLFLOW_TRACKING_URI") else _database_at(uri)


@contextmanager
def mlflow_pages(
    results: Path, say: Callable[[str], None], host: str = "127.0.0.1", port: int = 5000
) -> Iterator[Mapping[str, str]]:
    """Serve MLflow's pages, without a password, for as long as the block runs; yield their addresses (`study_pages`).

    They appear there once the mirror has written them and the server answers; `say` is given a line for each, and
    for what is wrong with the store. A server of the user's has them already: its address alone is given.
    Raises UserError if the address cannot be listened on.
    """
    uri = tracking_uri(results)
    if is_server(uri):
        say(f"MLflow  {shown_uri(uri)}")
        yield {"": shown_uri(uri)}
        return
    check_listening(host, port, "another program may have it: choose another with --port")
    pages, ended = dict[str, str](), threading.Event()

    def follow() -> None:
        with ExitStack() as stack:
            is_served, problem = False, ""
            while not ended.wait(_LOOK_EVERY_S if is_served or problem else 0):
                try:
                    found = study_pages(uri, f"http://{host}:{port}")
                except MirrorError as error:
                    if problem != (problem := str(error)) and _database_exists(uri):
                        say(f"MLflow  not served: {problem}")
                    continue
                if not is_served:
                    stack.enter_context(_server(uri, results, host, port))
                    is_served = True
                with suppress(OSError):
                    check_answers(host, port)
                    for study in [study for study in found if study not in pages]:
                        say(f"{f'MLflow, {study}' if study else 'MLflow'}  {found[study]}")
                    pages.update(found)

    follower = threading.Thread(target=follow, name="mlflow-pages", daemon=True)
    follower.start()
    try:
        yield pages
    finally:
        ended.set()
        follower.join()


def _database_exists(uri: str) -> bool:
    database = _database_at(uri)
    return database is None or database.exists()


@contextmanager
def _server(uri: str, results: Path, host: str, port: int) -> Iterator[None]:
    """Run MLflow's server, at low priority, while the block runs."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"]
    command += ["--no-serve-artifacts", "--default-artifact-root", artifact_location(results)]
    # The address goes by the environment: it may hold a password, and every user can list command lines.
    environment = os.environ | {
        "MLFLOW_BACKEND_STORE_URI": uri,
        "MLFLOW_REGISTRY_STORE_URI": uri,
        "MLFLOW_UVICORN_OPTS": "--log-level warning",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PYTHONWARNINGS": "ignore",
    }
    # In a session of its own, since it answers a Ctrl-C of the terminal with a traceback, and SIGTERM quietly.
    with subprocess.Popen(command, env=environment, start_new_session=True) as server:
        os.setpriority(os.PRIO_PROCESS, server.pid, 10)  # its start takes seconds of CPU, perhaps beside a sweep
        try:
            yield
        finally:
            server.terminate()


def artifact_location(results: Path) -> str:
    """Return where the artifacts of a database's runs are: a folder of the results directory, as a URI."""
    return Paths(results.resolve()).mlflow_artifacts.as_uri()


def end_by_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, but for a SIGHUP that `nohup` has this ignore.

    A shell without job control starts background jobs with SIGINT ignored, which is not meant for a server.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def study_pages(uri: str, server: str) -> dict[str, str]:
    """Return addresses on an MLflow server: by study, charts of its runs; under "", last, the page of all runs.

    MLflow's own first page is for language models. Raises MirrorError if the store at `uri` holds nothing of ours.
    """
    if not _database_exists(uri):
        raise MirrorError(f"there is no MLflow store at {_database_at(uri)}; `run` makes one")
    client = open_client(uri)
    with store_problems(uri):
        experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        raise MirrorError(f"MLflow at {shown_uri(uri)} has no experiment {EXPERIMENT}; `run` makes it")
    page = f"{server}/#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning"
    views = sorted(tag.removeprefix(VIEW_TAG) for tag in experiment.tags if tag.startswith(VIEW_TAG))
    return {view: f"{page}&compareRunsMode=CHART&viewStateShareKey={view}" for view in views} | {"": page}
