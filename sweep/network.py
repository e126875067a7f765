"""Checks that a server listens at an address."""

from __future__ import annotations

import socket

ANSWER_TIMEOUT_S = 10.0
"""Time after which a silent host counts as unreachable; Ray itself tries for minutes."""


def check_answers(host: str, port: int) -> None:
    """Connect and disconnect.

    Raises:
        OSError: nothing listens there, or the host is out of reach.
    """
    try:
        socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S).close()
    except (UnicodeError, OverflowError) as error:
        raise OSError(f"not a valid host name or port number ({error})") from error
