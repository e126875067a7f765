"""The driver trains runs to their ends: starts Ray, packs runs into trials, passes on what these report."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_json
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.common.text import counted, failure_line
from lr_sweep.sweep.mirror.mirror import MirrorThread
from lr_sweep.sweep.plan.placement import CohortSizes, cohorts, is_out_of_memory
from lr_sweep.sweep.results.changes import code_of_tasks
from lr_sweep.sweep.results.directory import read_state
from lr_sweep.sweep.results.recorder import Recorder, RunLogs, Sink
from lr_sweep.sweep.study.only import select
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.terminal import Stop, StopAskedError, output_to, stop_signals
from lr_sweep.sweep.tune.broken_nodes import BrokenNodes
from lr_sweep.sweep.tune.failures import MEMORY_ADVICE, Failures
from lr_sweep.sweep.tune.nodes import Machines, Share, node_text
from lr_sweep.sweep.tune.progress import Display, StudyProgress
from lr_sweep.sweep.tune.ray_session import RayLostError, ray_session
from lr_sweep.sweep.tune.saved import saved_steps, saved_text
from lr_sweep.sweep.tune.trials import (
    Leave,
    Reported,
    StorageFailed,
    TrialEvent,
    TrialFailed,
    TrialInterrupted,
    TrialStarted,
    cohort_of,
    report_every_s,
)
from lr_sweep.sweep.tune.work import Work
from lr_sweep.trainables.worker.messages import Advanced, Event, Finished, Printed, Started

MAX_DEATHS = 5
"""Deaths of Ray in a row, before any run ends, after which it is not started again."""
FAILURES = (TrialFailed, TrialInterrupted)
STATUS_EVERY_S = 2.0
"""Seconds between two writes of the progress file, at least."""
STATUS_SHARE = 0.05
"""Largest part of the driver's time that these writes take: each sums up thousands of runs."""


def train(work: Work, mirror: MirrorThread, log_file: Path) -> tuple[dict[str, str], bool]:
    """Train what is left of a study, until all has ended or the user stops it. `log_file`: what Ray prints.

    Returns the statuses of the runs that ended, by id, and whether the user stopped it before the end. Raises UserError
    if Ray keeps dying, the cluster lacks what trials need, or a worker cannot write.
    """
    runs, total_runs = (
        work.state.reconciled.to_train,
        len(select(work.state.wanted, work.options.only)),
    )
    progress = StudyProgress(runs, total_runs, work.step_s)
    work.stopping.request()
    with output_to(log_file) as console, Display(progress, console) as display:
        driver = Driver(work, progress, display, mirror)
        with (
            scratch_folder("tune-") as driver.scratch,
            stop_signals(driver.note_stop, console.file.fileno()) as stop,
        ):
            driver.survive_ray(stop, log_file)
        return driver.ended, bool(driver.left()) or (stop.is_set() and work.has_next_round())


