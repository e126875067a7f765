"""What is known of a study's runs while they train: no clock, no output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Cell = tuple[str, str, str]
"""task, model, variant"""


@dataclass(frozen=True, kw_only=True)
class RunLabel:
    """What the display says of a run."""

    task: str
    model: str
    variant: str
    learning_rate: float
    seed: int
    num_steps: int
    """Its step budget."""

    @property
    def cell(self) -> Cell:
        """Everything but learning rate and seed."""
        return self.task, self.model, self.variant


@dataclass(kw_only=True)
class _RunState:
    status: str = "waiting"
    step: int = 0
    steps_per_s: float | None = None
    """As last reported; None: not yet."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The highest validation accuracy so far."""

    validation_accuracy: float
    """Fraction in [0, 1]."""
    learning_rate: float
    step: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The study at one moment."""

    counts: dict[str, int]
    """Runs by status: `done` (complete, and all that were done before), `running`, `diverged`, `failed`, `waiting`."""
    total_runs: int
    steps_per_s: float
    """Gradient steps a second, over all running runs."""
    elapsed_s: float
    time_left_s: float | None
    """At the present speed; None: no speed is known yet."""


@dataclass(kw_only=True)
class ProgressState:
    """What is known of a study's runs.

    Args:
        total_runs: runs that the study wants.
        done_before: of those, how many were done when we started. They count as done and have no part in the time left.
        cells: labels of the other runs, by run id.
        started_at: in seconds of some clock.
    """

    total_runs: int
    done_before: int
    cells: Mapping[str, RunLabel]
    started_at: float
    best: dict[Cell, Best] = field(default_factory=dict)
    _runs: dict[str, _RunState] = field(init=False)

    def __post_init__(self) -> None:
        assert self.done_before + len(self.cells) == self.total_runs, "every run is done before or has a label"
        self._runs = {run_id: _RunState() for run_id in self.cells}

    def started(self, run_id: str, step: int = 0) -> None:
        """A run trains now, from this step on."""
        run = self._runs[run_id]
        run.status, run.step = "running", step

    def advanced(self, run_id: str, step: int, steps_per_s: float) -> None:
        """A run has taken so many steps in all, lately at this speed."""
        run = self._runs[run_id]
        run.status, run.step, run.steps_per_s = "running", step, steps_per_s

    def evaluation(self, run_id: str, step: int, validation_accuracy: float) -> None:
        """A run was evaluated; of equal accuracies the first stays the best."""
        label = self.cells[run_id]
        best = self.best.get(label.cell)
        if math.isfinite(validation_accuracy) and (best is None or validation_accuracy > best.validation_accuracy):
            self.best[label.cell] = Best(
                validation_accuracy=validation_accuracy, learning_rate=label.learning_rate, step=step
            )

    def finished(self, run_id: str, status: str) -> None:
        """A run ended as `complete`, `diverged` or `failed`; one that is tried again may start once more."""
        self._runs[run_id].status = status

    def interrupted(self, run_ids: Iterable[str]) -> None:
        """These runs do not train at the moment, if they did; they go on later."""
        for run_id in run_ids:
            if self._runs[run_id].status == "running":
                self._runs[run_id].status = "waiting"

    def summary(self, now: float) -> Summary:
        """Sum up, at a time in seconds of the same clock."""
        steps_per_s = self._steps_per_s()
        steps_left = self._steps_left()
        time_left_s = 0.0 if steps_left == 0 else steps_left / steps_per_s if steps_per_s > 0 else None
        return Summary(
            counts=self._counts(),
            total_runs=self.total_runs,
            steps_per_s=steps_per_s,
            elapsed_s=max(0.0, now - self.started_at),
            time_left_s=time_left_s,
        )

    def cell_counts(self) -> dict[Cell, tuple[int, int, int]]:
        """Count each cell's runs that ended, that run, and all that were left to do at the start."""
        counts: dict[Cell, tuple[int, int, int]] = {}
        for run_id, label in self.cells.items():
            status = self._runs[run_id].status
            ended, running, total = counts.get(label.cell, (0, 0, 0))
            counts[label.cell] = (
                ended + (status not in ("waiting", "running")),
                running + (status == "running"),
                total + 1,
            )
        return counts

    def _counts(self) -> dict[str, int]:
        counts = {"done": self.done_before, "running": 0, "diverged": 0, "failed": 0, "waiting": 0}
        for run in self._runs.values():
            counts["done" if run.status == "complete" else run.status] += 1
        return counts

    def _steps_per_s(self) -> float:
        """Add up the running runs' speeds; one that has not reported counts as fast as the mean of those that have."""
        running = [run.steps_per_s for run in self._runs.values() if run.status == "running"]
        reported = [speed for speed in running if speed is not None]
        known = reported or [run.steps_per_s for run in self._runs.values() if run.steps_per_s is not None]
        return len(running) * sum(known) / len(known) if known else 0.0

    def _steps_left(self) -> int:
        left = {run_id: run for run_id, run in self._runs.items() if run.status in ("waiting", "running")}
        return sum(max(0, self.cells[run_id].num_steps - run.step) for run_id, run in left.items())
