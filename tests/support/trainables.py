"""Trainables in place of the program's. Workers import them from here, and nothing from the current folder."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ray import tune

from lr_sweep.trainables.worker.messages import Advanced

FAILS = 2
"""The number of the trial that fails."""


class ShortTrial(tune.Trainable):
    """Leaves the id of its worker's process in the cohort's folder."""

    def setup(self, config: dict[str, Any]) -> None:
        self.reset_config(config)
        (self.cohort.folder / str(os.getpid())).touch()
        time.sleep(2.0)

    def reset_config(self, config: dict[str, Any]) -> bool:
        self.cohort, self.config = config["trial"]["cohort"], {}
        return True

    def step(self) -> dict[str, Any]:
        time.sleep(0.5)
        if self.cohort.number == FAILS:
            raise ValueError("this trial fails")
        return {"events": [Advanced(run_id=str(self.cohort.number), step=1)], "done": True}


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


class ShortSteps(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.config = {}

    def step(self) -> dict[str, Any]:
        return {"events": [Advanced(run_id="0" * 16, step=self.iteration)], "done": False}
