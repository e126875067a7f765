"""The curve of a run, and how far the run has been trained: plain values, so nothing here needs torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One row of a run's curve; accuracies are fractions, losses mean cross-entropies in nats."""

    step: int
    train_loss: float
    """Mean over the steps since the last evaluation, in training mode."""
    train_accuracy: float
    validation_loss: float
    validation_accuracy: float
    test_loss: float = math.nan
    """NaN: not evaluated, as `Protocol.test_evaluated` says; so is the accuracy then."""
    test_accuracy: float = math.nan
    time_ms: int
    """Unix time."""
    elapsed_s: float
    """Seconds of training and evaluation since step 0, over all starts of the run."""


@dataclass(kw_only=True)
class Progress:
    """How far a run has been trained; saved with its tensors."""

    step: int = 0
    curve: list[Evaluation] = field(default_factory=list)
    best_step: int | None = None
    """Step of the highest validation accuracy so far, the earliest of equals; None before the first evaluation."""
    diverged_at_step: int | None = None
    """First step whose loss was not finite, or after which an evaluation's was not."""
    loss_sum: float = 0.0
    """Sum of the losses since the last evaluation."""
    elapsed_s: float = 0.0

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Progress:
        """Rebuild what `dataclasses.asdict` made plain."""
        return cls(**values | {"curve": [Evaluation(**evaluation) for evaluation in values["curve"]]})

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite; such a run has ended."""
        return self.diverged_at_step is not None

    def count(self, losses: Sequence[float]) -> None:
        """Count a chunk of steps by their losses, or note the first that is not finite: there the run diverged."""
        for step, loss in enumerate(losses, start=self.step + 1):
            if not math.isfinite(loss):
                self.diverged_at_step = step
                return
            self.loss_sum += loss
        self.step += len(losses)

    def improves(self, validation_accuracy: float) -> bool:
        """Return whether an evaluation would be the best so far: of equals, the earliest is."""
        return all(validation_accuracy > earlier.validation_accuracy for earlier in self.curve)

    def record(self, scores: dict[str, float], evaluate_every: int, unix_s: float) -> Evaluation | None:
        """Append the evaluation of this step to the curve and return it; None: a score is not finite, so it diverged.

        `scores` are by the names of `Evaluation`'s fields, without the train loss, and without test if not evaluated.
        """
        if not all(math.isfinite(score) for score in scores.values()):
            self.diverged_at_step = self.step  # the last step's update went wrong, after its loss was taken
            return None
        evaluation = Evaluation(
            step=self.step,
            train_loss=self.loss_sum / evaluate_every,
            time_ms=int(unix_s * 1000),
            elapsed_s=self.elapsed_s,
            **scores,
        )
        if self.improves(evaluation.validation_accuracy):
            self.best_step = self.step
        self.curve.append(evaluation)
        self.loss_sum = 0.0
        return evaluation
