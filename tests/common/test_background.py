"""A worker in the background: keys run once, in order, until they succeed; nothing waits for it longer than asked."""

from __future__ import annotations

import threading
import time

import pytest

from lr_sweep.common import background
from lr_sweep.common.background import BackgroundWorker
from lr_sweep.tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("submitted", "expected"),
    [
        (("b", "c", "b"), ["a", "b", "c"]),  # before their turn: once, in order
        (("a",), ["a", "a"]),  # while it runs: again, else `wait` would return before the second change was seen
    ],
)
def test_keys_that_are_submitted_while_one_runs(submitted: tuple[str, ...], expected: list[str]) -> None:
    started, resume, done = threading.Event(), threading.Event(), []

    def action(key: str) -> None:
        started.set()
        assert resume.wait(10)
        done.append(key)

    worker = BackgroundWorker("test", action, pytest.fail, retry_s=0.01)
    worker.submit("a")
    assert started.wait(10)
    worker.submit(*submitted)
    assert not worker.wait(submitted, 0.05)
    resume.set()
    assert worker.wait(["a", *submitted], 10)
    assert done == expected


def test_failures_are_reported_once_and_tried_again() -> None:
    attempts: list[str] = []
    problems: list[Exception] = []

    def action(key: str) -> None:
        attempts.append(key)
        if attempts.count("a") < 3 and key == "a":
            raise OSError("away")

    worker = BackgroundWorker("test", action, problems.append, retry_s=0.01)
    worker.submit("a", "b")
    assert worker.wait(["a", "b"], 10)
    assert attempts == ["a", "b", "a", "a"]
    assert [str(problem) for problem in problems] == ["away"]
    assert worker.failing == {}


def test_close_tries_once_more_and_names_what_is_left() -> None:
    attempts: list[str] = []

    def action(key: str) -> None:
        attempts.append(key)
        raise OSError("away")

    worker = BackgroundWorker("test", action, lambda problem: None, retry_s=60.0)
    worker.submit("a")
    wait_until(lambda: worker.failing, "the first attempt")
    assert worker.close(10) == ["a"]
    assert attempts == ["a", "a"]


def test_a_key_that_always_runs_ends_with_close() -> None:
    runs: list[str] = []
    worker = BackgroundWorker("test", runs.append, pytest.fail, retry_s=0.01, always="pass", every_s=0.01)
    wait_until(lambda: len(runs) >= 3, "three runs")
    assert worker.close(10) == []
    number = len(runs)
    time.sleep(0.1)
    assert len(runs) == number


def test_a_thread_that_rests_takes_what_came_meanwhile_as_one_and_does_not_rest_once_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "MOST_REST_S", 600.0)
    runs: list[str] = []
    worker = BackgroundWorker("test", runs.append, pytest.fail, retry_s=0.01, rest=1e12)
    worker.submit("a")
    assert worker.wait(["a"], 10)
    worker.submit("b")
    assert not worker.wait(["b"], 0.05)
    worker.submit("b", "c")
    assert worker.close(10) == []
    assert runs == ["a", "b", "c"]
