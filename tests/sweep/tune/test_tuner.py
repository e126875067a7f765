"""Tune's callback and its thread: from reports of trials to events; it is asked to leave, and Ray dies under it."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import cloudpickle

from lr_sweep.common.errors import UserError
from lr_sweep.common.scratch import remove_dead, scratch_folder
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune import nodes
from lr_sweep.sweep.tune import tuner as module
from lr_sweep.sweep.tune.nodes import MAX_LOSSES, Machines
from lr_sweep.sweep.tune.ray_session import RayLostError
from lr_sweep.sweep.tune.trials import (
    Leave,
    Reported,
    StorageFailed,
    TrialEvent,
    TrialFailed,
    TrialInterrupted,
    report_every_s,
)
from lr_sweep.sweep.tune.tuner import (
    EventCallback,
    SweepLeftError,
    SweepStoppedError,
    failure_of,
    new_tuner,
    train_cohorts,
)
from lr_sweep.tests.support.scripted_trials import evaluation
from lr_sweep.trainables.worker.messages import Advanced, Cohort, Finished, Started
from lr_sweep.trainables.worker.ray_internals import KILLED

STARTED = Started(run_id="a", step=0)


class There(Machines):
    """A check for lost machines that reports every one as lost, or none."""

    def __init__(self, gone: bool = False) -> None:
        super().__init__()
        self.gone = gone

    def lost(self, trial: Any) -> bool:
        return self.gone


@pytest.fixture(autouse=True)
def died(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of processes of Ray that have died; to be added to."""
    names: list[str] = []
    monkeypatch.setattr(module, "lost_processes", lambda: names)
    monkeypatch.setattr(module, "LEAVING_S", 0.5)
    monkeypatch.setattr(module, "TICK_S", 0.05)
    return names


def callback(machines: Machines | None = None) -> tuple[EventCallback, list[TrialEvent]]:
    events: list[TrialEvent] = []
    return EventCallback(events.append, Leave(), machines or There()), events


def trial(runs_at_once: int = 1) -> Any:
    """A trial of two runs."""
    runs: Any = tuple(SimpleNamespace(run_id=run_id) for run_id in "ab")
    given = {"checkpoints": Path(), "data_dir": Path(), "checkpoint_every_s": 1.0, "report_every_s": 1.0}
    cohort = Cohort(name="t", runs=runs, num_steps=9, runs_at_once=runs_at_once, device="cpu", **given)
    failures = SimpleNamespace(num_failures=1)
    config = {"trial": {"cohort": cohort}}
    return SimpleNamespace(config=config, trial_id="t", error_file=None, run_metadata=failures)


def test_it_forwards_what_a_trial_reports() -> None:
    tune, events = callback()
    tune.on_trial_result(1, [], trial(), {"events": [STARTED]})
    tune.on_trial_result(1, [], trial(), {"events": [], "storage_problem": "[Errno 28] No space left on device"})
    tune.on_trial_result(1, [], trial(), {"events": [STARTED], "failed": "MemoryError: "})
    assert events == [
        STARTED,
        StorageFailed(reason="[Errno 28] No space left on device"),
        STARTED,
        TrialFailed(run_ids=["a", "b"], reason="MemoryError: "),
    ]


def test_a_trial_without_retries_left_fails_unless_ray_has_died_or_tune_is_stopped(died: list[str]) -> None:
    tune, events = callback()
    tune.on_trial_error(1, [], trial())
    assert events == [TrialFailed(run_ids=["a", "b"], reason="the worker died without a message")]
    died.append("raylet")
    tune.on_trial_error(1, [], trial())
    died.clear()
    tune.leave.set()
    tune.on_trial_error(1, [], trial())
    assert len(events) == 1


def test_a_trial_that_crashed_and_is_retried_is_interrupted() -> None:
    tune, events = callback()
    crashed = trial()
    tune.on_trial_recover(1, [], crashed)
    assert events == [TrialInterrupted(run_ids=["a", "b"], reason="the worker died without a message")]
    assert crashed.run_metadata.num_failures == 1


@pytest.mark.parametrize(("reason", "at_once"), [(f"{KILLED}: 7.6 of 8 GB are used", 2), ("ValueError: no", 5)])
def test_a_retry_leaves_out_runs_that_have_ended_and_after_a_kill_for_memory_trains_half_as_many_at_once(
    tmp_path: Path, reason: str, at_once: int
) -> None:
    tune, _ = callback()
    crashed = trial(runs_at_once=5)
    crashed.error_file = tmp_path / "error.txt"
    crashed.error_file.write_text(f"Failure # 1 (occurred at noon)\n{reason}\n")
    end: Any = {"status": "complete", "elapsed_s": 1.0, "engine": "own", "device": "none"}
    tune.on_trial_result(1, [], crashed, {"events": [Finished(run_id="a", step=9, **end)]})
    tune.on_trial_recover(1, [], crashed)
    cohort = crashed.config["trial"]["cohort"]
    assert (cohort.run_ids, cohort.runs_at_once) == (["b"], at_once)


