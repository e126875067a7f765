"""What trains runs: the interface between a `Session` and the engines, and the pace they report.

`Session` keeps checkpoints, budgets and events; an engine takes gradient steps. There are three. `plain.engine` trains
one run in eager PyTorch and defines what is computed. `stacked.engine` computes the same for many runs as one program.
`own.engine` calls a training function of the user's own.

For another, write a class with these members and have `worker.session.Session` make it. What it must keep:

- A run's numbers depend on the run alone: randomness is keyed by seed, purpose and step (`trainables.randomness`).
- `load_state(state())` of a run, in any process, resumes with the same numbers; on a CPU with the same bits.
- A run whose loss or evaluation is not finite has diverged (`Progress.diverged_at_step`) and takes no further step.

An engine for one run at a time may refuse to `add` a second: cohorts of the engine `plain` have one slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from torch import Tensor

from lr_sweep.datasets.task import TaskData
from lr_sweep.trainables.curve import Evaluation, Progress
from lr_sweep.trainables.plain.evaluation import evaluated_splits
from lr_sweep.trainables.run import AnyRun, Run

HALF_LIFE_S = 60.0
"""Seconds of work after which what was measured before counts half."""
FORWARD_SHARE = 1 / 3
"""The forward pass's share of a gradient step, about. An evaluation is forward passes alone."""


@dataclass
class RecentMean:
    """Mean seconds of a piece of work, the latest pieces most."""

    seconds: float = 0.0
    number: float = 0.0

    def add(self, seconds: float, number: int) -> None:
        """Count pieces that took so many seconds in all; 0 pieces: an overhead of those counted before."""
        keep = 0.5 ** (seconds / HALF_LIFE_S)
        self.seconds = keep * self.seconds + seconds
        self.number = keep * self.number + number

    @property
    def value(self) -> float | None:
        """Seconds a piece; None: none is counted."""
        return self.seconds / self.number if self.number else None


@dataclass
class Pace:
    """Seconds of the device that a run takes here; runs that train together share them out."""

    steps_per_evaluation: float = 0.0
    """Gradient steps that read as many examples as an evaluation does: all that is known of one that was not timed."""
    steps: RecentMean = field(default_factory=RecentMean)
    """Gradient steps of one run."""
    evaluations: RecentMean = field(default_factory=RecentMean)
    """Evaluations of one run, all splits."""

    def overhead(self, seconds: float, *, of_evaluation: bool) -> None:
        """Count time that a checkpoint took, after an evaluation or between two."""
        (self.evaluations if of_evaluation else self.steps).add(seconds, 0)

    def as_event(self) -> dict[str, float | None]:
        """Return `step_s` and `evaluation_s`; the second is predicted from the first until one was timed."""
        step_s, evaluation_s = self.steps.value, self.evaluations.value
        if evaluation_s is None and step_s is not None:
            evaluation_s = step_s * self.steps_per_evaluation * FORWARD_SHARE
        return {"step_s": step_s, "evaluation_s": evaluation_s}


def steps_per_evaluation(run: Run, data: TaskData) -> float:
    """Return how many gradient steps read as many examples as an evaluation of all splits."""
    return sum(map(len, evaluated_splits(data, run.protocol).values())) / run.protocol.batch_size


class Slot(Protocol):
    """A run in an engine."""

    @property
    def run(self) -> AnyRun:
        """The run that is trained."""

    @property
    def progress(self) -> Progress:
        """How far the run has been trained."""


S = TypeVar("S", bound=Slot)


class Engine(Protocol[S]):
    """Trains runs of one cohort, from step 0 or from a state; between two calls no step is under way."""

    @property
    def pace(self) -> Pace:
        """How long a gradient step and an evaluation of a run take here, lately."""

    def add(self, runs: Sequence[Any]) -> list[S]:
        """Put runs at step 0 into slots, in any order; return those slots.

        Raises:
            MemoryError, torch.OutOfMemoryError: they do not fit.
        """

    def advance(self, *, for_s: float) -> list[tuple[S, Evaluation]]:
        """Train all runs until one reaches an evaluation or diverges, or for about `for_s` seconds.

        Returns:
            The runs that reached an evaluation, which is the last of their curve.
        """

    def remove(self, slots: Sequence[S]) -> None:
        """Let runs go, which makes room for others."""

    def state(self, slot: S) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what is needed to resume a run: tensors by name, and its progress as plain JSON values."""

    def load_state(self, slot: S, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Resume a run from what `state` returned, there or in another process."""
