"""Trials in a real Tune: their order, how they stop, and what the driver keeps of their results."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import ray_session
from lr_sweep.sweep.tune.trials import Leave, TrialEvent, TrialFailed, TrialStarted
from lr_sweep.sweep.tune.tuner import train_cohorts
from lr_sweep.tests.support.trainables import FAILS, LongSteps, ShortSteps, ShortTrial
from lr_sweep.trainables.worker import ray_trainable
from lr_sweep.trainables.worker.messages import Advanced

PLACEMENT = Placement(resources=Resources(retries=0), cpus=2)
NUM_TRIALS, NUM_RESULTS = 10, 300


@pytest.fixture(scope="module")
def private_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with ray_session(PLACEMENT, tmp_path_factory.mktemp("ray") / "log"):
        yield


@pytest.fixture
def trained(private_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the events of some cohorts, which a trainable pretends to train until it is asked to leave."""

    def events(kind: type, cohorts: Sequence[Any], leave: Leave) -> Generator[TrialEvent | None, None, None]:
        monkeypatch.setattr(ray_trainable, "CohortTrainable", kind)
        return train_cohorts(cohorts, PLACEMENT, tmp_path, Machines(), leave, None)

    return events


@pytest.mark.slow
@pytest.mark.cluster
def test_a_trial_that_is_asked_to_stop_saves_when_its_step_is_over_however_long_it_takes(
    trained: Any, tmp_path: Path
) -> None:
    leave = Leave()
    for event in trained(LongSteps, [SimpleNamespace(run_ids=(), name="one", folder=str(tmp_path))], leave):
        assert event is None or isinstance(event, TrialStarted)
        if (tmp_path / "began").exists():  # in the first step
            leave.set()
    assert {path.name for path in tmp_path.iterdir()} == {"began", "ended", "saved"}


@pytest.mark.slow
@pytest.mark.cluster
def test_trials_start_in_the_order_given_and_one_that_fails_takes_no_other_with_it(
    trained: Any, tmp_path: Path
) -> None:
    (folder := tmp_path / "workers").mkdir()
    names = ({"number": number, "run_ids": [str(number)], "name": str(number)} for number in range(NUM_TRIALS))
    events = list(
        trained(ShortTrial, [SimpleNamespace(folder=folder, runs_at_once=1, **each) for each in names], Leave())
    )
    started = [int(event.run_ids[0]) for event in events if isinstance(event, TrialStarted)]
    assert all(abs(place - number) <= 2 for place, number in enumerate(started)), "two train at once"
    assert len([event for event in events if isinstance(event, TrialFailed)]) == 1
    ended = [int(event.run_id) for event in events if isinstance(event, Advanced)]
    assert sorted(ended) == [number for number in range(NUM_TRIALS) if number != FAILS]


@pytest.mark.slow
@pytest.mark.cluster
def test_the_driver_holds_few_results(trained: Any) -> None:
    """Tune (2.60) holds each result until its worker ends: a trial that reports for days would fill the memory."""
    leave, held, number = Leave(), 0, 0
    for event in trained(ShortSteps, [SimpleNamespace(run_ids=["0" * 16], name="one")], leave):
        number += isinstance(event, Advanced)
        if number == NUM_RESULTS and not leave.is_set():
            held = sum(type(each) is ray.ObjectRef for each in gc.get_objects())
            leave.set()
    assert 0 < held < NUM_RESULTS / 3
