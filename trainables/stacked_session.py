"""Runs of one cell trained together here: their places in the stack, their checkpoints, their clocks, their events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from trainables.checkpoint import NUM_KEPT, History, keep_newest, save_checkpoint
from trainables.cohort import Assignment, Event, device_name, history_from, pretrained_tensors, task_data
from trainables.run import Run
from trainables.stacked_memory import largest_stack
from trainables.stacked_training import Member, StackedTraining
from trainables.stored_checkpoints import CheckpointStore, newest_checkpoint
from trainables.training import Evaluation


@dataclass(kw_only=True, eq=False)
class _Seat:
    """A run in the stack."""

    assignment: Assignment
    member: Member
    saved_step: int
    """-1: nothing is saved."""
    history: History
    """Which code trained it, up to now."""

    @property
    def over(self) -> bool:
        """Whether it is at its budget, or diverged."""
        return self.member.diverged or self.member.progress.step >= self.assignment.num_steps

    @property
    def checkpoints(self) -> Path:
        """Folder of the run's checkpoints."""
        return Path(self.assignment.checkpoints)

    def event(self, kind: str, **more: Any) -> Event:
        """Return an event of this run."""
        return {"kind": kind, "run_id": self.member.run.run_id, "step": self.member.progress.step, **more}


class StackedSession:
    """A cohort being trained here."""

    def __init__(
        self,
        assignments: Sequence[Assignment],
        num_places: int,
        wall_clock: Callable[[], float] = time.time,
        memory_bytes: float | None = None,
        *,
        compiled: bool = False,
    ) -> None:
        """Take a cohort on.

        Args:
            assignments: runs of one cell, in the order in which they get a place.
            num_places: runs that train at once; the others wait until one ends.
            wall_clock: Unix time in seconds, for the record alone.
            memory_bytes: fewer train at once where that is predicted to take more; None: no matter what it takes.
            compiled: as of `StackedTraining`.
        """
        self.waiting, self.num_places = list(assignments), num_places
        first, runs = assignments[0], [Run.from_content(assignment.content) for assignment in assignments]
        run = runs[0]
        options = tuple(sorted(run.task_options.items()))
        data = task_data(run.task, options, run.data_checksum, first.data_dir, first.device)
        if memory_bytes is not None:
            fitting = largest_stack(runs, data.shape, memory_bytes, on_cpu=first.device == "cpu")
            self.num_places = min(num_places, fitting)
        self.store = CheckpointStore(first.store) if first.store else None
        weights = pretrained_tensors(run, first.weights, self.store)
        self.training = StackedTraining(data, weights, torch.device(first.device), wall_clock, compiled=compiled)
        self.checkpoint_every_s = first.checkpoint_every_s
        self._seats: list[_Seat] = []
        self._saved_at = time.monotonic()
        self._between_steps = True

    def events(self, report_every_s: float) -> Iterator[list[Event]]:
        """Train every run to its budget; yield events when runs start, at least every `report_every_s`, and at ends.

        As of a `RunSession`: an evaluation is saved before it is told.
        """
        while self.waiting or self._seats:
            if self.waiting and len(self._seats) < self.num_places:
                yield self._seat()
            if ended := [seat for seat in self._seats if seat.over]:
                yield self._end(ended)
                continue
            self._between_steps = False
            reached = dict(self.training.advance(for_s=report_every_s))
            self._between_steps = True
            began = time.monotonic()
            late = began - self._saved_at >= self.checkpoint_every_s
            self._save([seat for seat in self._seats if late or seat.member in reached])
            self.training.pace.overhead(time.monotonic() - began, of_evaluation=bool(reached))
            yield [self._progress(seat, reached.get(seat.member)) for seat in self._seats]

    def save(self) -> None:
        """Write a checkpoint of every run that has gone on since its last, unless a step was broken off by an error."""
        if self._between_steps:
            self._save(self._seats)

    def leave(self) -> None:
        """Save where the runs are, for whoever goes on with them."""
        self.save()
        if self.store is not None:
            self.store.wait([seat.checkpoints for seat in self._seats])

    def _seat(self) -> list[Event]:
        """Give waiting runs the free places, each from its newest intact checkpoint."""
        number = self.num_places - len(self._seats)
        taken, self.waiting = self.waiting[:number], self.waiting[number:]
        members = self.training.add([Run.from_content(assignment.content) for assignment in taken])
        by_id = {member.run.run_id: member for member in members}
        return [self._take_up(assignment, by_id) for assignment in taken]

    def _take_up(self, assignment: Assignment, members: dict[str, Member]) -> Event:
        member = members[Run.from_content(assignment.content).run_id]
        damaged: list[Path] = []
        saved = newest_checkpoint(Path(assignment.checkpoints), self.store, damaged.append)
        if saved is not None:
            self.training.load_state(member, *saved)
        saved_step = member.progress.step if saved is not None else -1
        history = history_from(assignment, saved is not None, member.progress.step)
        seat = _Seat(assignment=assignment, member=member, saved_step=saved_step, history=history)
        self._seats.append(seat)
        # The whole curve: points that an earlier driver did not live to write down are in the checkpoint.
        curve = [asdict(evaluation) for evaluation in member.progress.curve]
        return seat.event("started", evaluations=curve, damaged=[str(path) for path in damaged], code=history)

    def _progress(self, seat: _Seat, evaluation: Evaluation | None) -> Event:
        evaluations = [asdict(evaluation)] if evaluation else []
        return seat.event("progress", evaluations=evaluations, **self.training.pace.as_event())

    def _end(self, ended: Sequence[_Seat]) -> list[Event]:
        self._save(ended, num_kept=1)
        if self.store is not None:
            self.store.finish([seat.checkpoints for seat in ended])
        self.training.remove([seat.member for seat in ended])
        self._seats = [seat for seat in self._seats if seat not in ended]
        return [seat.event("finished", **_result(seat)) for seat in ended]

    def _save(self, seats: Sequence[_Seat], num_kept: int = NUM_KEPT) -> None:
        for seat in seats:
            step = seat.member.progress.step
            if step != seat.saved_step or seat.member.diverged:
                save_checkpoint(seat.checkpoints, *self.training.state(seat.member), seat.history)
                seat.saved_step = step
            keep_newest(seat.checkpoints, num_kept)
            if self.store is not None:
                self.store.push(seat.checkpoints, num_kept)
        if len(seats) == len(self._seats):
            self._saved_at = time.monotonic()


def _result(seat: _Seat) -> dict[str, Any]:
    progress = seat.member.progress
    return {
        "status": "diverged" if seat.member.diverged else "complete",
        "diverged_at_step": progress.diverged_at_step,
        "elapsed_s": progress.elapsed_s,
        "engine": "stacked",
        "device": device_name(seat.assignment.device),
    }
