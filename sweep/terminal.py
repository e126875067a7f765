"""Terminal and signals: libraries print to a log file, and Ctrl-C stops a sweep."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console

from lr_sweep.common.files import lead_nowhere, make_folder

STOPPED = 130
_STOPPING = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
"""Signals that ask for an end: Ctrl-C, `kill`, a closed terminal, a batch system shortly before a job's end."""
GROUP_SIGNALS = frozenset({*_STOPPING, signal.SIGQUIT} - {signal.SIGINT})
"""Signals of terminals, batch systems and shutdowns that also go to the processes that save runs."""
ANSWER_S = 1.0
"""Seconds that the end of a process waits, at most, until it has answered a signal."""
_SHOW_CURSOR = b"\x1b[?25h"


class _Lossy(io.FileIO):
    """A terminal or a pipe that may go away while there is work left: what is written from then on is lost."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE):
                raise
            return len(data)


def _lossy(descriptor: int, *, closefd: bool = True) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(_Lossy(descriptor, "w", closefd=closefd))
    return io.TextIOWrapper(
        buffer, encoding=sys.stdout.encoding, errors="replace", line_buffering=True
    )


@contextmanager
def lasting_output() -> Iterator[None]:
    """Let this process print after its terminal was closed, or after the reader of its pipe has ended."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        _lasting(stream, number) for number, stream in enumerate(before, start=1)
    )
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = before


def _lasting(stream: Any, descriptor: int) -> Any:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # a notebook's, a test's
        if stream.fileno() == descriptor:
            stream.flush()
            return _lossy(descriptor, closefd=False)
    return stream


@contextmanager
def output_to(log_file: Path) -> Iterator[Console]:
    """Send what this process and its children print to a file; yield a console that still writes to the terminal.

    Done on file descriptors: Ray's C++ parts and MLflow print past `sys.stdout`.
    """
    make_folder(log_file.parent)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {1: os.dup(1), 2: os.dup(2)}
    with log_file.open("a") as log, _lossy(os.dup(1)) as terminal:
        for descriptor in kept:
            os.dup2(log.fileno(), descriptor)
        try:
            yield Console(file=terminal)
        finally:
            _flush_or_lose()
            for descriptor, original in kept.items():
                os.dup2(original, descriptor)
                os.close(original)


def _flush_or_lose() -> None:
    """Write what is left to the log, or lose it where its disk is full: none of it is for the terminal."""
    for descriptor, stream in enumerate((sys.stdout, sys.stderr), start=1):
        try:
            stream.flush()
        except OSError:
            lead_nowhere(descriptor)
            stream.flush()


class StopAskedError(BaseException):
    """The user asked for an end inside `Stop.breaks_off`; not an Exception, so that no library catches it."""


class Stop(threading.Event):
    """Set once the user has asked this process to stop."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = self._breaks_off = False

    def handle(self, number: int, frame: object) -> None:
        """Handle a signal in the main thread, where Python runs it."""
        self._asked = True
        if self._breaks_off:
            self._breaks_off = False
            raise StopAskedError

    @contextmanager
    def breaks_off(self) -> Iterator[None]:
        """Raise StopAskedError in the block, in the main thread, as soon as a signal asks for an end, or did before."""
        self._breaks_off = True
        try:
            if self._asked:
                raise StopAskedError
            yield
        finally:
            self._breaks_off = False


@contextmanager
def stop_signals(on_stop: Callable[[], None], terminal: int) -> Iterator[Stop]:
    """Yield an event that the first signal sets that asks for an end: Ctrl-C, SIGTERM or SIGHUP, for example.

    A second Ctrl-C, or SIGQUIT, ends the process at once, with exit code 130; `timeout`, systemd and Slurm send several
    of the others, which change nothing. A thread reads the signals from a pipe that
    Python fills as they arrive: the main thread may be in Ray's C++ code for seconds, where it runs no handler.

    Args:
        on_stop: called in a thread at the first signal, after the event is set.
        terminal: the file descriptor for the last line of a process that exits at once.
    """
    stop, (reader, writer), answers = Stop(), os.pipe(), list[threading.Thread]()

    def listen() -> None:
        while number := os.read(reader, 1):
            if number[0] not in (*_STOPPING, signal.SIGQUIT):
                continue
            if number[0] == signal.SIGQUIT or (stop.is_set() and number[0] == signal.SIGINT):
                _leave_at_once(terminal)
            if stop.is_set():
                continue
            stop.set()
            answers.append(threading.Thread(target=on_stop, daemon=True))
            answers[-1].start()  # it may block: a paused terminal
        os.close(reader)
        for answer in answers:
            answer.join()

    os.set_blocking(writer, False)
    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    with _handled_by(stop.handle):
        woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield stop
        finally:
            signal.set_wakeup_fd(woken)
            os.close(writer)
            listener.join(ANSWER_S)


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    numbers = [*_STOPPING, signal.SIGQUIT]
    ignored = [
        number
        for number in numbers
        if number != signal.SIGINT and signal.getsignal(number) == signal.SIG_IGN
    ]
    before = {number: signal.signal(number, handler) for number in numbers if number not in ignored}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


@contextmanager
def blocked(signals: frozenset[signal.Signals]) -> Iterator[None]:
    """Block signals in this thread, and for good in the processes and threads that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_at_once(terminal: int) -> NoReturn:
    text = b"\nleft at once; the same command resumes from the last checkpoints\n"
    with contextlib.suppress(OSError):
        os.write(terminal, _SHOW_CURSOR + text if os.isatty(terminal) else text)
    os._exit(STOPPED)


def signals_as_ctrl_c() -> AbstractContextManager[None]:
    """Make the signals that ask for an end raise KeyboardInterrupt, as Ctrl-C does.

    A shell without job control starts background jobs with SIGINT ignored; here it counts.
    """
    return _handled_by(signal.default_int_handler)
