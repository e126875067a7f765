"""The driver trains runs to their ends: starts Ray, packs runs into trials, records what these report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from lr_sweep.analysis.record.index import INDEX_FROM, write_index
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_json
from lr_sweep.common.text import counted
from lr_sweep.sweep.mirror.worker import MirrorThread
from lr_sweep.sweep.plan.packing import KILLED, CohortSizes, cohorts, is_out_of_memory
from lr_sweep.sweep.results.recorder import Recorder
from lr_sweep.sweep.results.run_log import RunLogs
from lr_sweep.sweep.results.run_state import run_title
from lr_sweep.sweep.search.stopping import EarlyStopping
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.terminal import StopAskedError, output_to, stop_signals
from lr_sweep.sweep.tune.display import Display
from lr_sweep.sweep.tune.failures import MAX_KINDS, Failure, Failures, Moment, advice_on, is_of_a_gpu, kind_of
from lr_sweep.sweep.tune.nodes import Machines, node_text
from lr_sweep.sweep.tune.options import Options
from lr_sweep.sweep.tune.progress import StudyProgress
from lr_sweep.sweep.tune.ray_session import RayLostError, ray_session
from lr_sweep.sweep.tune.shares import Share
from lr_sweep.sweep.tune.trial_events import (
    Leave,
    Reported,
    StorageFailed,
    TrialEvent,
    TrialFailed,
    TrialInterrupted,
)
from lr_sweep.sweep.tune.trials import cohorts_of, train_cohorts
from lr_sweep.trainables.events import Event, Finished, Printed, Started

MAX_DEATHS = 5
"""Deaths of Ray in a row, before any run ends, after which it is not started again."""
STATUS_EVERY_S = 2.0
"""Between writings of the file that `status` reads."""


class Driver:
    """Trains runs to their ends.

    Args:
        code: by task, as of `sweep.results.changes.code_of`.
        progress: of these runs; updated and shown here.
        mirror: notified of all that is recorded.
        status: the file that `status` reads.
        news: returns messages for the user that came up since the last call.
        further: returns runs to train once all others have ended, the next round of a search; none at its end.
        stopping: judges runs, and asks workers to end them.
    """

    def __init__(
        self,
        runs: Sequence[WantedRun],
        options: Options,
        code: Mapping[str, dict[str, str]],
        *,
        progress: StudyProgress,
        mirror: MirrorThread,
        status: Path,
        news: Callable[[], Iterable[str]],
        further: Callable[[], Sequence[WantedRun]] = tuple,
        stopping: EarlyStopping,
    ) -> None:
        self._runs, self._options, self._code = {run.run_id: run for run in runs}, options, code
        self._progress, self._mirror, self._status, self._news = progress, mirror, status, news
        self._further, self._stopping = further, stopping
        self._results, self._placement = options.results, options.placement
        self._recorder = Recorder(self._results, runs, self._placement.devices_per_trial)
        self._logs = RunLogs(self._results.log)
        self._sizes, self._machines = CohortSizes(self._results), Machines(self._placement.address is not None)
        self._ended: dict[str, str] = {}
        self._training: set[str] = set()
        usable = partial(self._machines.usable, self._placement)
        self._failures = Failures(len({run.cell for run in runs}), usable, self._machines.excluded)
        self._kinds_shown: set[str] = set()
        self._setbacks = 0
        """Reasons so far for which a pass left runs to the next one."""
        self._status_at = 0.0

    def train(self, log_file: Path) -> dict[str, str]:
        """Train until all runs have ended, or until the user stops the sweep; return the statuses of ended runs, by id.

        Raises UserError if Ray keeps dying, the cluster lacks what trials need, or a worker cannot write.
        """
        self._status.unlink(missing_ok=True)  # an earlier sweep's
        self._stopping.request()
        with (
            output_to(log_file) as console,
            Display(self._progress, console) as self._display,
            stop_signals(self._note_stop, console.file.fileno()) as self._stop,
        ):
            self._survive_ray(log_file)
        return self._ended

    def _note_stop(self) -> None:
        """Answer a signal that asks for an end at once, from any thread: the step under way may take a while."""
        what = f"saving {counted(len(self._training), 'run')}" if self._training else "stopping"
        self._display.note(f"{what}; press Ctrl-C again to leave at once")

    def _survive_ray(self, log_file: Path) -> None:
        """Train runs; if Ray dies, start it again, unless it keeps dying before any run ends."""
        deaths_in_a_row = 0
        while self._left() and not self._stop.is_set():
            ended_before = len(self._ended)
            try:
                with ray_session(self._placement, log_file, self._machines.excluded, self._stop.breaks_off) as share:
                    self._train_all(share)
            except StopAskedError:
                return
            except RayLostError as loss:
                if self._stop.is_set():  # a signal to the whole process group ends Ray, too
                    return
                deaths_in_a_row = 1 if len(self._ended) > ended_before else deaths_in_a_row + 1
                if deaths_in_a_row >= MAX_DEATHS:
                    raise UserError(
                        f"{loss}, {deaths_in_a_row} times before any run ended. {advice_on(loss, Moment.now())} Ray's "
                        f"log: {log_file}. The same command resumes from the runs' checkpoints."
                    ) from loss
                self._display.note(f"{loss}; starting it again, runs resume from their checkpoints")

    def _left(self) -> list[WantedRun]:
        return [run for run_id, run in self._runs.items() if run_id not in self._ended]

    def _next_round(self) -> list[WantedRun]:
        runs = list(self._further())
        self._runs |= {run.run_id: run for run in runs}
        self._recorder.add(runs)
        self._progress.add(runs)
        return runs

    @property
    def stopped(self) -> bool:
        """Whether the user stopped it, after `train`."""
        return self._stop.is_set()

    @property
    def num_left(self) -> int:
        """How many runs have not ended."""
        return len(self._left())

    def _useful_trials(self) -> int:
        """Return how many trials at once can divide the runs that are left among them."""
        return math.ceil(len(self._left()) / (self._placement.resources.runs_per_trial or 1))

    def _train_all(self, share: Share) -> None:
        """Train in passes: one that is cut short, or in which trials fail, leaves runs to the next."""
        while not self._stop.is_set() and (left := self._left() or self._next_round()):
            setbacks_before = self._setbacks
            self._train_pass(left, share)
            advanced = self._setbacks > setbacks_before or len(self._left()) < len(left) or self._stop.is_set()
            assert advanced, "no pass is without effect"

    def _train_pass(self, runs: Sequence[WantedRun], share: Share) -> None:
        groups = cohorts(runs, self._placement.resources, share.claim(self._useful_trials()))
        self._progress.packed([[run.run_id for run in group] for group in groups], share.at_once)
        self._leave = leave = Leave()
        trained = cohorts_of(groups, self._options, self._sizes, self._code)
        events = train_cohorts(trained, self._placement, self._results.tune, self._machines, leave, share.at_most)
        try:
            with closing(events):
                for event in events:
                    if event is not None:
                        self._on_event(event)
                    if self._stop.is_set():
                        (leave.set if self._training else leave.set_at_once)()
                    elif not leave.is_set():
                        self._tick(share, leave)
        finally:
            self._count(self._failures.release())
            self._progress.interrupted(self._training)
            self._training.clear()

    def _on_event(self, event: TrialEvent) -> None:
        match event:
            case TrialFailed():
                self._on_failure(event.run_ids, event.reason)
            case TrialInterrupted():
                self._progress.interrupted(event.run_ids)
                if event.reason is not None:
                    self._show_first(event.run_ids, event.reason, "; it is tried again")
                self._logs.write_all(event.run_ids, "interrupted: its process or machine was lost; it resumes")
                self._setbacks += 1
            case Printed():
                self._logs.event(event)
            case Reported():
                self._stopping.judge()
            case StorageFailed():
                raise UserError(
                    f"a worker cannot write checkpoints: {event.reason}. Free space there, or "
                    f"make it writable; what is recorded is intact, and the same command resumes from it."
                )
            case _ if event.run_id not in self._ended:  # else its trial started again, for a later run
                self._on_run_event(self._stopping.explained(event))

    def _on_run_event(self, event: Event) -> None:
        self._recorder.event(event)
        self._logs.event(event)
        self._progress.event(event)
        self._stopping.event(event)
        match event:
            case Started():
                self._training.add(event.run_id)
                self._failures.started(event.run_id, self._machines.node_of(event.run_id))
                for path in event.damaged:
                    self._display.note(
                        f"{path} is damaged (its checksum differs); the run resumes from step {event.step}"
                    )
                changed = bool(event.curve)
            case Finished():
                self._end(event.run_id, event.status)
                changed = True
            case _:
                changed = event.evaluation is not None
        if changed:
            self._mirror.changed(event.run_id)
        if changed and not isinstance(event, Started):
            self._count(self._failures.evaluated(event.run_id))

    def _on_failure(self, run_ids: Sequence[str], reason: str) -> None:
        """Record the run that was training as failed; if none was, the trial could not start, so all of its runs.

        Of several that trained together, it is not known which one failed, and out of memory none did: fewer of them
        train together in the next pass.
        """
        left = [run_id for run_id in run_ids if run_id not in self._ended]
        training = [run_id for run_id in left if run_id in self._training]
        if len(training) > 1 and not is_of_a_gpu(reason):
            self._train_fewer_together(training, reason)
        elif KILLED in reason and self._failures.killed(training or left):
            self._resume_later(training or left, reason)
        else:
            self._blame(training or left, reason)

    def _blame(self, run_ids: Sequence[str], reason: str) -> None:
        """Count a failure against the runs or their node, now or once that is known."""
        self._logs.write_all(run_ids, f"failed: {reason}")
        self._show_first(run_ids, reason)
        self._interrupt(run_ids)
        cell, node = self._runs[run_ids[0]].cell, self._machines.node_of(run_ids[0])
        failed, left = self._failures.failed(Failure(run_ids=run_ids, cell=cell, reason=reason, node=node))
        self._count(failed)
        if left and node is not None:
            what = f"trials fail on {node_text(node)} ({reason.splitlines()[-1]})"
            self._display.note(f"{what}: it is left, its runs resume elsewhere")
            self._leave.set()
        if problem := self._failures.all_alike({self._runs[run_id].cell for run_id in self._training}):
            raise problem

    def _count(self, failures: Iterable[Failure]) -> None:
        """Record failed runs."""
        for run_id, reason in [(run_id, failure.reason) for failure in failures for run_id in failure.run_ids]:
            self._recorder.failed(run_id, reason)
            self._progress.failed(run_id)
            self._end(run_id, "failed")
            self._mirror.changed(run_id)

    def _show_first(self, run_ids: Sequence[str], reason: str, further: str = "") -> None:
        """Print the first failure of each kind when it happens: many runs may fail for one reason, or be retried."""
        kind = kind_of(reason)
        if kind not in self._kinds_shown and len(self._kinds_shown) < MAX_KINDS:
            self._kinds_shown.add(kind)
            title = run_title(self._runs[run_ids[0]].row())
            more = f" and {counted(len(run_ids) - 1, 'run')} in the same trial" if len(run_ids) > 1 else ""
            self._display.note(f"{title}{more} failed{further}: {reason}")

    def _resume_later(self, run_ids: Sequence[str], reason: str) -> None:
        self._interrupt(run_ids)
        self._display.note(f"a trial of {counted(len(run_ids), 'run')} was {reason}; it is started again")
        self._logs.write_all(run_ids, reason)

    def _train_fewer_together(self, run_ids: Sequence[str], reason: str) -> None:
        self._interrupt(run_ids)
        now = self._sizes.halve(self._runs[run_ids[0]], len(run_ids), remember=is_out_of_memory(reason))
        what = f"{len(run_ids)} runs that trained together failed ({reason}); they resume from their checkpoints"
        self._display.note(text := f"{what}, {now} at a time")
        self._logs.write_all(run_ids, text)

    def _interrupt(self, run_ids: Sequence[str]) -> None:
        self._progress.interrupted(run_ids)
        self._training.difference_update(run_ids)
        self._setbacks += 1

    def _end(self, run_id: str, status: str) -> None:
        self._ended[run_id] = status
        self._training.discard(run_id)
        if len(self._ended) % INDEX_FROM == 0:
            write_index(self._results.root)

    def _tick(self, share: Share, leave: Leave) -> None:
        self._display.tick()
        if change := share.change(self._useful_trials()):
            leave.set()
            self._setbacks += 1
            self._display.note(f"{change}; runs resume from their checkpoints")
        for message in [*self._news(), *self._machines.news()]:
            self._display.note(message)
        if time.monotonic() - self._status_at > STATUS_EVERY_S:
            self._status_at = time.monotonic()
            write_json(self._status, self._progress.summary().as_dict() | {"updated_at": time.time()})
