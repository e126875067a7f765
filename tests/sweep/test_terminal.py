"""Signals, and a terminal that is closed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.terminal import GROUP_SIGNALS, StopAskedError, blocked, signals_as_ctrl_c, stop_signals
from lr_sweep.sweep.tune import run_study
from lr_sweep.tests.support.tiny_study import ROOT, write_study

ASKING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGQUIT]
"""What users, terminals and batch systems send to end a process."""


def started(body: str) -> subprocess.Popen[str]:
    """Start a program that does this."""
    program = f"""
        import hashlib, os, signal, sys
        from lr_sweep.sweep.terminal import stop_signals
        {body}
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGQUIT, signal.SIG_DFL),  # which a background job ignores
    )


def test_ctrl_c_while_the_program_is_imported_ends_it_with_a_word() -> None:
    """It is pressed when the command line's library is looked for; a background job's stays ignored."""
    pressed = """
import os, signal, sys
class Pressing:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, getattr(signal, sys.argv.pop(1)))
sys.meta_path.insert(0, Pressing())
from lr_sweep.sweep.__main__ import command
command()
"""
    ended = {}
    for handler in ("default_int_handler", "SIG_IGN"):
        line = [sys.executable, "-c", pressed, handler, "--version"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        ended[handler] = done.returncode, done.stderr
    assert ended == {"default_int_handler": (130, "stopped\n"), "SIG_IGN": (0, "")}


@pytest.mark.parametrize(
    "sent",
    [[first, second] for first in (signal.SIGINT, signal.SIGTERM) for second in (signal.SIGINT, signal.SIGQUIT)]
    + [[signal.SIGQUIT]],
)
def test_a_second_ctrl_c_or_ctrl_backslash_ends_a_process_that_is_inside_a_library(sent: list[int]) -> None:
    """One that runs no Python meanwhile, as Ray's does when it connects; it gives no false reason."""
    busy = "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"  # takes half an hour
    stopping = "lambda: print('stopping', flush=True)"
    with started(f"with stop_signals({stopping}, 1): print('begun', flush=True), {busy}") as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "begun\n"
            for number in sent[:-1]:
                process.send_signal(number)
                assert process.stdout.readline() == "stopping\n"
            process.send_signal(sent[-1])
            assert process.wait(timeout=30) == 130
        finally:
            process.kill()
        assert process.stdout.read() == "\nleft at once; the same command resumes from the last checkpoints\n"


@pytest.mark.parametrize("number", ASKING)
def test_a_signal_before_ray_starts_ends_run_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], number: int
) -> None:
    def interrupted(*arguments: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(10)

    monkeypatch.setattr(run_study, "run_study", interrupted)
    before = signal.getsignal(number)
    assert main(["run", str(write_study(tmp_path)), "--results", str(tmp_path / "results")]) == 130
    assert capfd.readouterr().err == "stopped; the same command resumes\n"
    assert signal.getsignal(number) is before


WAITS = "stop_signals(lambda: print('stopping', flush=True), 1) as stop"


@pytest.mark.parametrize("number", [each for each in ASKING if each != signal.SIGQUIT])
def test_every_signal_that_asks_for_an_end_lets_runs_be_saved(number: int) -> None:
    with started(f"with {WAITS}: print('begun', flush=True), stop.wait(), print('saved')") as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert "saved" in process.stdout.read()


def test_a_second_signal_of_a_platform_lets_runs_be_saved() -> None:
    """Systemd sends SIGHUP right after SIGTERM to all that a login has started, and `timeout` SIGTERM twice."""
    saves = "stop.wait(), print(sys.stdin.readline(), end='')"
    with started(f"with {WAITS}: print('begun', flush=True), {saves}") as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopping\n"
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            process.send_signal(number)
        process.stdin.write("saved\n")
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == "saved\n"


def test_a_sighup_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_ctrl_c(), stop_signals(lambda: None, 1) as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.wait(0.1)
    finally:
        signal.signal(signal.SIGHUP, before)


def _kill_and_wait() -> None:
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(10)


def test_what_starts_ray_is_broken_off_and_what_trains_is_not() -> None:
    with stop_signals(lambda: None, 1) as stop:
        with pytest.raises(StopAskedError), stop.breaks_off():
            _kill_and_wait()
        assert stop.wait(10)
        with pytest.raises(StopAskedError), stop.breaks_off():
            pytest.fail("it was asked before")


def test_signals_to_a_whole_group_do_not_reach_what_is_started_meanwhile() -> None:
    with blocked(GROUP_SIGNALS):
        child = subprocess.Popen(["sleep", "60"])
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        child.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.2)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
    child.kill()
    child.wait()


def test_a_process_whose_terminal_was_closed_works_on() -> None:
    """`run` saves, records and reports after a SIGHUP, and prints meanwhile."""
    primary, secondary = pty.openpty()
    program = """
        import sys, time
        from pathlib import Path
        from lr_sweep.sweep.terminal import lasting_output, output_to
        with lasting_output():
            print("begun", flush=True)
            time.sleep(60) if not sys.stdin.readline() else None
            with output_to(Path(sys.argv[1])) as console:
                console.print("to the terminal")
            print("to the terminal", flush=True)
            print("and here", file=sys.stderr, flush=True)
        Path(sys.argv[1]).write_text("worked on")
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-c", textwrap.dedent(program), str(log)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=secondary, stderr=secondary, text=True) as process:
            os.close(secondary)
            assert b"begun" in os.read(primary, 100)
            os.close(primary)
            process.communicate("\n", timeout=60)
        assert (process.returncode, log.read_text()) == (0, "worked on")


def test_the_terminal_is_there_again_after_a_log_that_takes_no_more(tmp_path: Path) -> None:
    """As on a full disk; here the system allows no file to grow."""
    program = """
        import resource, sys
        from pathlib import Path
        from lr_sweep.sweep.terminal import lasting_output, output_to
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        with lasting_output():
            try:
                with output_to(Path(sys.argv[1])) as console:
                    console.print("training")
                    sys.stdout.write("a library's words")
                    print("a library's warning", file=sys.stderr)
            except OSError as error:
                print(error.strerror, file=sys.stderr)
            print("the end")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("training\nthe end\n", "File too large\n")
