"""`run`: make the record hold what the study wants.

In this order: data, weights, what is missing, trials, record, mirror, report.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from analysis.columns import WANTED
from analysis.record import FORMAT
from analysis.report import write_report
from analysis.run_index import INDEX_FROM
from datasets import TASKS
from sweep.changes import change_lines, code_of_tasks, own_examples, version_now
from sweep.disk import check_disk
from sweep.errors import UserError
from sweep.mirror import Mirror
from sweep.mirror_thread import MirrorThread
from sweep.mlflow_store import MirrorError, tracking_uri
from sweep.options import Options, Outcome
from sweep.packing import Places, cohorts, is_out_of_memory, run_label, trial_name, useful_trials
from sweep.placement import check_beforehand
from sweep.plan import state_counts
from sweep.planned import write_planned
from sweep.pretraining import ensure_backbones, find_backbones, to_pretrain
from sweep.progress import Progress
from sweep.progress_state import Cell
from sweep.ray_session import RayLostError, ray_session
from sweep.reconcile import Reconciled, reconcile
from sweep.recorder import Recorder
from sweep.results import Results, storage_problems, whole_file, write_json, write_parquet
from sweep.runs import WantedRun, wanted_runs
from sweep.sharing import ShareChangedError
from sweep.standing import State
from sweep.study import Study
from sweep.study_file import study_to_yaml
from sweep.terminal import output_to, stop_signals
from sweep.text import counted
from sweep.time_left import RunPace
from sweep.trials import TrialEvents, assignment, train_cohorts
from sweep.tune_thread import run_in_thread
from trainables.cohort import Event

MIRROR_PATIENCE_S = 60.0
"""How long the end of a sweep waits for MLflow; what is not there by then is mirrored by the next `run`."""
IMPATIENCE_S = 5.0
"""The same, of a sweep that was asked to stop."""
MAX_DEATHS = 5
"""Of Ray before any run ends, or of machines under a run between evaluations: then starting again is no help."""
STATUS_EVERY_S = 2.0
"""Between writings of the file that `status` reads."""


def run_study(study: Study, options: Options, say: Callable[[str], None]) -> Outcome:
    """Train what the record lacks and write the report.

    Raises:
        UserError: something that the user can put right; what was recorded before is intact.
        DataError, WeightsError: data or weights are not to be had.
    """
    results = options.results
    check_beforehand(options.placement, study.protocol.precision)
    results.prepare()
    with storage_problems(results.root), results.writing(study.study):
        for name, task in study.tasks.items():
            TASKS[name].fetch(task.options, options.data_dir)
        # The machine that starts a cluster's trials may have no GPU itself.
        device = torch.device(options.placement.device if torch.cuda.is_available() else "cpu")
        _check_disk_first(study, options)
        examples = own_examples(study, options.data_dir)
        wanted = wanted_runs(study, ensure_backbones(study, results, device, say), options.data_dir)
        reconciled = reconcile(wanted, results, max_attempts=options.max_attempts)
        for line in change_lines(study.study, wanted, reconciled, results, examples):
            say(line)
        write_wanted(results, study, wanted)
        results.settle()
        results.write_index()  # the last writer may have died before it did
        say(f"{study.study}: {len(wanted)} runs wanted, {state_counts(reconciled.counts())}")
        timings = write_planned(study.study, wanted, reconciled, options.placement, results)
        sweep = _Sweep(study, options, wanted, reconciled, code_of_tasks(study, examples), say)
        # A step's share of the evaluations is in it.
        sweep.train({cell: RunPace(step_s=timing.step_s.middle, evaluation_s=0.0) for cell, timing in timings.items()})
        report = write_report(results.root, study.study, partial(version_now, examples))
        sweep.finish_mirror(report.folder)
    return Outcome(report=report, trained=len(sweep.ended), failed=len(sweep.failed), stopped=sweep.stopped)


def _check_disk_first(study: Study, options: Options) -> None:
    """Refuse to pretrain for runs that the disk cannot hold; their ids are not known yet, their sizes are.

    Raises:
        UserError, WeightsError: as `check_disk` and `find_backbones`.
    """
    backbones = find_backbones(study, options.results.pretrained)
    if models := to_pretrain(study, backbones):
        wanted = wanted_runs(study, backbones, options.data_dir)
        reconciled = reconcile(wanted, options.results, max_attempts=options.max_attempts)
        check_disk(reconciled.to_train, options.results, models)


def write_wanted(results: Results, study: Study, wanted: Sequence[WantedRun]) -> None:
    """Write down what the study wants, for `status`, `report` and the mirror, and the study with all defaults."""
    folder = results.study(study.study)
    with whole_file(folder / f"{study.study}.yaml") as partial:
        partial.write_text(study_to_yaml(study), encoding="utf-8")
    write_parquet(folder / "wanted.parquet", [run.row() for run in wanted], WANTED)
    write_json(folder / "study.json", {"study": study.study, "title": study.title, "format": FORMAT})


class _Sweep:
    """One `run` from the plan to the mirror."""

    def __init__(
        self,
        study: Study,
        options: Options,
        wanted: Sequence[WantedRun],
        reconciled: Reconciled,
        code: dict[str, dict[str, str]],
        say: Callable[[str], None],
    ) -> None:
        self.study, self.options, self.wanted, self.reconciled, self.say = study, options, wanted, reconciled, say
        self.results, self.code = options.results, code
        self.stopped = False
        # Ids of runs: ended in this sweep; wanted and failed, now or before; training now.
        self.ended: set[str] = set()
        self.failed = {run.run_id for run in wanted if reconciled.states[run.run_id] is State.FAILED}
        self._training: set[str] = set()
        self.places = Places(self.results)
        self._setbacks = 0  # after which runs are left over for another pass
        self._machines_lost: Counter[str] = Counter()  # by run, since its last evaluation
        self._note = say
        self.recorder = Recorder(self.results, wanted, options.placement.devices_per_trial)
        mirror = Mirror(self.results.root, study.study, tracking_uri(self.results.root))
        self.mirror = MirrorThread(mirror, lambda message: self._note(message))
        self.mirror.changed(*(run.run_id for run in wanted if self.results.holds(run.run_id)))

    def train(self, expected: Mapping[Cell, RunPace]) -> None:
        """Train what is to be trained, if anything is; `expected` is the pace of cells that were timed before."""
        if self.reconciled.to_train:
            check_disk(self.reconciled.to_train, self.results)
            self._train(expected)
        elif not self.failed:
            self.say("nothing to train: the record holds everything the study wants")
        if self.stopped:
            self.say("stopped; the same command resumes from here")
        elif self.failed:
            self.say(f"{len(self.failed)} runs failed; `status` says why, `run --retry-failed` trains them again")
            self._say_given_up()

    def _say_given_up(self) -> None:
        given_up = self.failed - {run.run_id for run in self.reconciled.to_train}
        if given_up and self.options.max_attempts:
            self.say(
                f"of those, {len(given_up)} had been started {self.options.max_attempts} times or more and were not "
                f"tried again; once their reason is mended: --max-attempts {2 * self.options.max_attempts}"
            )

    def _train(self, expected: Mapping[Cell, RunPace]) -> None:
        runs = self.reconciled.to_train
        self.results.progress(self.study.study).unlink(missing_ok=True)  # an earlier sweep's
        log_file = self.results.logs / f"run-{time.strftime('%Y%m%d-%H%M%S')}.log"
        self.say(f"training {len(runs)} runs; Ray's log: {log_file}")
        with output_to(log_file) as console:
            labels = {run.run_id: run_label(run) for run in runs}
            done_before = len(self.wanted) - len(runs)
            progress = Progress(len(self.wanted), done_before, labels, console=console, expected=expected)
            self._note = progress.note
            try:
                with (
                    progress as self.progress,
                    stop_signals(self._say_stopping, console.file.fileno()) as self._stop,
                ):
                    self._survive_ray(runs, log_file)
            finally:
                self._note = self.say

    def _survive_ray(self, runs: Sequence[WantedRun], log_file: Path) -> None:
        """Train runs; if Ray dies, start it again, unless it keeps dying before any run ends."""
        deaths_in_a_row = 0
        while True:
            ended_before = len(self.ended)
            try:
                with ray_session(self.options.placement, log_file) as self._share:
                    self.stopped = self._stop.is_set()  # while Ray started
                    return self._train_all(runs)
            except RayLostError as loss:
                if self._stop.is_set():  # a signal to the whole process group ends Ray, too
                    self.stopped = True
                    return
                deaths_in_a_row = 1 if len(self.ended) > ended_before else deaths_in_a_row + 1
                if deaths_in_a_row > MAX_DEATHS:
                    raise UserError(
                        f"{loss}, {deaths_in_a_row} times before any run ended. Is there memory enough? Ray's log: "
                        f"{log_file}. The same command resumes from the runs' checkpoints."
                    ) from loss
                self._interrupt_all()
                self._note(f"{loss}; starting it again, runs resume from their checkpoints")

    def _interrupt_all(self) -> None:
        self.progress.interrupted(self._training)
        self._training.clear()

    def _train_all(self, runs: Sequence[WantedRun]) -> None:
        """Train runs until all have ended: a trial that fails leaves some over, and fewer train together then."""
        left = [run for run in runs if run.run_id not in self.ended]
        while left and not self.stopped:
            before, setbacks_before = len(left), self._setbacks
            try:
                self._train_cohorts(left)
            except ShareChangedError as change:
                self._interrupt_all()
                self._setbacks += 1
                self._note(f"{change}; runs resume from their checkpoints")
            left = [run for run in left if run.run_id not in self.ended]
            assert self.stopped or len(left) < before or self._setbacks > setbacks_before, "every pass gets somewhere"

    def _useful_trials(self) -> int:
        return useful_trials(len(self.reconciled.to_train) - len(self.ended), self.options.placement.resources)

    def _train_cohorts(self, runs: Sequence[WantedRun]) -> None:
        placement, options = self.options.placement, self.options
        groups = cohorts(runs, placement.resources, self._share.take(self._useful_trials()))
        assignments = [
            [
                assignment(
                    *(run, placement, self.results, options.data_dir, options.checkpoint_every_s),
                    code=self.code[run.run.task],
                )
                for run in group
            ]
            for group in groups
        ]
        names, places = [trial_name(group) for group in groups], [self.places.of(group) for group in groups]
        self.progress.packed([[run.run_id for run in group] for group in groups], self._share.at_once)
        events = TrialEvents(
            on_event=self._on_event,
            on_failure=self._on_failure,
            on_interruption=self.progress.interrupted,
            on_machine_lost=self._on_machine_lost,
            on_tick=self._on_tick,
        )
        self._status_at = 0.0
        self.stopped = not run_in_thread(
            lambda stop: train_cohorts(
                assignments, names, places, placement, self.results, events, stop, self._share.at_most
            ),
            self._stop,
        )

    def _say_stopping(self) -> None:
        """Answer the first Ctrl-C or SIGTERM at once: saving waits for the step or evaluation that is under way."""
        what = f"saving {counted(len(self._training), 'run')}" if self._training else "stopping"
        self._note(f"{what}; press Ctrl-C again to leave at once")

    def _on_event(self, event: Event) -> None:
        run_id = event["run_id"]
        if run_id in self.ended:  # its trial started again, for a later run
            return
        self.recorder.event(event)
        if event["kind"] == "started":
            for path in event["damaged"]:
                self._note(f"{path} is damaged (its checksum differs); the run goes on from step {event['step']}")
            self._training.add(run_id)
            self.progress.started(run_id, event["step"])
        for evaluation in event.get("evaluations", []):
            self.progress.evaluation(run_id, evaluation["step"], evaluation["validation_accuracy"])
        if event["kind"] == "progress":
            if event["evaluations"]:
                del self._machines_lost[run_id]
            self.progress.advanced(run_id, event["step"], event["step_s"], event["evaluation_s"])
        if event["kind"] == "finished":
            self._end(run_id, event["status"])
        if event.get("evaluations") or event["kind"] == "finished":
            self.mirror.changed(run_id)

    def _on_failure(self, run_ids: Sequence[str], reason: str) -> None:
        """Record the run that was training as failed; if none was, the trial could not start, so all of its runs.

        Of runs that trained together, which one failed is not known, and for want of memory none did: fewer of them
        train together next.
        """
        left = [run_id for run_id in run_ids if run_id not in self.ended]
        training = [run_id for run_id in left if run_id in self._training]
        if len(training) > 1:
            self._train_fewer_together(training, reason)
            return
        for run_id in training or left:
            self.recorder.failed(run_id, reason)
            self._end(run_id, "failed")
            self.mirror.changed(run_id)

    def _on_machine_lost(self, run_ids: Sequence[str]) -> bool:
        """Overlook it, unless runs keep losing machines and get no further: they may be the cause."""
        self._machines_lost.update(run_ids)
        self._setbacks += 1
        return min(self._machines_lost[run_id] for run_id in run_ids) <= MAX_DEATHS

    def _train_fewer_together(self, run_ids: Sequence[str], reason: str) -> None:
        self.progress.interrupted(run_ids)
        self._training.difference_update(run_ids)
        self._setbacks += 1
        wanted = self.recorder.wanted[run_ids[0]]
        now = self.places.halve(wanted, len(run_ids), remember=is_out_of_memory(reason))
        self._note(
            f"{len(run_ids)} runs that trained together failed ({reason}); "
            f"they go on from their checkpoints, {now} at a time"
        )

    def _end(self, run_id: str, status: str) -> None:
        self.ended.add(run_id)
        if len(self.ended) % INDEX_FROM == 0:
            self.results.write_index()
        self._training.discard(run_id)
        (self.failed.add if status == "failed" else self.failed.discard)(run_id)
        self.progress.finished(run_id, status)

    def _on_tick(self) -> None:
        self.progress.tick()
        self._share.check(self._useful_trials())
        for message in self.results.news():
            self._note(message)
        if time.monotonic() - self._status_at > STATUS_EVERY_S:
            self._status_at = time.monotonic()
            write_json(self.results.progress(self.study.study), self.progress.as_dict() | {"updated_at": time.time()})

    def finish_mirror(self, report: Path) -> None:
        """Give MLflow a moment to hold everything, and say what it lacks."""
        late = self.mirror.close(IMPATIENCE_S if self.stopped else MIRROR_PATIENCE_S)
        if late:
            self.say(f"{len(late)} runs are not in MLflow yet; the next `run` of this study mirrors them")
            return
        try:
            Mirror(self.results.root, self.study.study, tracking_uri(self.results.root)).log_report(report)
        except MirrorError as error:
            self.say(f"the report is not in MLflow: {error}")
