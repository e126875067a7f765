"""Processes that call what they are asked to call, and answer: the ranks of a run, and the trials of a function."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from lr_sweep.trainables.own import supervisor

from .session import Output

ENDING_S = 1.0
"""Seconds that a process may take to end after its connection has closed."""
MAIN = """\
from lr_sweep.trainables.worker import hide_checkout
hide_checkout()  # before any library looks for Hugging Face's `datasets`
from lr_sweep.trainables.own.supervisor import outlive_signals
outlive_signals()
from lr_sweep.trainables.own.answering import main
main({})
"""
OUTPUT = Output()
"""Text that this process prints while it answers."""

Request = Callable[[], Any]
"""A call that pickle can send: a `partial` of a function of a module."""


class LostError(Exception):
    """A process has ended, or its connection does not work."""


class Answer(NamedTuple):
    """The result of a request."""

    value: Any = None
    error: type[BaseException] | None = None
    """Class of what was raised; `value` is its message."""
    printed: str = ""


class AnsweringProcess:
    """A process of its own, with all that it starts, and the connection to it."""

    def __init__(self, variables: Mapping[str, str], **options: Any) -> None:
        """Start it with more environment variables; `options` are those of `Popen`."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            words = [sys.executable, "-P", "-c", MAIN.format(descriptor)]
            options |= {"env": os.environ | variables, "pass_fds": [descriptor]}
            self.process = supervisor.start(words, **options)
        self.connection = Connection(ours.detach())

    def send(self, request: Request) -> None:
        """Send a request; that the process has died shows where its answer is received."""
        with suppress(OSError):
            self.connection.send(request)

    def receive(self) -> Answer:
        """Wait for an answer and return it, or that the process is lost."""
        with suppress(EOFError, OSError):
            answer: Answer = self.connection.recv()
            return answer
        with suppress(subprocess.TimeoutExpired):
            return Answer(supervisor.ending(self.process.wait(ENDING_S)), LostError)
        return Answer("does not answer", LostError)

    def close(self) -> None:
        """End the process and those that it started."""
        supervisor.end(self.process)
        self.connection.close()


def main(descriptor: int) -> None:
    """Answer requests from a connection until it closes; then this process ends, whatever its threads do."""
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):
        while True:
            answer = _answer(connection.recv())
            printed = OUTPUT.take(whole_lines=False)
            connection.send(answer._replace(printed="".join(lines.text for lines in printed)))
    os._exit(1)


def _answer(request: Request) -> Answer:
    try:
        return Answer(request())
    except BaseException as error:
        return Answer(str(error) or traceback.format_exc(), type(error))
