"""Keeps what libraries print away from the terminal, and gives it to a file instead."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console


@contextmanager
def output_to(log_file: Path) -> Iterator[Console]:
    """Send what this process and its children print to a file; yield a console that still writes to the terminal.

    Done on file descriptors: Ray's C++ parts and MLflow print past `sys.stdout`.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {1: os.dup(1), 2: os.dup(2)}
    with log_file.open("a") as log, os.fdopen(os.dup(1), "w") as terminal:
        for descriptor in kept:
            os.dup2(log.fileno(), descriptor)
        try:
            yield Console(file=terminal)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, original in kept.items():
                os.dup2(original, descriptor)
                os.close(original)


@contextmanager
def stop_signals(say_stopping: threading.Event, on_stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; a second one ends the process at once.

    Args:
        say_stopping: the event.
        on_stop: called at the first signal, after the event is set; a signal that comes while it runs is the second.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if say_stopping.is_set():
            os._exit(128 + number)
        say_stopping.set()
        on_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield say_stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
