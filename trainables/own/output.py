"""What a training function prints: passed on as it is, and kept for the log of its run."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

from lr_sweep.trainables.worker.events import Printed

MAX_CHARACTERS = 20_000
"""Kept between two reports, the newest: all that a loop prints at each step would outgrow the record."""


class Output:
    """Keeps what is printed within `kept_for`, until it is taken."""

    def __init__(self) -> None:
        self._run_id = ""
        self._text = ""
        self._num_left_out = 0

    @contextmanager
    def kept_for(self, run_id: str) -> Iterator[None]:
        """Keep what this process prints by `sys.stdout` and `sys.stderr`, and print it, too."""
        self._run_id = run_id
        with redirect_stdout(_Tee(sys.stdout, self)), redirect_stderr(_Tee(sys.stderr, self)):
            yield

    def add(self, text: str) -> None:
        """Keep some text, and as much of the text before it as fits."""
        kept = self._text + text
        self._num_left_out += max(0, len(kept) - MAX_CHARACTERS)
        self._text = kept[-MAX_CHARACTERS:]

    def take(self, *, whole_lines: bool = True) -> list[Printed]:
        """Return what was kept as one event, or none; an unfinished line stays, if only whole lines are wanted."""
        lines, end, rest = self._text.rpartition("\n") if whole_lines else (self._text, "", "")
        # Of a progress bar the last state.
        shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines.split("\n")]
        left_out = f"[{self._num_left_out} characters before this are left out]\n" if self._num_left_out else ""
        self._text, self._num_left_out = rest, 0
        return [Printed(run_id=self._run_id, text=left_out + "\n".join(shown))] if lines or end else []


class _Tee(io.TextIOBase):
    """A stream that passes text on to another, and to `output`."""

    def __init__(self, stream: TextIO, output: Output) -> None:
        self._stream, self._output = stream, output

    def write(self, text: str) -> int:
        self._output.add(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()
