"""The parts of Tune that are replaced: stops, free workers, results that were read, and the list of trials."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import tune
from ray.tune.search import variant_generator as generator

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import ray_session
from lr_sweep.sweep.tune.trials import Leave, TrialEvent, TrialFailed
from lr_sweep.sweep.tune.tuner import train_cohorts
from lr_sweep.tests.support.trainables import FAILS, LongSteps, ShortSteps, ShortTrial
from lr_sweep.trainables.worker import ray_trainable, tune_internals
from lr_sweep.trainables.worker.messages import Advanced

PLACEMENT = Placement(resources=Resources(retries=0), cpus=2)
NUM_TRIALS, NUM_RESULTS = 30, 300


@pytest.fixture(scope="module")
def private_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with ray_session(PLACEMENT, tmp_path_factory.mktemp("ray") / "log"):
        yield


@pytest.fixture
def trained(private_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the events of some cohorts, which a trainable pretends to train until it is asked to leave."""

    def events(kind: type, cohorts: Sequence[Any], leave: Leave) -> Generator[TrialEvent | None, None, None]:
        monkeypatch.setattr(ray_trainable, "CohortTrainable", kind)
        return train_cohorts(cohorts, PLACEMENT, tmp_path / "tune", Machines(), leave, None)

    return events


@pytest.mark.slow
@pytest.mark.cluster
def test_a_trial_that_is_asked_to_stop_saves_when_its_step_is_over_however_long_it_takes(
    trained: Any, tmp_path: Path
) -> None:
    leave = Leave()
    for event in trained(LongSteps, [SimpleNamespace(run_ids=(), name="one", folder=str(tmp_path))], leave):
        assert event is None
        if (tmp_path / "began").exists():  # in the first step
            leave.set()
    assert {path.name for path in tmp_path.iterdir()} == {"began", "ended", "saved"}


@pytest.mark.slow
@pytest.mark.cluster
def test_after_a_failure_one_worker_starts(trained: Any, tmp_path: Path) -> None:
    """Tune (2.60) ends the new worker whenever another trial has ended, and starts one for the trial after it."""
    (folder := tmp_path / "workers").mkdir()
    names = ({"number": number, "run_ids": [str(number)], "name": str(number)} for number in range(NUM_TRIALS))
    events = list(
        trained(ShortTrial, [SimpleNamespace(folder=folder, runs_at_once=1, **each) for each in names], Leave())
    )
    assert len([event for event in events if isinstance(event, TrialFailed)]) == 1
    ended = [int(event.run_id) for event in events if isinstance(event, Advanced)]
    assert sorted(ended) == [number for number in range(NUM_TRIALS) if number != FAILS]
    assert len(list(folder.iterdir())) <= 3, "two at the beginning, and one for the worker of the trial that failed"


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


def test_trials_are_those_of_tunes_own_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"trial": tune.grid_search([{"name": str(n), "cohort": ("ref", n)} for n in range(5)]), "more": {"a": [1]}}
    crossed = {"a": tune.grid_search([1, 2]), "b": {"c": tune.grid_search([3, 4])}}
    specs = [{"run": "x", "config": config} for config in (listed, crossed, {"a": 1})]
    monkeypatch.setattr(generator, "_grid_search_generator", tune_internals._products)  # tests above replaced it
    expected = [list(generator.generate_variants(spec)) for spec in specs]
    assert [len(each) for each in expected] == [5, 4, 1]
    monkeypatch.setattr(generator, "_grid_search_generator", tune_internals.variants)
    assert [list(generator.generate_variants(spec)) for spec in specs] == expected
