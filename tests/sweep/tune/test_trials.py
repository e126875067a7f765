"""Tune's thread: events come out of it, it is asked to leave, and Ray dies under it. Ray and Tune are replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune import trials
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import RayLostError
from lr_sweep.sweep.tune.trial_events import Leave, StorageFailed, TrialEvent
from lr_sweep.sweep.tune.trials import report_every_s, train_cohorts
from lr_sweep.sweep.tune.tuner import EventCallback, SweepLeftError, SweepStoppedError

Train = Callable[[Callable[[EventCallback], None]], Generator[TrialEvent | None, None, None]]


@pytest.fixture
def died(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of processes that have died; to be added to."""
    names: list[str] = []
    monkeypatch.setattr(trials, "lost_processes", lambda: names)
    monkeypatch.setattr(trials, "LEAVING_S", 0.5)
    monkeypatch.setattr(trials, "TICK_S", 0.05)
    return names


@pytest.fixture
def leave() -> Leave:
    return Leave()


@pytest.fixture
def train(died: list[str], leave: Leave, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Train:
    """Returns what `train_cohorts` yields while a function runs in place of Tune."""

    def with_tune(fit: Callable[[EventCallback], None]) -> Generator[TrialEvent | None, None, None]:
        def tuner(cohorts: Any, placement: Any, scratch: Any, callback: EventCallback, at_most: Any) -> Any:
            return SimpleNamespace(fit=lambda: fit(callback))

        monkeypatch.setattr("lr_sweep.sweep.tune.tuner.new_tuner", tuner)
        return train_cohorts([], Placement(resources=Resources()), tmp_path / "tune", Machines(), leave, None)

    return with_tune


def test_a_trial_reports_every_two_seconds_unless_400_train_at_once() -> None:
    assert [report_every_s(number) for number in (1, 400, 2000)] == [2.0, 4.0, 20.0]


def report(callback: EventCallback, reason: str) -> None:
    callback.on_trial_result(1, [], None, {"storage_problem": reason})


def reasons(events: Iterable[TrialEvent | None]) -> list[str]:
    return [event.reason for event in events if isinstance(event, StorageFailed)]


def tune_until_asked_to_leave(callback: EventCallback) -> None:
    while True:
        callback.on_step_begin(1, [])
        time.sleep(0.01)


def test_events_come_in_order_and_none_comes_while_nothing_happens(train: Train) -> None:
    def fit(callback: EventCallback) -> None:
        for number in range(1000):
            report(callback, str(number))
        time.sleep(0.3)
        report(callback, "last")

    events = list(train(fit))
    assert reasons(events) == [*map(str, range(1000)), "last"]
    assert None in events


def test_what_is_reported_before_a_stop_is_read_after_it(train: Train, leave: Leave) -> None:
    def fit(callback: EventCallback) -> None:
        for number in range(100):
            report(callback, str(number))
        try:
            tune_until_asked_to_leave(callback)
        finally:
            report(callback, "while runs are saved")

    events = train(fit)
    first = next(events)
    leave.set()
    assert len(reasons([first, *events])) == 101


def test_closing_stops_tune_and_waits_for_it(train: Train) -> None:
    saved = threading.Event()

    def fit(callback: EventCallback) -> None:
        with pytest.raises(SweepStoppedError):
            tune_until_asked_to_leave(callback)
        time.sleep(0.2)
        saved.set()

    events = train(fit)
    assert next(events) is None
    events.close()
    assert saved.is_set()


def test_an_error_of_tune_is_one_message(train: Train) -> None:
    def fit(callback: EventCallback) -> None:
        raise ZeroDivisionError

    with pytest.raises(UserError, match=r"Ray Tune failed \(ZeroDivisionError\)"):
        list(train(fit))


def test_ray_s_death_is_raised_after_all_that_was_reported(train: Train, died: list[str]) -> None:
    def fit(callback: EventCallback) -> None:
        report(callback, "first")
        died.append("raylet")
        report(callback, "second")
        raise ConnectionError("as Ray's functions do then")

    events, seen = train(fit), list[TrialEvent | None]()
    with pytest.raises(RayLostError, match=r"Ray died \(raylet ended unexpectedly\)"):
        seen.extend(events)
    assert len([event for event in seen if event]) == 2


def test_a_tune_that_hangs_in_a_dead_ray_is_left_behind_and_asked_to_leave(
    train: Train, died: list[str], leave: Leave
) -> None:
    go_on, left = threading.Event(), threading.Event()

    def hangs(callback: EventCallback) -> None:
        died.append("gcs_server")
        assert go_on.wait(10)
        if leave.is_set():
            left.set()

    began = time.monotonic()
    with pytest.raises(RayLostError, match="gcs_server ended unexpectedly"):
        list(train(hangs))
    assert 0.5 <= time.monotonic() - began < 5
    go_on.set()
    assert left.wait(10)


def test_a_tune_whose_workers_start_is_left_without_waiting_for_them(
    train: Train, leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "LEAVING_AT_ONCE_S", 0.1)
    go_on = threading.Event()

    def starts_workers(callback: EventCallback) -> None:
        leave.set_at_once()
        assert go_on.wait(10)

    assert [event for event in train(starts_workers) if event] == []
    go_on.set()

    def looks(callback: EventCallback) -> None:
        leave.set_at_once()
        with pytest.raises(SweepLeftError):  # no Exception: Tune would wait for its trials
            callback.on_step_begin(0, [])

    assert not issubclass(SweepLeftError, Exception)
    assert [event for event in train(looks) if event] == []
