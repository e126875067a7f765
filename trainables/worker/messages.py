"""What a driver and its workers send each other: a cohort to train, then events of its runs.

Nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lr_sweep.trainables.checkpoint import History
from lr_sweep.trainables.engine import Evaluation, Resumed
from lr_sweep.trainables.own.exactness import Probe
from lr_sweep.trainables.run import AnyRun, EngineName

if TYPE_CHECKING:
    from lr_sweep.trainables.pretraining.weights import WeightsSource


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """Runs that train in one process, because they differ in learning rate and seed alone; one run is a cohort, too."""

    name: str
    """The trial's name in Ray's logs."""
    runs: tuple[AnyRun, ...]
    """Runs in the order in which they start."""
    num_steps: int
    runs_at_once: int
    """Runs that train at the same time; the others wait until one ends. The plain engine trains one."""
    size_given: bool = True
    """Whether the study gives `runs_at_once`; False: as many of them as fit into the trial's share of its device."""
    engine: EngineName = "stacked"
    device: str
    device_share: float = 1.0
    """GPUs that the trial holds, else CPUs."""
    checkpoints: Path
    """Folder of a folder for each run, by run id; on a disk that outlives the worker unless there is a `store`."""
    store: str | None = None
    """URI of the object store that checkpoints go to, and come from when the disk has none; None: the disk is all."""
    data_dir: Path
    weights: WeightsSource | None = None
    """Where pretrained weights are; None for random initialisation."""
    checkpoint_every_s: float
    """Seconds of training between checkpoints; one is written at every evaluation and at the end in any case."""
    code: dict[str, str] | None = None
    """Version of each file that the runs' numbers come from, kept with their checkpoints; None: not known."""
    probe: Probe | None = None
    """What a trial of the user's function found; None: it was not tried, and is where a run resumes."""
    report_every_s: float
    """Seconds of training between reports to the driver, between evaluations."""

    @property
    def stop_requests(self) -> Path:
        """Folder of files named by the ids of runs that a rule ends."""
        return self.checkpoints.parent / "stop"

    @property
    def run_ids(self) -> list[str]:
        """Ids of the runs, in their order."""
        return [run.run_id for run in self.runs]


@dataclass(frozen=True, kw_only=True)
class Started:
    """A run starts, or resumes from its newest intact checkpoint."""

    run_id: str
    step: int
    """The checkpoint's step, or 0."""
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
    """A run has reached its budget, has diverged, or was stopped by a rule."""

    run_id: str
    step: int
    status: Ending
    diverged_at_step: int | None = None
    stopped_at_step: int | None = None
    """Rung at which a rule stopped it, known to the driver; None: no rule did."""
    last_printed: int | None = None
    """As of `Progress`."""
    elapsed_s: float
    """Seconds of training and evaluation since step 0, over all starts of the run."""
    engine: str
    device: str
    """The device's model (`device_name`)."""
    resumed: Resumed = "never"
    not_saved: tuple[str, ...] = ()
    """Names of what an inexact resume had not saved."""


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A training function of the user's own has printed some lines."""

    run_id: str
    text: str


Event = Started | Advanced | Finished
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
