"""What a trial is told to train, and the training of it: runs one after the other, reported as events."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datasets import TASKS
from datasets.loaded import load_checked
from datasets.sources import data_checksum
from datasets.task import DataError, TaskData
from trainables.checkpoint import NUM_KEPT, History, continued, keep_newest, newest_history, save_checkpoint
from trainables.initialise import load_weights
from trainables.pretrained import WeightsError, WeightsSource, find_weights, weights_checksum
from trainables.run import Run
from trainables.stored_checkpoints import CheckpointStore, newest_checkpoint
from trainables.training import Training

Event = dict[str, Any]
"""Plain values: `kind` is `started`, `progress` or `finished`; `run_id`, `step` and, by kind, what changed."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One run of a cohort and what is needed to train it here; plain values, as Ray carries them."""

    content: dict[str, Any]
    """`Run.content()`."""
    num_steps: int
    """The step budget."""
    checkpoints: str
    """Folder of the run's checkpoints, on a disk that outlives the worker unless there is a `store`."""
    data_dir: str
    weights: dict[str, str | None] | None
    """`WeightsSource` as a dict; None for random initialisation."""
    device: str
    """`cpu` or `cuda`."""
    checkpoint_every_s: float
    """Seconds of training between checkpoints; one is written at every evaluation and at the end in any case."""
    code: dict[str, str] | None = None
    """Version of each file that the run's numbers come from, kept with its checkpoints; None: not known."""
    store: str | None = None
    """URI of the object store that checkpoints go to, and come from when the disk has none; None: the disk is all."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that the constructor takes."""
        return asdict(self)


class RunSession:
    """One run being trained here: its checkpoints, its clock, its events."""

    def __init__(self, assignment: Assignment, wall_clock: Callable[[], float] = time.time) -> None:
        """Build the run, or take it up from its newest intact checkpoint.

        Args:
            assignment: what to train.
            wall_clock: Unix time in seconds, for the record alone; durations are measured by a clock that nobody sets.
        """
        self.assignment = assignment
        self.run = Run.from_content(assignment.content)
        self.checkpoints = Path(assignment.checkpoints)
        device = torch.device(assignment.device)
        data = task_data(
            self.run.task,
            tuple(sorted(self.run.task_options.items())),
            self.run.data_checksum,
            assignment.data_dir,
            assignment.device,
        )
        self.store = CheckpointStore(assignment.store) if assignment.store else None
        weights = pretrained_tensors(self.run, assignment.weights, self.store)
        self.training = Training(self.run, data, weights, device, wall_clock)
        self.damaged: list[Path] = []
        saved = newest_checkpoint(self.checkpoints, self.store, self.damaged.append)
        if saved is not None:
            self.training.load_state(*saved)
        self.saved_step = self.training.progress.step if saved is not None else -1
        self.history = history_from(assignment, saved is not None, self.training.progress.step)
        self._saved_at = time.monotonic()

    def events(self, report_every_s: float) -> Iterator[Event]:
        """Train to the budget; yield an event at the start, at least every `report_every_s`, and at the end."""
        training, budget = self.training, self.assignment.num_steps
        # The whole curve: points that an earlier driver did not live to write down are in the checkpoint.
        curve = [asdict(evaluation) for evaluation in training.progress.curve]
        damaged = [str(path) for path in self.damaged]
        yield self._event("started", evaluations=curve, damaged=damaged, code=self.history)
        while not training.diverged and training.progress.step < budget:
            evaluation = training.advance(budget, for_s=report_every_s)
            # An evaluation is saved before it is reported: what the record has need not be made again.
            began = time.monotonic()
            if evaluation or began - self._saved_at >= self.assignment.checkpoint_every_s:
                self.save()
            training.pace.overhead(time.monotonic() - began, of_evaluation=evaluation is not None)
            evaluations = [asdict(evaluation)] if evaluation else []
            yield self._event("progress", evaluations=evaluations, **training.pace.as_event())
        self.save(num_kept=1)
        if self.store is not None:
            self.store.finish([self.checkpoints])
        yield self._event("finished", **self._result())

    def save(self, num_kept: int = NUM_KEPT) -> None:
        """Write a checkpoint if there is anything new in it, and remove old ones."""
        if self.training.progress.step != self.saved_step or self.training.diverged:
            save_checkpoint(self.checkpoints, *self.training.state(), self.history)
            self.saved_step, self._saved_at = self.training.progress.step, time.monotonic()
        keep_newest(self.checkpoints, num_kept)
        if self.store is not None:
            self.store.push(self.checkpoints, num_kept)

    def leave(self) -> None:
        """Save where the run is, for whoever goes on with it."""
        self.save()
        if self.store is not None:
            self.store.wait([self.checkpoints])

    def _event(self, kind: str, **more: Any) -> Event:
        return {"kind": kind, "run_id": self.run.run_id, "step": self.training.progress.step, **more}

    def _result(self) -> dict[str, Any]:
        progress = self.training.progress
        return {
            "status": "diverged" if self.training.diverged else "complete",
            "diverged_at_step": progress.diverged_at_step,
            "elapsed_s": progress.elapsed_s,
            "engine": "plain",
            "device": device_name(self.assignment.device),
        }


def history_from(assignment: Assignment, resumed: bool, step: int) -> History:
    """Return which code trained a run that starts here at a step, from its newest checkpoint if it is `resumed`."""
    before = newest_history(Path(assignment.checkpoints)) if resumed else []
    return continued(before, step, assignment.code)


def device_name(device: str) -> str:
    """Return the device's model, for the record."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"cpu ({_cpu_model()})"


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def task_data(task: str, options: tuple[tuple[str, Any], ...], checksum: str, data_dir: str, device: str) -> TaskData:
    """Load a task onto a device; the last one stays for the next run of the process. Nothing writes to it.

    Raises:
        DataError: missing, not what the task declares, or not what the run was planned with.
    """
    definition = TASKS[task]
    chosen = definition.Options(**dict(options))
    got = data_checksum(task, chosen, Path(data_dir))
    if got != checksum:
        raise DataError(
            f"{task}: the data in {data_dir} on {platform.node()} has checksum {got}, the run was planned with "
            f"{checksum}. Give every machine the same data directory and the same code."
        )
    return load_checked(task, definition, chosen, Path(data_dir)).to(torch.device(device))


def pretrained_tensors(
    run: Run, source: dict[str, str | None] | None, store: CheckpointStore | None
) -> dict[str, Tensor] | None:
    """Find and read a run's pretrained weights, which may be in a store; None for random initialisation.

    Raises:
        WeightsError: missing, or this machine's are not those that the run was planned with.
    """
    if source is None:
        return None
    if store is not None and source["folder"] is not None:
        store.fetch_weights(Path(source["folder"]))
    folder = find_weights(WeightsSource(**source), download=True)
    assert folder is not None, "find_weights downloads or raises"
    if (got := weights_checksum(folder)) != run.weights_checksum:
        raise WeightsError(
            f"the weights in {folder} on {platform.node()} have sha256 {got}, the run was planned with "
            f"{run.weights_checksum}. Give every machine the same weights."
        )
    return _tensors_in(folder, got)


@lru_cache(maxsize=1)
def _tensors_in(folder: Path, checksum: str) -> dict[str, Tensor]:
    return load_weights(folder)
