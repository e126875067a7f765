"""A cohort being trained in this process: its slots, its checkpoints, its clock, its events."""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lr_sweep.common.files import hold
from lr_sweep.datasets import TASKS, data_checksum
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.datasets.task import DataError, TaskData
from lr_sweep.trainables.checkpoint import (
    NUM_KEPT,
    CheckpointStore,
    History,
    continued,
    keep_newest,
    newest_checkpoint,
    newest_history,
    save_checkpoint,
)
from lr_sweep.trainables.engine import Engine, Progress, Slot, worst
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.exactness import Probe
from lr_sweep.trainables.own.probe import tried_once
from lr_sweep.trainables.own.session import Output
from lr_sweep.trainables.plain.engine import PlainEngine, Training
from lr_sweep.trainables.pretraining.weights import (
    WeightsError,
    WeightsSource,
    find_weights,
    load_weights,
    weights_checksum,
)
from lr_sweep.trainables.run import Run
from lr_sweep.trainables.stacked.engine import StackedTraining

from .memory import largest_stack
from .messages import (
    Advanced,
    Cohort,
    Ending,
    Event,
    Finished,
    Report,
    Started,
)


@dataclass(kw_only=True, eq=False)
class _Active:
    """A run that has a slot."""

    slot: Slot
    run_id: str
    checkpoints: Path
    """Folder of the run's checkpoints."""
    saved_step: int
    """-1: nothing is saved."""
    history: History
    """Which code trained it, up to now."""

    @property
    def progress(self) -> Progress:
        return self.slot.progress


class Session:
    """Trains a cohort from the newest intact checkpoints of its runs to their budget."""

    def __init__(
        self,
        cohort: Cohort,
        wall_clock: Callable[[], float] = time.time,
        memory_bytes: float | None = None,
    ) -> None:
        """Make the engine, which loads the data and the weights of built-in runs.

        `wall_clock` is Unix time in seconds, for the record alone. Fewer runs train at once where the stacked engine is
        predicted to take more than `memory_bytes`. Raises DataError or WeightsError for what is missing or not what
        the runs were planned with, and OSError if the store does not answer.
        """
        self.cohort, self.waiting = cohort, list(cohort.runs)
        self._probe = cohort.probe
        self.store = CheckpointStore(cohort.store) if cohort.store else None
        if self.store is None:
            hold(cohort.checkpoints.parent)
        self._output = Output()
        self.engine, self.num_slots = self._new_engine(wall_clock, memory_bytes)
        self._active: list[_Active] = []
        self._saved_at = time.monotonic()
        self._between_steps = True

    def _new_engine(
        self, wall_clock: Callable[[], float], memory_bytes: float | None
    ) -> tuple[Engine[Any], int]:
        """Return the engine that the cohort asks for, with no run in it, and how many runs it trains at once."""
        cohort = self.cohort
        if cohort.engine == "own":
            given = cohort.num_steps, cohort.device, wall_clock, self._output, cohort.checkpoints
            return PlainEngine(lambda run: OwnTraining(run, *given)), 1
        runs = [run for run in cohort.runs if isinstance(run, Run)]
        device = torch.device(cohort.device)
        data = task_data(runs[0], cohort.data_dir, cohort.device)
        weights = pretrained_tensors(runs[0], cohort.weights, self.store)
        if cohort.engine == "plain":
            return PlainEngine(lambda run: Training(run, data, weights, device, wall_clock)), 1
        at_once, on_cpu = cohort.runs_at_once, cohort.device == "cpu"
        if memory_bytes is not None:
            at_once = min(at_once, largest_stack(runs, data.shape, memory_bytes, on_cpu=on_cpu))
        return StackedTraining(data, weights, device, wall_clock), at_once

    def reports(self, report_every_s: float) -> Iterator[list[Report]]:
        """Train as `events` does; add what a training function printed, before it failed, too."""
        try:
            for events in self.events(report_every_s):
                yield [*self._output.take(), *events]
        except Exception:
            if printed := self._output.take(whole_lines=False):
                yield [*printed]
            raise

    def events(self, report_every_s: float) -> Iterator[list[Event]]:
        """Train every run to its budget; yield events when runs start, at least every `report_every_s`, and at ends.

        An evaluation is saved before it is reported: what the record holds need not be trained again.
        """
        while self.waiting or self._active:
            if self.waiting and len(self._active) < self.num_slots:
                yield self._start()
            ends = [(active, self._end_of(active)) for active in self._active]
            if ended := [(active, status) for active, status in ends if status is not None]:
                yield self._end(ended)
                continue
            self._between_steps = False
            reached = dict(self.engine.advance(for_s=report_every_s))
            self._between_steps = True
            began = time.monotonic()
            late = began - self._saved_at >= self.cohort.checkpoint_every_s
            self._save([active for active in self._active if late or active.slot in reached])
            self.engine.pace.steps.add(time.monotonic() - began, 0)  # checkpoints
            pace = self.engine.pace.as_event()
            yield [
                Advanced(
                    run_id=active.run_id,
                    step=active.progress.step,
                    evaluation=reached.get(active.slot),
                    **pace,
                )
                for active in self._active
            ]

    def leave(self) -> None:
        """Save all runs, so that another process can resume them, unless an error broke off a step."""
        if self._between_steps:
            self._save(self._active)
        for active in self._active:
            if isinstance(active.slot, OwnTraining):
                active.slot.leave()
        if self.store is not None:
            self.store.wait([active.checkpoints for active in self._active])

    def _start(self) -> list[Event]:
        free = self.num_slots - len(self._active)
        taken, self.waiting = self.waiting[:free], self.waiting[free:]
        ids = [run.run_id for run in taken]
        slots = {slot.run.run_id: slot for slot in self.engine.add(taken)}
        return [self._resume(run_id, slots[run_id]) for run_id in ids]

    def _resume(self, run_id: str, slot: Slot) -> Event:
        folder = self.cohort.checkpoints / run_id
        damaged: list[Path] = []
        saved = newest_checkpoint(folder, self.store, damaged.append)
        if saved is not None:
            if isinstance(slot, OwnTraining) and saved[1]["step"] < self.cohort.num_steps:
                slot.probe = self._probed(slot)  # else it has ended, and nothing is resumed
            self.engine.load_state(slot, *saved)
        step = slot.progress.step
        if 0 < step < self.cohort.num_steps:
            slot.progress.resumed = worst(slot.progress.resumed, "exactly")
        history = continued(
            newest_history(folder) if saved is not None else [], step, self.cohort.code
        )
        saved_step = -1 if saved is None else step
        self._active.append(
            _Active(
                slot=slot, run_id=run_id, checkpoints=folder, saved_step=saved_step, history=history
            )
        )
        curve = tuple(slot.progress.curve)
        return Started(
            run_id=run_id, step=step, curve=curve, damaged=tuple(map(str, damaged)), code=history
        )

    def _probed(self, training: OwnTraining) -> Probe:
        """Return what a trial of the cohort's function found, or try it."""
        if self._probe is None:
            self._probe = tried_once(training.run, self.cohort.num_steps, self.cohort.device)
        return self._probe

    def _end_of(self, active: _Active) -> Ending | None:
        """Return how a run ends now; None: it trains further."""
        if active.progress.diverged:
            return "diverged"
        if active.progress.step >= self.cohort.num_steps:
            return "complete"
        # The request stays: this process may die before the end is recorded, and a retry starts every run again.
        return "stopped" if (self.cohort.stop_requests / active.run_id).exists() else None

    def _end(self, statuses: Sequence[tuple[_Active, Ending]]) -> list[Event]:
        ended = [active for active, _ in statuses]
        self._save(ended, num_kept=1)
        if self.store is not None:
            self.store.finish([active.checkpoints for active in ended])
        self.engine.remove([active.slot for active in ended])
        self._active = [active for active in self._active if active not in ended]
        return [
            Finished(
                run_id=active.run_id,
                step=active.progress.step,
                status=status,
                diverged_at_step=active.progress.diverged_at_step,
                last_printed=active.progress.last_printed,
                elapsed_s=active.progress.elapsed_s,
                engine=self.cohort.engine,
                device=device_name(self.cohort.device),
                resumed=active.progress.resumed,
                not_saved=tuple(active.progress.not_saved),
            )
            for active, status in statuses
        ]

    def _save(self, active_runs: Sequence[_Active], num_kept: int = NUM_KEPT) -> None:
        for active in active_runs:
            step = active.progress.step
            if step != active.saved_step or active.progress.diverged:
                save_checkpoint(active.checkpoints, *self.engine.state(active.slot), active.history)
                active.saved_step = step
            keep_newest(active.checkpoints, num_kept)
            if self.store is not None:
                self.store.push(active.checkpoints, num_kept)
        if len(active_runs) == len(self._active):
            self._saved_at = time.monotonic()


