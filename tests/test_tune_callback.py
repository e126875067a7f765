from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.errors import UserError
from sweep.machines import Machines
from sweep.ray_session import RayLostError
from sweep.trials import TrialEvents
from sweep.tune_callback import EventCallback, SweepStoppedError
from tests.small_runs import run_of


def full_disk(*arguments: Any) -> None:
    raise OSError(28, "No space left on device")


class There(Machines):
    """Where a machine is lost when it is told to be."""

    def __init__(self, gone: bool = False) -> None:
        self.gone = gone

    def lost(self, trial: Any) -> bool:
        return self.gone


def callback(machines: Machines | None = None, **changes: Any) -> EventCallback:
    names = ("on_event", "on_failure", "on_interruption", "on_machine_lost", "on_tick")
    quiet: dict[str, Any] = dict.fromkeys(names, lambda *arguments: None)
    return EventCallback(TrialEvents(**quiet | changes), threading.Event(), list, machines or There())


def test_a_problem_in_an_event_stops_tune_at_its_next_step_and_is_kept_as_it_was() -> None:
    heard = callback(on_event=full_disk)
    heard.on_step_begin(1, [])
    heard.on_trial_result(1, [], None, {"events": [{"kind": "started"}]})
    with pytest.raises(SweepStoppedError):
        heard.on_step_begin(2, [])
    assert isinstance(heard.problem, OSError)
    assert heard.problem.errno == 28


def test_a_problem_in_a_tick_stops_tune_at_once() -> None:
    heard = callback(on_tick=full_disk)
    with pytest.raises(SweepStoppedError):
        heard.on_step_begin(1, [])
    assert isinstance(heard.problem, OSError)


def test_a_worker_that_cannot_write_is_told() -> None:
    heard = callback()
    heard.on_trial_result(1, [], None, {"storage_problem": "[Errno 28] No space left on device"})
    with pytest.raises(SweepStoppedError):
        heard.on_step_begin(1, [])
    assert isinstance(heard.problem, UserError)
    assert str(heard.problem).startswith("a worker cannot write checkpoints: [Errno 28] No space left on device")


def test_being_asked_to_stop_is_no_problem() -> None:
    heard = callback()
    heard.stop.set()
    with pytest.raises(SweepStoppedError):
        heard.on_step_begin(1, [])
    assert heard.problem is None


def test_when_ray_has_died_no_trial_is_to_blame() -> None:
    blamed: list[Any] = []
    heard = callback(on_failure=lambda *arguments: blamed.append(arguments))
    heard.lost = lambda: ["raylet"]
    heard.on_trial_error(1, [], trial_of("run"))
    assert blamed == []
    with pytest.raises(SweepStoppedError):
        heard.on_step_begin(1, [])
    assert isinstance(heard.problem, RayLostError)
    assert str(heard.problem) == "Ray died (raylet ended unexpectedly)"


def test_when_we_are_leaving_no_trial_is_to_blame() -> None:
    blamed: list[Any] = []
    heard = callback(on_failure=lambda *arguments: blamed.append(arguments))
    heard.on_trial_error(1, [], trial_of("run"))
    assert len(blamed) == 1
    heard.stop.set()
    heard.on_trial_error(2, [], trial_of("run"))
    assert len(blamed) == 1


def trial_of(name: str) -> Any:
    cohort = [{"content": run_of().content()}]
    failures = SimpleNamespace(num_failures=1)
    return SimpleNamespace(config={"trial": {"name": name, "cohort": cohort}}, error_file=None, run_metadata=failures)


def test_a_trial_that_will_be_tried_again_is_told() -> None:
    told: list[Any] = []
    callback(on_interruption=told.append).on_trial_recover(1, [], trial_of("run"))
    assert told == [[run_of().run_id]]


def test_a_trial_that_lost_its_machine_has_not_failed() -> None:
    told: list[Any] = []
    there = {"on_interruption": told.append, "on_failure": lambda *arguments: pytest.fail("nobody failed")}
    heard, trial = callback(There(gone=True), on_machine_lost=lambda run_ids: True, **there), trial_of("run")
    heard.on_trial_recover(1, [], trial)
    assert trial.run_metadata.num_failures == 0
    heard.on_trial_error(2, [], trial)
    assert told == [[run_of().run_id]] * 2


def test_a_trial_that_keeps_losing_machines_fails() -> None:
    failed: list[Any] = []
    heard, trial = callback(There(gone=True), on_failure=lambda *arguments: failed.append(arguments)), trial_of("run")
    heard.on_trial_recover(1, [], trial)
    assert trial.run_metadata.num_failures == 1
    heard.on_trial_error(2, [], trial)
    assert failed == [([run_of().run_id], "the worker died without a message")]