class Driver:
    """Trains runs to their ends, and passes on what happens to them."""

    def __init__(
        self, work: Work, progress: StudyProgress, display: Display, mirror: MirrorThread
    ) -> None:
        self._work, self._progress, self._display, self._mirror = work, progress, display, mirror
        self._results, self._placement = work.options.results, work.options.placement
        runs = work.state.reconciled.to_train
        self._runs = {run.run_id: run for run in runs}
        self._code = code_of_tasks(work.state.study, work.examples)
        self._status = self._results.progress(work.state.study.study)
        reached = read_state(self._status).get("training")  # of a driver that was killed
        self._status.unlink(missing_ok=True)
        self._status_due = 0.0
        devices = self._placement.devices_per_trial
        recorder = Recorder(
            self._results, runs, devices, reached=reached, files=work.state.study.files
        )
        self._logs = RunLogs(self._results.log)
        self._sinks: list[Sink] = [
            recorder,
            self._logs,
            progress,
            display,
            work.stopping,
            mirror,
        ]
        self._machines, self._sizes = (
            Machines(self._placement.address is not None),
            CohortSizes(self._results),
        )
        self._failures = Failures(self._sizes)
        self._broken = BrokenNodes(
            partial(self._machines.usable, self._placement), self._machines.excluded
        )
        self.scratch = Path()
        """Folder for Tune's own state."""
        self.ended: dict[str, str] = {}
        """Statuses of the runs that have ended, by id."""
        self._training: set[str] = set()
        self._setbacks = 0
        """Reasons so far for which a pass left runs to the next one."""

    def note_stop(self) -> None:
        """Answer a signal that asks for an end at once, from any thread: the step under way may take a while."""
        with suppress(OSError):  # the live page reads it; a full disk has no place for it
            self._results.request_stop(self._results.sweep_stop.name)
        what = f"saving {counted(len(self._training), 'run')}" if self._training else "stopping"
        self._display.note(f"{what}; press Ctrl-C again to leave at once")

    def left(self) -> list[WantedRun]:
        """Return the runs that have not ended."""
        return [run for run_id, run in self._runs.items() if run_id not in self.ended]

    def survive_ray(self, stop: Stop, log_file: Path) -> None:
        """Train runs; if Ray dies, start it again, unless it keeps dying before any run ends."""
        deaths_in_a_row = 0
        while self.left() and not stop.is_set():
            ended_before = len(self.ended)
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
                deaths_in_a_row = 1 if len(self.ended) > ended_before else deaths_in_a_row + 1
                if deaths_in_a_row >= MAX_DEATHS:
                    raise UserError(
                        f"{loss}, {deaths_in_a_row} times before any run ended: memory is short, or the machine is "
                        f"busy. {MEMORY_ADVICE} Ray's log: {log_file}. The same command resumes from the runs' "
                        f"checkpoints."
                    ) from loss
                self._display.note(f"{loss}; starting it again, runs resume from their checkpoints")

    def _train_all(self, share: Share, stop: Stop) -> None:
        """Train in passes: one that is cut short, or in which trials fail, leaves runs to the next."""
        while not stop.is_set() and (left := self.left() or self._next_round()):
            setbacks_before = self._setbacks
            self._train_pass(left, share, stop)
            if not (
                self._setbacks > setbacks_before or len(self.left()) < len(left) or stop.is_set()
            ):
                raise RuntimeError(
                    "a pass over all runs changed nothing: please report this, with Ray's log"
                )

    def _next_round(self) -> Sequence[WantedRun]:
        num_before = len(self._work.state.wanted)
        runs = self._work.next_round()
        if len(self._work.state.wanted) > num_before:
            self._mirror.changed(*self._work.held_ids())
        self._runs |= {run.run_id: run for run in runs}
        for sink in self._sinks:
            sink.add(runs)
        return runs

    def _useful_trials(self) -> int:
        return math.ceil(len(self.left()) / (self._placement.resources.runs_per_trial or 1))

    def _train_pass(self, runs: Sequence[WantedRun], share: Share, stop: Stop) -> None:
        options, leave, excluded = self._work.options, Leave(), set(self._machines.excluded)
        groups = cohorts(runs, self._placement.resources, share.claim(self._useful_trials()))
        self._progress.packed([[run.run_id for run in group] for group in groups], share.at_once)
        every_s = report_every_s(min(len(groups), share.at_once))
        trained = [
            cohort_of(
                group,
                options,
                runs_at_once=self._sizes.of(group),
                code=self._code[group[0].run.task],
                probe=self._work.probes.get(group[0].cell),
                report_every_s=every_s,
            )
            for group in groups
        ]
        from lr_sweep.sweep.tune.tuner import (
            train_cohorts,
        )  # imported late: importing Ray takes seconds

        events = train_cohorts(
            trained, self._placement, self.scratch, self._machines, leave, share.at_most
        )
        try:
            with closing(events):
                for event in events:
                    # A process that the same signal has ended has not failed.
                    if event is not None and not (stop.is_set() and isinstance(event, FAILURES)):
                        self._on_event(event)
                    if stop.is_set():
                        (leave.set if self._training else leave.set_at_once)()
                    elif (
                        not self._machines.excluded <= excluded
                    ):  # what trains or waits there starts elsewhere
                        leave.set()
                    elif not leave.is_set():
                        self._tick(share, leave)
        finally:
            if stop.is_set() and self._training:
                self._display.note(self._saved(self._training))
            self._interrupt(sorted(self._training))

    def _saved(self, run_ids: Iterable[str]) -> str:
        """Return until which step runs are saved that no longer train; log it for each."""
        steps = saved_steps(self._results, run_ids)
        files = self._work.state.study.files
        if files and files.command and not files.command.resumes:
            steps = dict.fromkeys(steps, 0)
        for run_id, step in steps.items():
            self._logs.write(run_id, [saved_text([step])])
        return saved_text(steps.values())

    def _tick(self, share: Share, leave: Leave) -> None:
        self._display.tick()
        if change := share.change(self._useful_trials()):
            leave.set()
            self._setbacks += 1
            self._display.note(f"{change}; runs resume from their checkpoints")
        self._print(
            [*self._results.news(), *self._work.take_news(), *self._machines.news(), *share.news()]
        )
        if (began := time.monotonic()) >= self._status_due:
            more = {"training": self._progress.training(), "updated_at": time.time()}
            write_json(self._status, self._progress.summary().as_dict() | more)
            ended = time.monotonic()
            self._status_due = ended + max(STATUS_EVERY_S, (ended - began) / STATUS_SHARE)

    def _on_event(self, event: TrialEvent) -> None:
        match event:
            case TrialStarted():
                first = event.run_ids[0]
                self._failures.started(first, self._runs[first].cell)
            case TrialFailed():
                self._on_failure(event)
            case TrialInterrupted():
                self._on_interruption(event)
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
            case Printed():
                self._pass_on(event)
            case _ if (
                event.run_id not in self.ended
            ):  # else its trial started again, for a later run
                self._on_run_event(self._work.stopping.explained(event))

    def _pass_on(self, event: Event | Printed) -> None:
        for sink in self._sinks:
            sink.event(event)

    def _on_run_event(self, event: Event) -> None:
        self._pass_on(event)
        match event:
            case Started():
                self._training.add(event.run_id)
                self._broken.started(event.run_id, self._machines.node_of(event.run_id))
            case Finished():
                self._end(event.run_id, event.status)
        if isinstance(event, Finished) or (isinstance(event, Advanced) and event.evaluation):
            self._failures.evaluated()
            self._broken.evaluated(event.run_id)

    def _on_interruption(self, event: TrialInterrupted) -> None:
        """Note that a trial will start again, in this pass or the next: until then its runs count as training."""
        self._setbacks += 1
        self._failures.interrupted(event.run_ids[0])
        runs, reason = self._at_fault(event), event.reason
        text = (
            f"failed: {reason}; it is tried again"
            if reason
            else "interrupted: its machine was lost; it resumes"
        )
        if reason is None and runs:
            saved = self._saved(run.run_id for run in runs)
            self._display.note(f"a machine leaves or was lost: {saved}")
        for sink in self._sinks:
            sink.interrupted([run.run_id for run in runs], text)
        if reason is not None and runs:
            self._print(self._failures.first_of_kind(runs, reason, "; it is tried again"))
            self._blames_node(runs, reason, event.node)
            self._count_attempt(runs, reason, event.node)

    def _at_fault(self, event: TrialFailed | TrialInterrupted) -> list[WantedRun]:
        """Return the runs of a trial that failed: those that were training, else all that have not ended."""
        left = [self._runs[run_id] for run_id in event.run_ids if run_id not in self.ended]
        return [run for run in left if run.run_id in self._training] or left

    def _blames_node(self, runs: Sequence[WantedRun], reason: str, node: str | None) -> bool:
        was_left = node in self._machines.excluded
        is_blamed = self._broken.blames([run.run_id for run in runs], reason, node)
        if node in self._machines.excluded and not was_left:
            what = f"trials fail on {node_text(str(node))} ({failure_line(reason)})"
            self._display.note(f"{what}: it is left, its runs resume elsewhere")
        return is_blamed

    def _print(self, notes: Iterable[str]) -> None:
        for note in notes:
            self._display.note(note)

    def _on_failure(self, event: TrialFailed) -> None:
        self._failures.interrupted(event.run_ids[0])
        if not (runs := self._at_fault(event)):
            return
        self._setbacks += 1
        run_ids = [run.run_id for run in runs]
        if self._blames_node(runs, event.reason, event.node):
            self._interrupt(run_ids, f"failed: {event.reason}")
        elif len(self._training.intersection(run_ids)) > 1:
            text = self._failures.separate(runs, event.reason)
            self._print([text])
            self._interrupt(run_ids, text)
        else:
            self._print(self._failures.first_of_kind(runs, event.reason))
            self._interrupt(run_ids, f"failed: {event.reason}")
            self._fail(runs, event.reason)
        self._count_attempt(runs, event.reason, event.node)

    def _fail(self, runs: Sequence[WantedRun], reason: str) -> None:
        for run in runs:
            for sink in self._sinks:
                sink.failed(run.run_id, reason)
            self._end(run.run_id, "failed")

    def _count_attempt(self, runs: Sequence[WantedRun], reason: str, node: str | None) -> None:
        """Count a failed attempt; if the sweep ends for it, each run that was tried has failed."""
        self._progress.failed_attempts += 1
        if node in self._machines.excluded or (is_out_of_memory(reason) and len(runs) > 1):
            return
        if message := self._failures.attempt_failed(runs, reason):
            for tried_runs, why in self._failures.early:
                self._fail([run for run in tried_runs if run.run_id not in self.ended], why)
            raise UserError(message)

    def _interrupt(self, run_ids: Sequence[str], text: str = "") -> None:
        self._training.difference_update(run_ids)
        for sink in self._sinks:
            sink.interrupted(run_ids, text)

    def _end(self, run_id: str, status: str) -> None:
        self.ended[run_id] = status
        self._training.discard(run_id)
