"""Opens MLflow's web page on the mirror of the record."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from sweep.errors import UserError
from sweep.mlflow_store import EXPERIMENT, MirrorError, open_client, shown_uri, store_problems, tracking_uri


def open_ui(results: Path, host: str = "127.0.0.1", port: int = 5000) -> int:
    """Serve MLflow's page in the foreground until Ctrl-C.

    Args:
        results: the results directory.
        host: address to listen on; MLflow asks for no password.
        port: TCP port to listen on.

    Returns:
        Exit code: 0 after Ctrl-C, or if the mirror is on a server that the user runs.

    Raises:
        MirrorError: there is no mirror yet, or it cannot be read.
        UserError: the port is taken or the address is not ours.
    """
    uri = tracking_uri(results)
    if urlsplit(uri).scheme in ("http", "https"):
        print(f"The mirror is on the MLflow server at {shown_uri(uri)} (MLFLOW_TRACKING_URI): open it there.")
        return 0
    experiment_id = _find_experiment(uri)
    check_listening(host, port, "another program may have it: choose another with --port")
    if not _is_loopback(host):
        print(f"Warning: whoever can reach {host}:{port} can read and change the mirror; it has no password.")
    print(experiment_page(f"http://{host}:{port}", experiment_id))
    print("Open this in a browser when the server is up (5 to 20 seconds). Ctrl-C ends it.", flush=True)
    return _serve(uri, host, port)


def _find_experiment(uri: str) -> str:
    database = Path(uri.removeprefix("sqlite:///"))
    if uri.startswith("sqlite:///") and not database.exists():
        raise MirrorError(f"there is no MLflow store at {database}; `python -m sweep run` makes one")
    client = open_client(uri)
    with store_problems(uri):
        experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        raise MirrorError(f"MLflow at {shown_uri(uri)} has no experiment {EXPERIMENT}; `python -m sweep run` makes it")
    return str(experiment.experiment_id)


def experiment_page(server: str, experiment_id: str) -> str:
    """Return the address of the sweep's runs on an MLflow server; its own first page is for language models."""
    return f"{server}/#/experiments/{experiment_id}/runs?workflowType=machine_learning"


def check_listening(host: str, port: int, advice: str) -> None:
    """Refuse an address that cannot be listened on.

    Raises:
        UserError: with the advice.
    """
    try:
        socket.create_server((host, port)).close()
    except OSError as problem:
        raise UserError(f"cannot listen on {host}:{port} ({problem.strerror}); {advice}") from problem
    except (UnicodeError, OverflowError) as problem:
        raise UserError(f"cannot listen on {host}:{port}: no address can have that name or port") from problem


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _serve(uri: str, host: str, port: int) -> int:
    """Run MLflow's server until it or the user ends it."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port), "--workers", "1"]
    # The address goes by the environment: it may hold a password, and every user can list command lines.
    environment = os.environ | {
        "MLFLOW_BACKEND_STORE_URI": uri,
        "MLFLOW_REGISTRY_STORE_URI": uri,
        "MLFLOW_UVICORN_OPTS": "--log-level warning",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PYTHONWARNINGS": "ignore",
    }
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.default_int_handler)
    # In a session of its own, since it answers a Ctrl-C of the terminal with a traceback, and SIGTERM quietly.
    with subprocess.Popen(command, env=environment, start_new_session=True) as server:
        try:
            return server.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            server.terminate()
