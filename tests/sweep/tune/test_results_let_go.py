"""What a trial has reported is not kept: one that reports for days would fill the driver's memory."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.resources import Resources
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import ray_session
from lr_sweep.sweep.tune.trial_events import Leave
from lr_sweep.sweep.tune.trials import train_cohorts
from lr_sweep.tests.support.trainables import ShortSteps
from lr_sweep.trainables.worker import ray_trainable
from lr_sweep.trainables.worker.events import Advanced

NUM_RESULTS = 300


@pytest.mark.slow
@pytest.mark.cluster
def test_the_driver_holds_few_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune (2.60) holds each result that a trial reports until its worker ends."""
    monkeypatch.setattr(ray_trainable, "CohortTrainable", ShortSteps)
    leave, held, number = Leave(), 0, 0
    cohort: Any = SimpleNamespace(run_ids=["0" * 16], name="one")
    placement = Placement(resources=Resources(), cpus=1)
    with ray_session(placement, tmp_path / "log"):
        for event in train_cohorts([cohort], placement, tmp_path / "tune", Machines(), leave, None):
            number += isinstance(event, Advanced)
            if number == NUM_RESULTS and not leave.is_set():
                held = sum(type(each) is ray.ObjectRef for each in gc.get_objects())
                leave.set()
    assert 0 < held < NUM_RESULTS / 3
