"""Runs a command, and kills all that it has started once the command ends, or once the starting process is gone.

`supervisor.start` starts it as a script, which imports nothing of this program and is ready in a tenth of a second. A
signal that asks for an end, sent to its process group or to all processes of a machine, reaches the command and not it.

On Linux, orphans of the command become its children, also those in sessions of their own. The supervisor is two
processes: where one is killed, as Ray kills the children of its workers, the other one kills the rest.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
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
IS_SUBREAPER = sys.platform == "linux"
"""Whether orphans of a command become the supervisor's children."""
ASKING = {
    signal.Signals[f"SIG{name}"] for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "XCPU")
}
"""Signals that ask for an end."""
SAVING_S = 600.0
"""Seconds that a command has to save when its run is left, at most: the platform or the user may end it before."""
ENDING_S = 20.0
"""Seconds that a command has which was asked to end, where its run has ended or nothing waits for it any more."""
KILLING_S = 10.0
"""Longest wait for the end of killed processes: one in a system call may take a while."""
TICK_S = 0.05


def start(
    command: Sequence[str], lock: Path | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own; `options` are those of `Popen`. It ends when the input is closed.

    While another process holds `lock`, it waits. Its exit code is the command's, or of a signal that asked for its end.
    """
    words = [sys.executable, "-P", __file__, str(lock or ""), *command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, **options)


def end(process: subprocess.Popen[bytes], saving_s: float = 0.0) -> None:
    """End what `start` has started, if it runs: by SIGTERM and after some seconds to save, or at once."""
    # Leaving the block closes the input of the process, and waits for its end.
    with process, suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if saving_s and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(saving_s)
    if not IS_SUBREAPER:  # else that of a killed supervisor would end before it has killed the rest
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def outlive_signals() -> None:
    """Let this process, but none that it starts, outlive signals that ask for an end: it saves when its run is left."""
    ours = os.getpid()

    def end_fork(number: int, frame: object) -> None:
        if os.getpid() != ours:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in ASKING:
        signal.signal(number, end_fork)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)


def signal_of(code: int) -> int:
    """Return the number of the signal that ended a process, by its exit code, to which shells add 128; 0: none."""
    return -code if code < 0 else code - 128 if 128 < code < 160 else 0


def ending(code: int) -> str:
    """Say how a process ended, by its exit code."""
    number = signal_of(code)
    return (
        f"was killed by {signal.Signals(number).name}" if number else f"ended with exit code {code}"
    )


def main(lock: str, *command: str) -> None:
    """Run a command for `start`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)  # they stay pending
    parent = os.getppid()
    with suppress(OSError):  # none is wanted, or the disk has no locks
        # An earlier command may still save, after its run's process has died.
        fcntl.flock(os.open(lock, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
    if _is_alone(parent):
        return
    outer = os.getpid()
    inner = os.fork()
    if IS_SUBREAPER:  # a fork does not inherit it
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    if inner:
        _supervise(inner, parent)
    _supervise(_started(command), outer)


def _started(command: tuple[str, ...]) -> int:
    """Start the command as a shell would, without the signals that Ray ignores or blocks; return its id."""
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    signals: Any = {
        "setsigmask": (),
        "setsigdef": signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    }
    try:
        return os.posix_spawnp(command[0], command, os.environ, file_actions=[no_input], **signals)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def _is_alone(parent: int) -> bool:
    return os.getppid() != parent or bool(select.select([0], [], [], 0)[0])


def _supervise(child: int, parent: int) -> NoReturn:
    """Wait for the child's end, or for the parent's and until the child has saved; kill the rest; end as the child."""
    saves_until, codes = 0.0, dict[int, int]()
    while child not in codes:
        if not saves_until and signal.sigpending() & ASKING:
            saves_until = time.monotonic() + ENDING_S
        if _is_alone(parent) and time.monotonic() >= saves_until:
            break
        time.sleep(TICK_S)
        _reap(codes)
    until = time.monotonic() + KILLING_S
    while _reap(codes) and time.monotonic() < until:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                process.kill()
        time.sleep(TICK_S / 10)
    code = codes.get(child, -signal.SIGKILL)
    number = min(signal.sigpending() & ASKING, default=signal_of(code))
    os._exit(128 + number if number else code)


def _reap(codes: dict[int, int]) -> bool:
    """Note the exit codes of children that have ended, by id; return whether there are others."""
    with suppress(ChildProcessError):
        while pid := (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[pid] = os.waitstatus_to_exitcode(ended[1])
        return True
    return False


if __name__ == "__main__":
    main(*sys.argv[1:])