def test_what_tune_keeps_of_a_trial_does_not_grow_with_their_number() -> None:
    cohorts = [trial().config["trial"]["cohort"] for _ in range(100)]
    given = module.Given(cohorts)
    taken = copy.deepcopy(lambda: next(given.cohorts))  # as Tune copies functions
    assert [taken() for _ in range(100)] == cohorts
    assert len(cloudpickle.dumps(taken)) < 1000


CUDA = """\
Failure # 1 (occurred at 2026-11-27_12-00-00)
ray::CohortTrainable.train() (pid=7, ip=10.0.0.1, actor_id=5a)
ImportError: an earlier one
Failure # 2 (occurred at 2026-11-27_12-01-00)
ray::CohortTrainable.train() (pid=8, ip=10.0.0.2, actor_id=5b)
  File "trainable.py", line 336, in train
    raise skipped from exception_cause(skipped)
torch.AcceleratorError: CUDA error: no CUDA-capable device is detected
Search for `cudaErrorNoDevice' in https://docs.nvidia.com/ for more information.
Device-side assertion tracking was not enabled by user.
"""


@pytest.mark.parametrize(("started_on", "expected"), [("y", "y"), (None, "x"), ("", None)])
def test_a_failed_attempt_is_of_a_node_and_for_the_last_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started_on: str | None, expected: str | None
) -> None:
    """A worker that fails as it starts is on no node that was noted: Ray's text has its address. "": no cluster."""
    there = [{"NodeID": node, "NodeManagerAddress": f"10.0.0.{number}"} for node, number in (("z", 1), ("x", 2))]
    monkeypatch.setattr(nodes, "alive_nodes", lambda: there)
    machines, failed = Machines(on_cluster=started_on != ""), trial()
    monkeypatch.setattr(machines, "lost", lambda trial: False)
    monkeypatch.setattr(nodes, "node_of_trial", lambda trial: started_on)
    if started_on:
        machines.started(failed)
    failed.error_file = tmp_path / "error.txt"
    failed.error_file.write_text(CUDA)
    tune, events = callback(machines)
    tune.on_trial_recover(1, [], failed)
    tune.on_trial_error(1, [], failed)  # tried again elsewhere, where it did not start either
    reason = "torch.AcceleratorError: CUDA error: no CUDA-capable device is detected"
    assert events == [
        TrialInterrupted(run_ids=["a", "b"], reason=reason, node=expected),
        TrialFailed(run_ids=["a", "b"], reason=reason, node="x" if expected else None),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the worker died without a message"),
        ("The actor died unexpectedly.\n\tpid: 7\n\tip: 10.0.0.1\nIts worker has died.\n", "Its worker has died."),
        (
            '  File "a.py", line 1\n    load()\nRuntimeError: in state_dict:\n\tMissing x\n',
            "RuntimeError: in state_dict:",
        ),
    ],
)
def test_the_reason_is_one_line(text: str, expected: str) -> None:
    assert failure_of(text) == expected


def test_a_trial_that_lost_its_machine_has_not_failed() -> None:
    tune, events = callback(There(gone=True))
    lost = trial()
    tune.on_trial_recover(1, [], lost)
    assert lost.run_metadata.num_failures == 0
    tune.on_trial_error(2, [], lost)
    assert events == [TrialInterrupted(run_ids=["a", "b"])] * 2


def test_a_trial_that_keeps_losing_machines_fails_unless_its_runs_get_further() -> None:
    tune, events = callback(There(gone=True))
    for _ in range(MAX_LOSSES):
        tune.on_trial_error(1, [], trial())
    point = Advanced(run_id="b", step=10, evaluation=evaluation(10))
    tune.on_trial_result(1, [], trial(), {"events": [point]})
    for _ in range(MAX_LOSSES):
        tune.on_trial_error(1, [], trial())
    losses = [TrialInterrupted(run_ids=["a", "b"])] * MAX_LOSSES
    assert events == [*losses, point, Reported(), *losses]
    assert not any(isinstance(event, TrialFailed) for event in events)
    tune.on_trial_error(1, [], trial())
    assert isinstance(events[-1], TrialFailed)
    lost = trial()
    tune.on_trial_recover(1, [], lost)
    assert lost.run_metadata.num_failures == 1


Train = Callable[[Callable[[EventCallback], None]], Generator[TrialEvent | None, None, None]]


@pytest.fixture
def leave() -> Leave:
    return Leave()


@pytest.fixture
def train(died: list[str], leave: Leave, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Train:
    """Returns what `train_cohorts` yields while a function runs in place of Tune."""

    def with_tune(fit: Callable[[EventCallback], None]) -> Generator[TrialEvent | None, None, None]:
        def tuner(cohorts: Any, placement: Any, scratch: Any, callback: EventCallback, at_most: Any) -> Any:
            return SimpleNamespace(fit=lambda: fit(callback))

        monkeypatch.setattr(module, "new_tuner", tuner)
        return train_cohorts([], Placement(resources=Resources()), tmp_path / "tune", Machines(), leave, None)

    return with_tune


def test_another_sweep_that_starts_leaves_tune_s_state_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scratch folder is locked; a new folder in its place would not be."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder("tune-") as scratch:
        new_tuner([], Placement(resources=Resources()), scratch, callback()[0], None)
        remove_dead(scratch.parent)
        assert scratch.is_dir()


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
    monkeypatch.setattr(module, "LEAVING_AT_ONCE_S", 0.1)
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
