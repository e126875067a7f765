"""The program's name, for messages that quote a command."""

from __future__ import annotations

import shlex

PROGRAM = "lr-sweep"


def command(*words: str) -> str:
    """Return a command of the program, quoted for a shell."""
    return f"{PROGRAM} {shlex.join(words)}"
