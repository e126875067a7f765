"""Addresses: whether a server answers there, and how they are shown."""

from __future__ import annotations

import os
import re
import socket

ANSWER_TIMEOUT_S = 10.0
"""Time after which a silent host counts as unreachable; Ray itself tries for minutes."""
MLFLOW_ENVIRONMENT = {
    # The mirror retries by itself, after asking what has arrived: MLflow's own retry can create a run twice.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Settings of MLflow's client, by the environment variables that it reads; its own would try for minutes."""
_ADDRESS = re.compile(r"(?:([\w+.-]+:/{0,2})(?!/)(.*@)?)?((?:[^?;#]|#(?!.*=))*)(.*)", re.DOTALL)
"""Its scheme, user with password, place and query; a path has no user."""


def quiet_mlflow() -> None:
    """Give MLflow's client of this process `MLFLOW_ENVIRONMENT`, but for what the user set."""
    for name, value in MLFLOW_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def shown_uri(uri: str) -> str:
    """Return an address without user name, password and the values of its query, for messages and records.

    A password may have any character in it, quoted or not, so all up to the last `@` is left out.
    """
    if ":" not in uri:  # a path, or a pattern
        return uri
    (head, user, address, query), *_ = _ADDRESS.findall(uri)
    # The sign is of a password, or of a query with an `@`: what follows may be secret, too.
    if set(user) & set("?#"):
        return f"{head}..."
    return head + address + ("?..." if query else "")


def without_secrets(uri: str, text: str) -> str:
    """Return a library's message about an address without the secrets in it; the query may stand there alone."""
    (*_, query), *_ = _ADDRESS.findall(uri)
    shown = text.replace(uri.rstrip("/"), shown_uri(uri).rstrip("/"))
    return shown.replace(query[1:], "...") if query[1:] else shown


def check_answers(host: str, port: int) -> None:
    """Connect and disconnect; raises OSError if nothing listens there, or the host is out of reach."""
    try:
        socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S).close()
    except (UnicodeError, OverflowError) as error:
        raise OSError(f"not a valid host name or port number ({error})") from error
