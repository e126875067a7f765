"""The program's name as the user typed it, for messages that quote a command."""

from __future__ import annotations

import shlex
import sys


def _program() -> str:
    """Return `python -m sweep` or `python -m lr_sweep.sweep` in processes started by it, else the console script."""
    spec = sys.modules["__main__"].__spec__
    module = spec.name.removesuffix(".__main__") if spec else ""
    return f"python -m {module}" if module in ("sweep", "lr_sweep.sweep") else "lr-sweep"


PROGRAM = _program()


def command(*words: str) -> str:
    """Return a command of the program, quoted for a shell."""
    return f"{PROGRAM} {shlex.join(words)}"
