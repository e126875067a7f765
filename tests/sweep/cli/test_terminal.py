"""Signals, and what the user reads when a process cannot say anything itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.tune import run_study
from lr_sweep.tests.support.tiny_study import ROOT, write_study


def started(body: str) -> subprocess.Popen[str]:
    """Start a program that does this inside `last_word`."""
    program = f"""
        import hashlib, os, signal, sys
        from lr_sweep.sweep.terminal import last_word, stop_signals
        with last_word("the last word; it's 100%s"):
            {body}
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("end", ["os._exit(1)", "os.abort()", "os.killpg(os.getpid(), signal.SIGKILL)"])
def test_an_end_without_a_word_gets_one(end: str) -> None:
    output, _ = started(end).communicate(timeout=60)
    assert "the last word; it's 100%s\n" in output


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "raise ValueError('why')"])
def test_an_end_that_explains_itself_gets_none(end: str) -> None:
    output, _ = started(end).communicate(timeout=60)
    assert "the last word" not in output


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_a_process_that_is_inside_a_library(second: int) -> None:
    """One that runs no Python meanwhile, as Ray's does when it connects."""
    busy = "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"  # takes half an hour
    stopping = "lambda: print('stopping', flush=True)"
    with started(f"with stop_signals({stopping}, 1): print('begun', flush=True), {busy}") as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "stopping\n"
            process.send_signal(second)
            assert process.wait(timeout=30) == 130
        finally:
            process.kill()
        assert process.stdout.read() == "\nleft at once; the same command resumes from the last checkpoints\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
