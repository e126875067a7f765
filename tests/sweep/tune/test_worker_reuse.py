"""A free worker takes the next trial; one that is still starting for another trial is left to start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.resources import Resources
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import ray_session
from lr_sweep.sweep.tune.trial_events import Leave, TrialFailed
from lr_sweep.sweep.tune.trials import train_cohorts
from lr_sweep.tests.support.trainables import FAILS, ShortTrial
from lr_sweep.trainables.worker import ray_trainable
from lr_sweep.trainables.worker.events import Advanced

NUM_TRIALS = 30


@pytest.mark.slow
@pytest.mark.cluster
def test_after_a_failure_one_worker_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune (2.60) ends the new worker whenever another trial has ended, and starts one for the trial after it."""
    monkeypatch.setattr(ray_trainable, "CohortTrainable", ShortTrial)
    (folder := tmp_path / "workers").mkdir()
    names = ({"number": number, "run_ids": [str(number)], "name": str(number)} for number in range(NUM_TRIALS))
    cohorts: Any = [SimpleNamespace(folder=folder, runs_at_once=1, **each) for each in names]
    placement = Placement(resources=Resources(retries=0), cpus=2)
    with ray_session(placement, tmp_path / "log"):
        events = list(train_cohorts(cohorts, placement, tmp_path / "tune", Machines(), Leave(), None))
    assert len([event for event in events if isinstance(event, TrialFailed)]) == 1
    ended = [int(event.run_id) for event in events if isinstance(event, Advanced)]
    assert sorted(ended) == [number for number in range(NUM_TRIALS) if number != FAILS]
    assert len(list(folder.iterdir())) <= 3, "two at the beginning, and one for the worker of the trial that failed"
