"""Tune's thread: it is asked to leave, and Ray dies under it. Ray and Tune are replaced by what they would do."""

from __future__ import annotations

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


def test_a_stop_is_handed_on() -> None:
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    assert run_in_thread(wait_for, stop) is False


def test_what_the_work_returns_and_raises_comes_out() -> None:
    assert run_in_thread(lambda leave: True, threading.Event()) is True
    with pytest.raises(ZeroDivisionError):
        run_in_thread(lambda leave: 1 / 0, threading.Event())  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("problem", [RayLostError, ShareChangedError])
def test_what_cuts_work_short_is_an_error_unless_we_were_leaving_anyway(problem: type[Exception]) -> None:
    def lost(stop: threading.Event) -> bool:
        raise problem

    with pytest.raises(problem):
        run_in_thread(lost, threading.Event())

    asked = threading.Event()

    def asked_then_lost(leave: threading.Event) -> bool:
        asked.set()
        assert leave.wait(10)
        return lost(leave)

    assert run_in_thread(asked_then_lost, asked) is False


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
        run_in_thread(hangs, threading.Event())
    assert 0.5 <= time.monotonic() - began < 5
    go_on.set()
    assert told.wait(10)
