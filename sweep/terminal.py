"""Terminal and signals: libraries print to a log file, Ctrl-C stops a sweep, and every end prints its reason."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from rich.console import Console

STOPPED = 130
"""The exit code of a command that was asked to stop."""
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"
_WATCH = 'trap "" HUP INT TERM; read -r line || printf "%s\\n" "$1" >&2'
_watcher: subprocess.Popen[bytes] | None = None
"""The child that prints a message if this process dies, if `last_word` is active."""


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
def stop_signals(on_stop: Callable[[], None], terminal: int) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; a second one ends the process at once, with exit code 130.

    A thread reads the signals from a pipe that Python fills as they arrive: the main thread may be in Ray's C++ code
    for seconds, where it runs no handler.

    Args:
        on_stop: called in a thread at the first signal, after the event is set.
        terminal: the file descriptor for the last line of a process that exits at once.
    """
    stop, (reader, writer) = threading.Event(), os.pipe()

    def listen() -> None:
        while number := os.read(reader, 1):
            if number[0] not in _STOPPING:
                continue
            if stop.is_set():
                _leave_at_once(terminal)
            stop.set()
            threading.Thread(target=on_stop, daemon=True).start()  # it may block: the terminal may be paused
        os.close(reader)

    os.set_blocking(writer, False)
    threading.Thread(target=listen, name="signals", daemon=True).start()
    before = {number: signal.signal(number, lambda number, frame: None) for number in _STOPPING}
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writer)


def _leave_at_once(terminal: int) -> NoReturn:
    with contextlib.suppress(OSError):
        shown = _SHOW_CURSOR if os.isatty(terminal) else b""
        os.write(terminal, shown + b"\nleft at once; the same command resumes from the last checkpoints\n")
    if _watcher is not None:
        _dismiss(_watcher)
    os._exit(STOPPED)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def last_word(message: str) -> Iterator[None]:
    """Print a message to stderr if this process ends before the block does: killed, or ended by Ray's C++ code.

    A child process prints it when its standard input ends without a line, which means that this process is gone.
    """
    global _watcher
    _watcher = subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "sh", message],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C of the terminal, or a kill of the process group, is not for it
    )
    try:
        yield
    finally:
        _dismiss(_watcher)
        _watcher = None


def _dismiss(watcher: subprocess.Popen[bytes]) -> None:
    watcher.communicate(b"\n")
