"""What a worker reports of its runs; Ray carries events to the driver as they are. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lr_sweep.trainables.checkpoint import History
from lr_sweep.trainables.curve import Evaluation


@dataclass(frozen=True, kw_only=True)
class Started:
    """A run starts, or resumes from its newest intact checkpoint."""

    run_id: str
    step: int
    """The checkpoint's step; 0: there is none."""
    curve: tuple[Evaluation, ...] = ()
    """All evaluations so far: an earlier driver may have died before it recorded the last of them."""
    damaged: tuple[str, ...] = ()
    """Paths of newer checkpoints that were damaged."""
    code: History | None = None
    """Which code trained the run, and trains it from here on; None: not known."""


@dataclass(frozen=True, kw_only=True)
class Advanced:
    """A run has been trained to a step."""

    run_id: str
    step: int
    evaluation: Evaluation | None = None
    """The evaluation at this step, which is in a checkpoint already; None: none was due."""
    step_s: float | None = None
    """Seconds of the device that a gradient step of the run takes, lately; None: not known yet."""
    evaluation_s: float | None = None
    """Seconds of the device that an evaluation of the run takes, lately; None: not known yet."""


Ending = Literal["complete", "diverged", "stopped"]
"""How a worker can end a run: at its budget, by a loss that is not finite, or on request."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run has reached its budget, has diverged, or was stopped by `stop` or by a rule."""

    run_id: str
    step: int
    status: Ending
    diverged_at_step: int | None = None
    stopped_at_step: int | None = None
    """Rung at which a rule stopped it, known to the driver; None: no rule did."""
    elapsed_s: float
    """Seconds of training and evaluation since step 0, over all starts of the run."""
    engine: str
    device: str
    """The device's model (`device_name`)."""


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A training function of the user's own has printed some lines."""

    run_id: str
    text: str


Event = Started | Advanced | Finished
"""What changes the state of a run."""
Report = Event | Printed


def evaluations(event: Report) -> tuple[Evaluation, ...]:
    """Return the evaluations that an event reports of its run."""
    match event:
        case Started():
            return event.curve
        case Advanced(evaluation=Evaluation() as evaluation):
            return (evaluation,)
        case _:
            return ()
