"""What trains runs: the interface between a `Session` and the engines, the curve of a run, and the pace of engines.

`plain.engine` trains one run in eager PyTorch and defines what is computed. `stacked.engine` computes the same for many
runs as one program. `own.engine` calls a training function of the user's own. What another engine must keep:

- A run's numbers depend on the run alone: randomness is keyed by seed, purpose and step (`trainables.numerics`).
- `load_state(state())` of a run, in any process, resumes with the same numbers; on a CPU with the same bits.
- A run whose loss or evaluation is not finite has diverged (`Progress.diverged_at_step`) and takes no further step.

The driver reads curves, so nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, get_args

from lr_sweep.common.files import Fields

from .run import AnyRun

if TYPE_CHECKING:
    from .numerics import State, Tensors


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One row of a run's curve: the study's metric on each split, as a fraction if it is an accuracy, and the losses.

    Losses are mean cross-entropies in nats.
    """

    step: int
    train_loss: float
    """Mean over the steps since the last evaluation, in training mode."""
    train: float
    validation_loss: float
    validation: float
    test_loss: float = math.nan
    """NaN: not evaluated, as `Protocol.test_evaluated` says; so is the accuracy then."""
    test: float = math.nan
    time_ms: int
    """Unix time."""
    elapsed_s: float
    """Seconds of training and evaluation since step 0, over all starts of the run."""
    logged: list[Fields] | None = None
    """What a training function logged since the last evaluation: `step`, `name` and `value`; None: nothing."""


Resumed = Literal["never", "exactly", "unchecked", "inexactly"]
"""Whether a run resumed from a checkpoint with the numbers of an uninterrupted one; from the best to the worst."""


def worst(*ways: Resumed) -> Resumed:
    """Return the worst of several resumes of a run."""
    return max(ways, key=get_args(Resumed).index)


@dataclass(kw_only=True)
class Progress:
    """How far a run has been trained; saved with its tensors."""

    step: int = 0
    curve: list[Evaluation] = field(default_factory=list)
    logged: list[Fields] = field(default_factory=list)
    """What was logged since the last evaluation."""
    best_step: int | None = None
    """Step of the highest validation accuracy so far, the earliest of equals; None before the first evaluation."""
    diverged_at_step: int | None = None
    """First step whose loss was not finite, or after which an evaluation's was not."""
    loss_sum: float = 0.0
    """Sum of the losses since the last evaluation."""
    elapsed_s: float = 0.0
    last_printed: int | None = None
    """Number, or step, of the last evaluation that a command printed, if that one alone counts; None: not known."""
    resumed: Resumed = "never"
    not_saved: list[str] = field(default_factory=list)
    """Names of what changed in training and was not in the checkpoint, if it resumed inexactly."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values; later progress does not change them."""
        # Not by `dataclasses.asdict`, which takes longer than all else that a checkpoint of a small model needs.
        curve = [dict(vars(evaluation)) for evaluation in self.curve]
        lists = {"logged": [*self.logged], "not_saved": [*self.not_saved]}
        return vars(self) | lists | {"curve": curve}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Progress:
        """Rebuild what `as_dict` returned, here or in an earlier version, whose values were called `test_accuracy`."""
        curve = [
            {name.removesuffix("_accuracy"): value for name, value in evaluation.items()}
            for evaluation in values["curve"]
        ]
        return cls(**values | {"curve": [Evaluation(**evaluation) for evaluation in curve]})

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

    def improves(self, validation: float) -> bool:
        """Return whether an evaluation would be the best so far: of equals, the earliest is."""
        return all(validation > earlier.validation for earlier in self.curve)

    def record(
        self, scores: dict[str, float], evaluate_every: int, unix_s: float
    ) -> Evaluation | None:
        """Append the evaluation of this step to the curve and return it; None: a score is not finite: it diverged."""
        if not all(math.isfinite(score) for score in scores.values()):
            # The last step's update went wrong, after its loss was taken.
            self.diverged_at_step = self.step
            return None
        evaluation = Evaluation(
            step=self.step,
            train_loss=self.loss_sum / evaluate_every,
            time_ms=int(unix_s * 1000),
            elapsed_s=self.elapsed_s,
            logged=None,
            **scores,
        )
        if self.improves(evaluation.validation):
            self.best_step = self.step
        self.curve.append(evaluation)
        self.loss_sum = 0.0
        return evaluation


HALF_LIFE_S = 60.0
"""Seconds of work after which what was measured before counts half."""


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

    steps: RecentMean = field(default_factory=RecentMean)
    """Gradient steps of one run."""
    evaluations: RecentMean = field(default_factory=RecentMean)
    """Evaluations of one run, all splits."""

    def as_event(self) -> dict[str, float | None]:
        """Return `step_s` and `evaluation_s`."""
        return {"step_s": self.steps.value, "evaluation_s": self.evaluations.value}


class Slot(Protocol):
    """A run in an engine."""

    @property
    def run(self) -> AnyRun: ...  # noqa: D102
    @property
    def progress(self) -> Progress: ...  # noqa: D102


S = TypeVar("S", bound=Slot)


class Engine(Protocol[S]):
    """Trains runs of one cohort, from step 0 or from a state; between two calls no step is under way."""

    @property
    def pace(self) -> Pace:
        """How long a gradient step and an evaluation of a run take here, lately."""

    def add(self, runs: Sequence[Any]) -> list[S]:
        """Put runs at step 0 into slots, in any order; return those. Raises MemoryError or torch's."""

    def advance(self, *, for_s: float) -> list[tuple[S, Evaluation]]:
        """Train until a run reaches an evaluation or diverges, or for about `for_s` s; return what was reached."""

    def remove(self, slots: Sequence[S]) -> None:
        """Let runs go, which makes room for others."""

    def state(self, slot: S) -> State:
        """Return what is needed to resume a run: tensors by name, and its progress as plain JSON values."""

    def load_state(self, slot: S, tensors: Tensors, progress: dict[str, Any]) -> None:
        """Resume a run from what `state` returned, there or in another process."""
