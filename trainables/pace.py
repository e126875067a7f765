"""How long a gradient step and an evaluation of a run take here, lately: for the time left that `run` shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from datasets.task import TaskData
from trainables.run import Protocol

HALF_LIFE_S = 60.0
"""Seconds of work after which what was measured before counts half."""
FORWARD_SHARE = 1 / 3
"""Of a gradient step, about: the forward pass. An evaluation is forward passes alone."""


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


def steps_per_evaluation(protocol: Protocol, data: TaskData) -> float:
    """Return how many gradient steps read as many examples as an evaluation of all splits."""
    train = min(len(data.train), protocol.train_examples_evaluated)
    return (train + len(data.validation) + len(data.test)) / protocol.batch_size
