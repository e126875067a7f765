"""A trial that is asked to stop in the middle of a long step saves when that step is over, however long it takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.resources import Resources
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import ray_session
from lr_sweep.sweep.tune.trial_events import Leave
from lr_sweep.sweep.tune.trials import train_cohorts
from lr_sweep.tests.support.trainables import LongSteps
from lr_sweep.trainables.worker import ray_trainable


@pytest.mark.slow
@pytest.mark.cluster
def test_it_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_trainable, "CohortTrainable", LongSteps)
    leave = Leave()
    cohort: Any = SimpleNamespace(run_ids=(), name="one", folder=str(tmp_path))
    placement = Placement(resources=Resources(), cpus=1)
    with ray_session(placement, tmp_path / "log"):
        for event in train_cohorts([cohort], placement, tmp_path / "tune", Machines(), leave, None):
            assert event is None
            if (tmp_path / "began").exists():  # in the first step
                leave.set()
    assert {path.name for path in tmp_path.iterdir()} == {"began", "ended", "log", "saved"}