def device_name(device: str) -> str:
    """Return the device's model, for the record."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.is_file() else ""
    named = re.search(r"^model name\s*:(.*)", text, re.MULTILINE)
    return f"cpu ({named[1].strip() if named else platform.processor() or platform.machine()})"


def task_data(run: Run, data_dir: Path, device: str) -> TaskData:
    """Load a run's task onto a device; the last one stays for the next cohort. Raises DataError, as `Session`."""
    options = json.dumps(run.task_options)  # an option may be a list, which is no key of a cache
    return _task_data(run.task, options, run.data_checksum, data_dir, device)


@lru_cache(maxsize=1)
def _task_data(task: str, options: str, checksum: str, data_dir: Path, device: str) -> TaskData:
    definition = TASKS[task]
    given = json.loads(options).items()
    chosen = definition.Options(
        **{name: tuple(x) if isinstance(x, list) else x for name, x in given}
    )
    got = data_checksum(task, chosen, data_dir)
    if got != checksum:
        raise DataError(
            f"{task}: the data in {data_dir} on {platform.node()} has checksum {got}, the run was planned with "
            f"{checksum}. Give every machine the same data directory and the same code."
        )
    return load_checked(task, definition, chosen, data_dir).to(torch.device(device))


def pretrained_tensors(
    run: Run, source: WeightsSource | None, store: CheckpointStore | None
) -> dict[str, Tensor] | None:
    """Find and read a run's pretrained weights; None for random ones. Raises WeightsError, as `Session`."""
    if source is None:
        return None
    if store is not None and source.folder is not None:
        store.fetch_weights(Path(source.folder))
    folder = find_weights(source, download=True)
    assert folder is not None, "find_weights downloads or raises"
    if (got := weights_checksum(folder)) != run.weights_checksum:
        raise WeightsError(
            f"the weights in {folder} on {platform.node()} have sha256 {got}, the run was planned with "
            f"{run.weights_checksum}. Give every machine the same weights."
        )
    return _tensors_in(folder, got, run.model.family)


@lru_cache(maxsize=1)
def _tensors_in(folder: Path, checksum: str, family: str) -> dict[str, Tensor]:
    return load_weights(folder, family)
