"""The driver trains runs to their ends: starts Ray, packs runs into trials, passes on what these report."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_json
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.common.text import counted
from lr_sweep.sweep.mirror.mirror import MirrorThread
from lr_sweep.sweep.plan.placement import cohorts
from lr_sweep.sweep.results.changes import code_of_tasks
from lr_sweep.sweep.study.only import select
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.terminal import Stop, StopAskedError, output_to, stop_signals
from lr_sweep.trainables.worker.messages import Cohort

from .failures import MEMORY_ADVICE, Failures
from .live_runs import LiveRuns
from .nodes import Machines, Share
from .progress import Display, StudyProgress
from .ray_session import RayLostError, ray_session
from .trials import (
    Leave,
    Reported,
    StorageFailed,
    TrialEvent,
    TrialInterrupted,
    TrialStarted,
    cohort_of,
    report_every_s,
)
from .work import Work

MAX_DEATHS = 5
"""Deaths of Ray in a row, before any run ends, after which it is not started again."""
STATUS_EVERY_S = 2.0
"""Seconds between two writes of the progress file, at least."""


def train(work: Work, mirror: MirrorThread, log_file: Path) -> tuple[dict[str, str], bool]:
    """Train what is left of a study, until all has ended or the user stops it. `log_file`: what Ray prints.

    Returns the statuses of the runs that ended, by id, and whether the user stopped it before the end. Raises UserError
    if Ray keeps dying, the cluster lacks what trials need, or a worker cannot write.
    """
    chosen = select(work.state.wanted, work.options.only)
    progress = StudyProgress(work.state.reconciled.to_train, len(chosen))
    work.stopping.request()
    with output_to(log_file) as console, Display(progress, console) as display:
        driver = Driver(work, progress, display, mirror)
        with (
            scratch_folder("tune-") as driver.scratch,
            stop_signals(driver.note_stop, console.file.fileno()) as stop,
        ):
            driver.survive_ray(stop, log_file)
        is_stopped = bool(progress.left()) or (stop.is_set() and work.has_next_round())
        return progress.ended(), is_stopped


class Driver:
    """Trains runs in passes. `LiveRuns` takes the events of runs, `Failures` those of trials that break."""

    def __init__(
        self, work: Work, progress: StudyProgress, display: Display, mirror: MirrorThread
    ) -> None:
        self._work, self._progress, self._display, self._mirror = work, progress, display, mirror
        self._results, self._placement = work.options.results, work.options.placement
        self._code = code_of_tasks(work.state.study, work.examples)
        self._status = self._results.progress(work.state.study.study)
        self._status_due = 0.0
        self._machines = Machines(self._placement.address is not None)
        self._failures = Failures(self._machines, self._placement, display.note)
        self._live = LiveRuns(work, progress, self._failures, mirror)
        self.scratch = Path()
        """Folder for Tune's own state."""
        self._setbacks = 0
        """Reasons so far for which a pass left runs to the next one."""

    def note_stop(self) -> None:
        """Answer a signal that asks for an end at once, from any thread: the step under way may take a while."""
        with suppress(OSError):  # the live page reads it; a full disk has no place for it
            self._results.request_stop(self._results.sweep_stop.name)
        training = self._progress.training()
        what = f"saving {counted(len(training), 'run')}" if training else "stopping"
        self._display.note(f"{what}; press Ctrl-C again to leave at once")

    def survive_ray(self, stop: Stop, log_file: Path) -> None:
        """Train runs; if Ray dies, start it again, unless it keeps dying before any run ends."""
        deaths_in_a_row = 0
        while (left := self._progress.left()) and not stop.is_set():
            try:
                with ray_session(
                    self._placement, log_file, self._machines.excluded, stop.breaks_off
                ) as share:
                    self._train_all(share, stop)
            except StopAskedError:
                return
            except RayLostError as loss:
                if stop.is_set():  # a signal to the whole process group ends Ray, too
                    return
                has_progress = any(self._progress.has_ended(run.run_id) for run in left)
                deaths_in_a_row = 1 if has_progress else deaths_in_a_row + 1
                if deaths_in_a_row >= MAX_DEATHS:
                    raise UserError(
                        f"{loss}, {deaths_in_a_row} times before any run ended: memory is short, or the machine is "
                        f"busy. {MEMORY_ADVICE} Ray's log: {log_file}. The same command resumes from the runs' "
                        f"checkpoints."
                    ) from loss
                self._display.note(f"{loss}; starting it again, runs resume from their checkpoints")

    def _train_all(self, share: Share, stop: Stop) -> None:
        """Train in passes: one that is cut short, or in which trials fail, leaves runs to the next."""
        while not stop.is_set() and (left := self._progress.left() or self._next_round()):
            setbacks_before = self._setbacks
            self._train_pass(left, share, stop)
            has_changed = self._setbacks > setbacks_before or len(self._progress.left()) < len(left)
            if not (has_changed or stop.is_set()):
                raise RuntimeError(
                    "a pass over all runs changed nothing: please report this, with Ray's log"
                )

    def _next_round(self) -> Sequence[WantedRun]:
        num_before = len(self._work.state.wanted)
        runs = self._work.next_round()
        if len(self._work.state.wanted) > num_before:
            self._mirror.changed(*self._work.held_ids())
        self._live.add(runs)
        return runs

    def _useful_trials(self) -> int:
        runs_per_trial = self._placement.resources.runs_per_trial or 1
        return math.ceil(len(self._progress.left()) / runs_per_trial)

    def _train_pass(self, runs: Sequence[WantedRun], share: Share, stop: Stop) -> None:
        from .tuner import train_cohorts  # imported late: importing Ray takes seconds

        leave, excluded = Leave(), set(self._machines.excluded)
        packed = self._packed(runs, share)
        events = train_cohorts(
            packed, self._placement, self.scratch, self._machines, leave, share.at_most
        )
        try:
            with closing(events):
                for event in events:
                    # A process that the same signal has ended has not failed.
                    is_broken = isinstance(event, TrialInterrupted)
                    if event is not None and not (stop.is_set() and is_broken):
                        self._on_event(event)
                    if stop.is_set():
                        (leave.set if self._progress.training() else leave.set_at_once)()
                    elif not self._machines.excluded <= excluded:
                        leave.set()  # what trains or waits there starts elsewhere
                    elif not leave.is_set():
                        self._tick(share, leave)
        finally:
            training = sorted(self._progress.training())
            if stop.is_set() and training:
                self._display.note(self._live.saved(training))
            self._live.interrupted(training)

    def _packed(self, runs: Sequence[WantedRun], share: Share) -> list[Cohort]:
        """Return the cohorts of a pass, one for each trial."""
        groups = cohorts(runs, self._placement.resources, share.claim(self._useful_trials()))
        self._progress.packed([[run.run_id for run in group] for group in groups], share.at_once)
        every_s = report_every_s(min(len(groups), share.at_once))
        return [
            cohort_of(
                group,
                self._work.options,
                runs_at_once=self._failures.runs_at_once(group),
                code=self._code[group[0].run.task],
                probe=self._work.probes.get(group[0].cell),
                report_every_s=every_s,
            )
            for group in groups
        ]

    def _tick(self, share: Share, leave: Leave) -> None:
        self._display.tick()
        if change := share.change(self._useful_trials()):
            leave.set()
            self._setbacks += 1
            self._display.note(f"{change}; runs resume from their checkpoints")
        for note in [*self._results.news(), *self._work.take_news(), *share.news()]:
            self._display.note(note)
        if time.monotonic() >= self._status_due:
            more = {"training": self._progress.training(), "updated_at": time.time()}
            write_json(self._status, asdict(self._progress.summary()) | more)
            self._status_due = time.monotonic() + STATUS_EVERY_S

    def _on_event(self, event: TrialEvent) -> None:
        match event:
            case TrialStarted():
                cell = self._progress.cell_of(event.run_ids[0])
                self._failures.trial_started(event.run_ids, cell, event.node)
            case TrialInterrupted():
                self._on_broken_trial(event)
            case Reported():
                self._work.stopping.judge()
            case StorageFailed():
                mend = "Free space there, or make it writable"
                if "s3://" in event.reason:
                    mend = "Check that machine's network and its credentials for the bucket"
                raise UserError(
                    f"a worker cannot write checkpoints: {event.reason}. {mend}; what is recorded is intact, and the "
                    f"same command resumes from it."
                )
            case _:
                self._live.event(event)

    def _on_broken_trial(self, trial: TrialInterrupted) -> None:
        """Note that a trial starts again, in this pass or the next, or that its runs have failed."""
        self._setbacks += 1
        self._failures.trial_stopped(trial.run_ids)
        runs = self._live.tried(trial.run_ids)
        if not runs:
            return
        run_ids = [run.run_id for run in runs]
        if trial.reason is None:
            saved = self._live.saved(run_ids)
            self._display.note(f"a machine leaves or was lost: {saved}")
            self._live.interrupted(run_ids, "interrupted: its machine was lost; it resumes")
            return
        num_training = len(self._progress.training().keys() & run_ids)
        text, have_failed = self._failures.consequence(runs, trial, num_training)
        self._live.interrupted(run_ids, text, is_failure=True)
        if have_failed:
            self._live.failed(runs, trial.reason)
        self._progress.failed_attempts += 1
        if message := self._failures.reason_to_end(runs, trial.reason, trial.node):
            for tried_runs, reason in self._failures.early:
                left = self._progress.left(run.run_id for run in tried_runs)
                self._live.failed(left, reason)
            raise UserError(message)
