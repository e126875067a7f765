"""Stub trials report when runs with a GPU each would; only waits move the clock here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lr_sweep.benchmarks import stub_trials
from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.worker.messages import Advanced, Event, Finished, Started

RUNS = ("a", "b")


def reported(monkeypatch: pytest.MonkeyPatch, least_wait_s: float) -> list[list[Event]]:
    """Two runs, two evaluations each, a report every 10 s: 8 reports in 40 s."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += max(seconds, least_wait_s)

    own = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep, time=lambda: clock.now)
    monkeypatch.setattr(stub_trials, "time", own)
    return list(stub_trials.reports(RUNS, num_evaluations=2, every_s=10.0))


def evaluations(events: list[list[Event]], run_id: str) -> list[Evaluation]:
    each = [event for report in events for event in report]
    return [
        event.evaluation
        for event in each
        if isinstance(event, Advanced) and event.run_id == run_id and event.evaluation
    ]


def test_reports_come_when_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: b, which is staggered, is evaluated at its first and third report, 5 and 25 s after the start."""
    first, *events, end_of_a, end_of_b = reported(monkeypatch, 0.0)
    assert first == [Started(run_id="a", step=0), Started(run_id="b", step=0)]
    assert len(events) == 8
    assert [(point.step, point.time_ms) for point in evaluations(events, "a")] == [(2000, 10_000), (4000, 30_000)]
    assert [(point.step, point.time_ms) for point in evaluations(events, "b")] == [(2000, 5000), (4000, 25_000)]
    assert [event.run_id for end in (end_of_a, end_of_b) for event in end if isinstance(event, Finished)] == ["a", "b"]


def test_a_reader_that_is_too_slow_gets_fewer_and_every_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: at one report each 12 s, those that begin before 50 s are 5 of 8."""
    _, *events, end_of_a, end_of_b = reported(monkeypatch, 12.0)
    assert len(events) == 5
    for run_id, end in (("a", end_of_a), ("b", end_of_b)):
        assert [point.step for point in evaluations([end], run_id)] == [4000]
