"""What a command has started ends with it or with its run, however it hides; signals, time to save, the lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lr_sweep.tests.support.waiting import is_alive, wait_until
from lr_sweep.trainables.own import supervisor

HIDES = """
import os, subprocess, sys, time

def hang():
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()} ")
    time.sleep(600)

if os.fork() == 0:
    hang()
if os.fork() == 0:
    os.setsid()  # as torch elastic starts its workers
    hang()
if (daemon := os.fork()) == 0:
    os.setsid()
    if os.fork() == 0:
        hang()
    os._exit(0)
os.waitpid(daemon, 0)
while not (os.path.exists(sys.argv[1]) and len(open(sys.argv[1]).read().split()) == 3) or "hangs" in sys.argv:
    time.sleep(0.05)
"""


def python(script: str, *arguments: str | Path, lock: Path | None = None) -> subprocess.Popen[bytes]:
    return supervisor.start([sys.executable, "-c", script, *map(str, arguments)], lock)


def inner_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    (inner,) = psutil.Process(process.pid).children()
    return inner


def run_s_process_dies(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


ENDINGS: dict[str, Callable[[subprocess.Popen[bytes]], object]] = {
    "ends by itself": lambda process: None,
    "its run is stopped": lambda process: supervisor.end(process, saving_s=60),
    "its run's process dies": run_s_process_dies,
    "Ray kills children of its worker": lambda process: process.kill(),
    "its run's process ends it after Ray": lambda process: (process.kill(), supervisor.end(process)),
    "its supervisor is killed": lambda process: inner_of(process).kill(),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_all_that_a_command_started_ends(ending: str, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    with python(HIDES, file, *(["hangs"] if ending != "ends by itself" else [])) as process:
        wait_until(lambda: file.exists() and len(file.read_text().split()) == 3, "three processes", 60)
        ENDINGS[ending](process)
        wait_until(lambda: not any(map(is_alive, map(int, file.read_text().split()))), "their end", 60)


SHOWS = """
import signal, sys
numbers = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
sys.exit(5 if not blocked and {signal.getsignal(number) for number in numbers} == {signal.SIG_DFL} else 6)
"""


def test_a_command_starts_with_the_signals_of_a_shell() -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, supervisor.ASKING)  # as Ray's workers have it
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as of `nohup`
    try:
        with python(SHOWS) as process:
            assert process.wait(60) == 5
    finally:
        signal.signal(signal.SIGHUP, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


SAVES = """
import pathlib, signal, sys, time

def save(number, frame):
    time.sleep(0.5)
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(0)

signal.signal(signal.SIGUSR1, save)
pathlib.Path(sys.argv[2]).touch()
time.sleep(600)
"""


def test_a_command_that_was_asked_to_end_saves_even_where_its_run_s_process_ends_before(tmp_path: Path) -> None:
    process = python(SAVES, tmp_path / "saved", tmp_path / "started")
    wait_until((tmp_path / "started").exists, "its start", 60)
    os.killpg(process.pid, signal.SIGUSR1)
    run_s_process_dies(process)
    assert supervisor.signal_of(process.wait(60)) == signal.SIGUSR1  # not 0, as of a command that is done
    assert (tmp_path / "saved").exists()


def test_a_second_command_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    lock, file = tmp_path / "lock", tmp_path / "started"
    first = python("import time; time.sleep(600)", lock=lock)
    wait_until(lambda: lock.exists() and inner_of(first).children(), "the first", 60)
    with python("import pathlib, sys; pathlib.Path(sys.argv[1]).touch()", file, lock=lock) as second:
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(0.5)
        assert not file.exists()
        supervisor.end(first)
        assert second.wait(60) == 0
    assert file.exists()


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("exit 255", 255), ("kill -11 $$", 139)])
def test_it_ends_as_its_command_does(script: str, code: int) -> None:
    with supervisor.start(["sh", "-c", script]) as process:
        assert process.wait(60) == code
    assert supervisor.ending(code) == {139: "was killed by SIGSEGV"}.get(code, f"ended with exit code {code}")


OUTLIVES = """
import multiprocessing, os, signal, subprocess, sys, time
from lr_sweep.trainables.own import supervisor

signal.pthread_sigmask(signal.SIG_BLOCK, supervisor.ASKING)
supervisor.outlive_signals()
for number in supervisor.ASKING:
    os.kill(os.getpid(), number)
child = subprocess.Popen(["sleep", "600"])
forked = multiprocessing.get_context("fork")
runs = forked.Event()
fork = forked.Process(target=lambda: runs.set() or time.sleep(600))
fork.start()
runs.wait()  # Python drops a signal that comes while it forks
fork.terminate()
child.terminate()
fork.join()
print(fork.exitcode, child.wait())
"""


def test_a_process_that_saves_outlives_signals_and_what_it_starts_does_not() -> None:
    """DataLoader workers and pools are ended by SIGTERM."""
    done = subprocess.run([sys.executable, "-c", OUTLIVES], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, f"{-signal.SIGTERM} {-signal.SIGTERM}\n"), done.stderr
