"""Standard input, output and errors, also where they are closed, full, or a pipe that nothing reads."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from lr_sweep.common.errors import UserError

REDIRECT = "Redirect it to a file with room, or to /dev/null; the same command can be given again."


class OutputError(UserError):
    """What a command prints cannot be written."""


class _Output(io.TextIOWrapper):
    """Text whose errors say that they are the output's: else they would be taken for those of other files.

    Not by a file of bytes of its own: a Ctrl-C inside its `write` would have the buffer write everything again.
    """

    def write(self, text: str) -> int:
        """Write text; raises OutputError, or BrokenPipeError."""
        with _as_output_error():
            return super().write(text)

    def flush(self) -> None:
        """Write what is buffered; raises OutputError, or BrokenPipeError."""
        with _as_output_error():
            super().flush()


@contextlib.contextmanager
def _as_output_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise OutputError(f"cannot write to the standard output: {error.strerror}. {REDIRECT}") from error


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """Give a command standard streams that can be used: a closed one leads to the null device.

    Raises SystemExit if the output is closed: what a command prints would be lost.
    """
    closed = sys.stdout is None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_null(number)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    if closed:
        say_last(f"error: the standard output is closed. {REDIRECT}")
        raise SystemExit(2)
    kept = sys.stdout
    if _is_descriptor(kept):
        kept.flush()
        buffer = io.BufferedWriter(io.FileIO(1, "w", closefd=False))
        # A terminal that is not in UTF-8 lacks the blocks of `show`.
        lines = kept.line_buffering if isinstance(kept, io.TextIOWrapper) else False
        sys.stdout = _Output(buffer, encoding=kept.encoding, errors="replace", line_buffering=lines)
    try:
        yield
    finally:
        sys.stdout = kept


def _open_null(number: int) -> None:
    """Have a closed descriptor lead to the null device: the file opened next would get it, and what is printed."""
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)


def _is_descriptor(stream: TextIO) -> bool:
    """Return whether a stream is the process's own output, and not a test's or a notebook's."""
    try:
        return stream.fileno() == 1
    except (OSError, AttributeError, ValueError):
        return False


def say_last(line: str) -> None:
    """Print a line to the standard errors if they can be written to."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _abandon(2)


def ended(code: int) -> int:
    """Write what was printed and not written yet; return the exit code, 2 if that fails and the command did not."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon(1)
    except OutputError as problem:
        _abandon(1)
        say_last(f"error: {problem}")
        return code or 2
    return code


def _abandon(number: int) -> None:
    """Have a descriptor lead to the null device, or Python would try it again at its end, and say so."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def agreed(question: str, elsewhere: str) -> bool:
    """Ask, and return whether the answer is yes; raises UserError with the other text where there is no terminal."""
    if not sys.stdin.isatty():
        raise UserError(elsewhere)
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
