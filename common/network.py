"""Checks that a server listens at an address, and that this machine reaches itself."""

from __future__ import annotations

import socket

from lr_sweep.common.errors import UserError

ANSWER_TIMEOUT_S = 10.0
"""Time after which a silent host counts as unreachable; Ray itself tries for minutes."""


def check_answers(host: str, port: int) -> None:
    """Connect and disconnect; raises OSError if nothing listens there, or the host is out of reach."""
    try:
        socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S).close()
    except (UnicodeError, OverflowError) as error:
        raise OSError(f"not a valid host name or port number ({error})") from error


def check_loopback(host: str = "127.0.0.1") -> None:
    """Raise UserError where programs of this machine cannot connect to each other: Ray would wait for minutes."""
    try:
        with socket.create_server((host, 0)) as server:
            check_answers(*server.getsockname())
    except OSError as error:
        raise UserError(
            f"this machine has no loopback network ({host}: {error.strerror or error}), by which Ray's processes "
            f"connect to each other. Bring it up with `ip link set lo up`, or leave the container or namespace without."
        ) from error
