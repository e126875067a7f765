"""A trial that is asked to stop in the middle of a long step saves when that step is over, however long it takes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.study.resources import Resources
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import ray_session
from lr_sweep.sweep.tune.trial_events import Leave
from lr_sweep.sweep.tune.trials import train_cohorts
from lr_sweep.trainables import ray_trainable

STEP_S = 16.0
"""Tune (2.60) kills a trial 10 s after it asked it to stop, and looks after 5 s first."""


class LongSteps(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.folder = Path(config["trial"]["cohort"].folder)

    def step(self) -> dict[str, Any]:
        (self.folder / "began").touch()
        time.sleep(STEP_S)
        (self.folder / "ended").touch()
        return {"events": [], "done": False}

    def cleanup(self) -> None:
        (self.folder / "saved").touch()


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
