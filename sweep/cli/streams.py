"""Standard input, output and errors: also where they are closed, full, or a pipe that nothing reads."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import FULL, lead_nowhere

REDIRECT = "Redirect it to a file with room, or to /dev/null; the same command can be given again."


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """Give a command standard streams that can be used: a closed one leads to the null device.

    Raises UserError if the output is closed, or cannot be written to: what a command prints would be lost.
    """
    closed = sys.stdout is None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # the file opened next would get its number, and what is printed
            lead_nowhere(number)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
    if closed:
        raise UserError(f"the standard output is closed. {REDIRECT}")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not in UTF-8 lacks the blocks of `show`
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in FULL:  # `whole_file` names every other file
            raise
        lead_nowhere(1)
        raise UserError(f"cannot write to the standard output: {error.strerror}. {REDIRECT}") from error


def say_last(line: str = "") -> None:
    """Print what is left of the output, then a line to the standard errors, as far as they can be written to."""
    for number, stream, text in ((1, sys.stdout, ""), (2, sys.stderr, f"{line}\n" if line else "")):
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            lead_nowhere(number)


def agreed(question: str, elsewhere: str) -> bool:
    """Ask, and return whether the answer is yes; raises UserError with the other text if there is no terminal."""
    if not sys.stdin.isatty():
        raise UserError(elsewhere)
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def print_json(content: object) -> None:
    """Print content as JSON: times as ISO 8601, numbers that are not finite as null."""
    print(json.dumps(_plain(content), indent=1, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value
