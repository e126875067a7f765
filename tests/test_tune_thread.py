"""Tune's thread: signals, and Ray that dies under it. Ray and Tune are replaced by what they would do."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from sweep import tune_thread
from sweep.ray_session import RayLostError
from sweep.sharing import ShareChangedError
from sweep.tune_thread import run_in_thread


@pytest.fixture(autouse=True)
def died(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of processes that have died; to be added to."""
    names: list[str] = []
    monkeypatch.setattr(tune_thread, "lost_processes", lambda: names)
    monkeypatch.setattr(tune_thread, "LEAVING_S", 0.5)
    return names


def wait_for(stop: threading.Event) -> bool:
    assert stop.wait(10)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_work_to_stop(number: int) -> None:
    before = signal.getsignal(number)
    threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
    answered = threading.Event()

    def work(stop: threading.Event) -> bool:
        assert answered.wait(10), "the user is answered while the work still runs"
        return wait_for(stop)

    assert run_in_thread(work, answered.set) is False
    assert signal.getsignal(number) is before


def test_what_the_work_returns_and_raises_comes_out() -> None:
    assert run_in_thread(lambda stop: True) is True
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda stop: 1 / 0)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("problem", [RayLostError, ShareChangedError])
def test_what_cuts_work_short_is_an_error_unless_we_were_leaving_anyway(problem: type[Exception]) -> None:
    def lost(stop: threading.Event) -> bool:
        raise problem

    with pytest.raises(problem):
        run_in_thread(lost)

    def asked_then_lost(stop: threading.Event) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)
        return lost(stop)

    assert run_in_thread(asked_then_lost) is False


def test_work_that_hangs_in_a_dead_ray_is_left_behind_and_told_to_leave(died: list[str]) -> None:
    told, go_on = threading.Event(), threading.Event()

    def hangs(stop: threading.Event) -> bool:
        died.append("gcs_server")
        assert go_on.wait(10)
        if stop.is_set():
            told.set()
        return True

    began = time.monotonic()
    with pytest.raises(RayLostError, match="gcs_server ended unexpectedly.* does not let go"):
        run_in_thread(hangs)
    assert 0.5 <= time.monotonic() - began < 5
    go_on.set()
    assert told.wait(10)
