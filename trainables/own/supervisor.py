"""Runs a command, and kills all that it has started once the command ends, or once the starting process is gone.

`supervisor.start` starts it as a script, which imports nothing of this program and is ready in a tenth of a second. A
signal that asks for an end, sent to its process group or to all processes of a machine, reaches the command and not it.

On Linux, orphans of the command become its children, also those in sessions of their own. The supervisor is two
processes: where one is killed, as Ray kills the children of its workers, the other one kills the rest.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil  # type: ignore[import-untyped]

PR_SET_CHILD_SUBREAPER = 36
ASKING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU}
"""Signals that ask for an end."""
SAVING_S = 20.0
"""Seconds that a command has to save once it was asked to end. Slurm and Kubernetes kill all after 30."""
KILLING_S = 10.0
"""Longest wait for the end of killed processes: one in a system call may take a while."""
TICK_S = 0.05


def start(command: Sequence[str], lock: Path | None = None, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own; `options` are those of `Popen`. It ends when the input is closed.

    While another process holds `lock`, it waits. Its exit code is the command's, or of a signal that asked for an end.
    """
    words = [sys.executable, "-P", __file__, str(lock or ""), *command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, **options)


def end(process: subprocess.Popen[bytes], saving_s: float = 0.0) -> None:
    """End what `start` has started, if it runs: by SIGTERM and after some seconds to save, or at once."""
    with process, suppress(ProcessLookupError, subprocess.TimeoutExpired):  # closes its input, and waits for its end
        if saving_s and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(saving_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # orphans, where they are not the supervisor's children


def main(lock: str, *command: str) -> None:
    """Run a command for `start`."""
    for number in ASKING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)  # they stay pending
    parent = os.getppid()
    with suppress(OSError):  # none is wanted, or the disk has no locks
        # An earlier command may still save, after its run's process has died.
        fcntl.flock(os.open(lock, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
    if _is_alone(parent):
        return
    outer = os.getpid()
    if inner := os.fork():
        _end_as(_supervise(inner, parent))
    _end_as(_supervise(_started(command), outer))


def _started(command: Sequence[str]) -> int:
    """Start the command as a shell would, without the signals that Ray ignores or blocks; return its id."""
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    signals: Any = {"setsigmask": (), "setsigdef": signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}}
    try:
        return os.posix_spawnp(command[0], command, os.environ, file_actions=[no_input], **signals)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def _is_alone(parent: int) -> bool:
    return os.getppid() != parent or bool(select.select([0], [], [], 0)[0])


def _supervise(child: int, parent: int) -> int:
    """Wait for the child's end, or for the parent's and until the child has saved; kill the rest.

    Returns the child's exit code; a negative one is a signal's number.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    asked_at, codes = -math.inf, dict[int, int]()
    while child not in codes:
        if asked_at < 0 and signal.sigpending() & ASKING:
            asked_at = time.monotonic()
        if _is_alone(parent) and time.monotonic() >= asked_at + SAVING_S:
            break
        time.sleep(TICK_S)
        _reap(codes)
    until = time.monotonic() + KILLING_S
    while _reap(codes) and time.monotonic() < until:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                process.kill()
        time.sleep(TICK_S / 10)
    return codes.get(child, -signal.SIGKILL)


def _reap(codes: dict[int, int]) -> bool:
    """Note the exit codes of children that have ended, by id; return whether there are others."""
    with suppress(ChildProcessError):
        while pid := (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[pid] = os.waitstatus_to_exitcode(ended[1])
        return True
    return False


def _end_as(code: int) -> NoReturn:
    """End with an exit code, by the signal of a negative one, or by a pending one that asked for an end."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if code < 0:
        with suppress(OSError):  # for SIGKILL, which has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os._exit(code % 256)


if __name__ == "__main__":
    main(*sys.argv[1:])
