"""Hears from Ray Tune what trials report, and lets the driver stop it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune

from trainables.run import Run

if TYPE_CHECKING:
    from sweep.trials import TrialEvents


class SweepStoppedError(Exception):
    """The sweep was asked to stop; trials have saved where they were."""


class EventCallback(tune.Callback):
    """Hands the events in trial results on, and raises where Tune must stop."""

    def __init__(self, events: TrialEvents, stop: threading.Event) -> None:
        self.events = events
        self.stop = stop
        self.storage_problem: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave everything out: Tune pickles its callbacks for a restore that we never ask for."""
        return {}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Leave between two of Tune's steps: it then stops every trial, and each saves where it is."""
        self.events.on_tick()
        if self.stop.is_set() or self.storage_problem:
            raise SweepStoppedError

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Hand on what the trial reported."""
        self.storage_problem = result.get("storage_problem", self.storage_problem)
        for event in result.get("events", []):
            self.events.on_event(event)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial whose retries are used up."""
        contents = [assignment["content"] for assignment in trial.config["trial"]["cohort"]]
        self.events.on_failure([Run.from_content(content).run_id for content in contents], last_line(trial.error_file))


def last_line(error_file: str | None) -> str:
    """Return the exception from Ray's file of tracebacks, which is its last line that is not indented."""
    if error_file is None:
        return "the worker died without a message"
    lines = [line for line in Path(error_file).read_text().splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else "the worker died without a message"
