"""What a trial trains: the driver makes it, Ray carries it to a worker as it is. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lr_sweep.trainables.own.run import RANK_TIMEOUT_S
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
    """The step budget of each run."""
    runs_at_once: int
    """Runs that train at the same time; the others wait until one ends. The plain engine trains one."""
    size_given: bool = True
    """Whether the study gives `runs_at_once`; False: as many of them as fit into the trial's share of its device."""
    engine: EngineName = "stacked"
    compiled: bool = False
    """Whether the stacked engine compiles its steps (`torch.compile`)."""
    device: str
    """`cpu` or `cuda`."""
    device_share: float = 1.0
    """GPUs that the trial holds, else CPUs."""
    rank_timeout_s: float = RANK_TIMEOUT_S
    """Seconds that the processes of a run of one's own function may take from one answer to the next."""
    checkpoints: Path
    """Folder of a folder for each run, by run id; on a disk that outlives the worker unless there is a `store`."""
    store: str | None = None
    """URI of the object store that checkpoints go to, and come from when the disk has none; None: the disk is all."""
    data_dir: Path
    """Where the task's data is."""
    weights: WeightsSource | None = None
    """Where pretrained weights are; None for random initialisation."""
    checkpoint_every_s: float
    """Seconds of training between checkpoints; one is written at every evaluation and at the end in any case."""
    code: dict[str, str] | None = None
    """Version of each file that the runs' numbers come from, kept with their checkpoints; None: not known."""
    report_every_s: float
    """Seconds of training between reports to the driver, between evaluations."""

    @property
    def stop_requests(self) -> Path:
        """Folder of files named by the ids of runs that the user asks to end (`stop`)."""
        return self.checkpoints.parent / "stop"

    @property
    def run_ids(self) -> list[str]:
        """Ids of the runs, in their order."""
        return [run.run_id for run in self.runs]
