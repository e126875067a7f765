"""Hears from Ray Tune what trials report, and lets the driver stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune

from sweep.errors import UserError
from sweep.machines import Machines
from sweep.ray_session import RayLostError
from trainables.run import Run

if TYPE_CHECKING:
    from sweep.trials import TrialEvents


class SweepStoppedError(Exception):
    """The sweep was asked to stop; trials have saved where they were."""


class EventCallback(tune.Callback):
    """Hands the events in trial results on, and raises where Tune must stop."""

    def __init__(
        self, events: TrialEvents, stop: threading.Event, lost: Callable[[], list[str]], machines: Machines
    ) -> None:
        self.events = events
        self.stop = stop
        self.lost = lost
        """Returns the names of processes that Ray needs and that have died."""
        self.machines = machines
        self.problem: Exception | None = None
        """The first thing that went wrong here; kept, because Tune would wrap it in its own errors."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave everything out: Tune pickles its callbacks for a restore that we never ask for."""
        return {}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Leave between two of Tune's steps: it then stops every trial, and each saves where it is."""
        with self._problems_kept():
            self._check_ray()
            self.events.on_tick()
        if self.stop.is_set() or self.problem:
            raise SweepStoppedError

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Remember where it is."""
        with self._problems_kept():
            self.machines.started(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Hand on what the trial reported."""
        with self._problems_kept():
            if "storage_problem" in result:
                raise UserError(
                    f"a worker cannot write checkpoints: {result['storage_problem']}. Mend that; what is recorded is "
                    f"intact, and the same command goes on from it."
                )
            for event in result.get("events", []):
                self.events.on_event(event)
            if "out_of_memory" in result:
                self.events.on_failure(run_ids_of(trial), result["out_of_memory"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial whose retries are used up; none when we are leaving, which is not its fault.

        Nor where it lost its machine: the next pass takes its runs up again.
        """
        if self.stop.is_set():
            return
        with self._problems_kept():
            self._check_ray()  # without it no trial can go on, and none is to blame
            if self._only_lost_its_machine(trial):
                self.events.on_interruption(run_ids_of(trial))
            else:
                self.events.on_failure(run_ids_of(trial), last_line(trial.error_file))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Report a trial that crashed and will be tried again; that it lost its machine uses no retry up."""
        with self._problems_kept():
            if self._only_lost_its_machine(trial):
                trial.run_metadata.num_failures -= 1
            self.events.on_interruption(run_ids_of(trial))

    def _only_lost_its_machine(self, trial: Any) -> bool:
        return self.machines.lost(trial) and self.events.on_machine_lost(run_ids_of(trial))

    def _check_ray(self) -> None:
        if died := self.lost():
            raise RayLostError(f"Ray died ({', '.join(died)} ended unexpectedly)")

    @contextmanager
    def _problems_kept(self) -> Iterator[None]:
        try:
            yield
        except Exception as problem:
            self.problem = self.problem or problem


def run_ids_of(trial: Any) -> list[str]:
    """Return the ids of the runs that a trial trains."""
    return [Run.from_content(assignment["content"]).run_id for assignment in trial.config["trial"]["cohort"]]


def last_line(error_file: str | None) -> str:
    """Return the exception from Ray's file of tracebacks, which is its last line that is not indented."""
    if error_file is None:
        return "the worker died without a message"
    lines = [line for line in Path(error_file).read_text().splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else "the worker died without a message"
