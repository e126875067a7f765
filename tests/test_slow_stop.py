"""A trial that is asked to stop in the middle of a long step saves when that step is over, however long it takes."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune

from sweep.placement import Placement
from sweep.ray_session import ray_session
from sweep.results import Results
from sweep.study import Resources
from sweep.trials import TrialEvents, train_cohorts
from trainables import ray_trainable

STEP_S = 16.0
"""Tune (2.60) kills a trial 10 s after it asked it to stop, and looks after 5 s first."""


class LongSteps(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.folder = Path(config["trial"]["cohort"][0]["folder"])

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
    stop, results = threading.Event(), Results(tmp_path / "results")
    cohort: Any = [SimpleNamespace(as_dict=lambda: {"folder": str(tmp_path)})]

    def stop_in_the_first_step() -> None:
        if (tmp_path / "began").exists():
            stop.set()

    events = TrialEvents(
        on_event=pytest.fail,
        on_failure=lambda run_ids, reason: pytest.fail(reason),
        on_interruption=pytest.fail,
        on_machine_lost=lambda run_ids: True,
        on_tick=stop_in_the_first_step,
    )
    placement = Placement(resources=Resources(), cpus=1)
    with ray_session(placement, tmp_path / "log"):
        ended = train_cohorts([cohort], ["one"], [1], placement, results, events, stop, None)
    assert not ended
    assert {path.name for path in tmp_path.iterdir()} >= {"began", "ended", "saved"}
