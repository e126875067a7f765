"""Whether anything listens at an address."""

from __future__ import annotations

import socket

ANSWER_TIMEOUT_S = 10.0
"""A cluster that stays silent for so long counts as unreachable; Ray itself tries for minutes."""


def check_answers(host: str, port: int) -> None:
    """Connect and hang up.

    Raises:
        OSError: nothing listens there, or the host is out of reach.
    """
    try:
        socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S).close()
    except (UnicodeError, OverflowError) as error:
        raise OSError(f"no host can have that name, or no port that number ({error})") from error
