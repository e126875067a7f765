"""`run`: make the record hold what the study wants.

In this order: data, weights, the runs that are missing, training, the record, the report, MLflow.
"""

from __future__ import annotations

import queue
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from lr_sweep.analysis.record.columns import WANTED
from lr_sweep.analysis.record.index import write_index
from lr_sweep.analysis.record.read import FORMAT
from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import sealed, sealed_text, write_bytes, write_json
from lr_sweep.common.text import counted
from lr_sweep.sweep.mirror.client import tracking_uri
from lr_sweep.sweep.mirror.mirror import Mirror
from lr_sweep.sweep.mirror.worker import MirrorThread
from lr_sweep.sweep.plan.cost import check_disk
from lr_sweep.sweep.plan.placement import check_beforehand
from lr_sweep.sweep.plan.plan import state_counts
from lr_sweep.sweep.plan.timings import Timing, write_planned
from lr_sweep.sweep.results.changes import change_lines, code_of_tasks, own_examples, version_now
from lr_sweep.sweep.results.directory import Results, storage_problems, write_parquet
from lr_sweep.sweep.results.reconcile import Reconciled, reconcile
from lr_sweep.sweep.results.replaced import renamed_lines, replaced_by, restart_cells
from lr_sweep.sweep.results.run_state import State, read_ends, run_title
from lr_sweep.sweep.search.proposals import read_proposed
from lr_sweep.sweep.search.rounds import Rounds
from lr_sweep.sweep.search.stopping import EarlyStopping
from lr_sweep.sweep.study.backbones import ensure_backbones, find_backbones, to_pretrain
from lr_sweep.sweep.study.file import study_to_yaml
from lr_sweep.sweep.study.only import only_text, select
from lr_sweep.sweep.study.runs import Cell, WantedRun, expected_runs, stopped_rates
from lr_sweep.sweep.study.study import Study
from lr_sweep.sweep.tune.driver import Driver
from lr_sweep.sweep.tune.failures import failure_lines
from lr_sweep.sweep.tune.options import Options
from lr_sweep.sweep.tune.progress import RunPace, StudyProgress
from lr_sweep.sweep.versions import untried_versions
from lr_sweep.trainables.own.code import OwnCodeError, TrainingFunctionError, check_import
from lr_sweep.trainables.own.run import own_run

MIRROR_PATIENCE_S = 60.0
"""How long the end of a sweep waits for MLflow; what is not there by then is mirrored by the next `run`."""
IMPATIENCE_S = 1.0
"""The same, of a sweep that was asked to stop."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a sweep ended."""

    report: Report | None
    """None: it was asked to stop before any run ended, so there is nothing new to report."""
    trained: int
    """Runs that ended in this sweep."""
    failed: int
    """Wanted runs whose last end was a failure, in this sweep or before."""
    stopped: bool
    """Whether it was asked to stop before the end."""


def run_study(study: Study, options: Options, say: Callable[[str], None]) -> Outcome:
    """Train what the record lacks and write the report.

    Raises UserError for what the user can put right, DataError or WeightsError for missing data or weights; what was
    recorded before is intact.
    """
    results = options.results
    check_beforehand(options.placement, study.for_gpus)
    _check_stops(study, options)
    results.prepare()
    for line in untried_versions():
        say(line)
    with storage_problems(results.root), results.writing(study.study):
        shutil.rmtree(results.tune, ignore_errors=True)  # of a process that died
        rounds, examples = _prepare(study, options, say)
        wanted, reconciled = _find_runs(study, options, say, rounds, examples)
        _check_import(study, options, reconciled.to_train)
        stopping = EarlyStopping(study, results, wanted)
        timings = write_planned(study.study, wanted, reconciled, options.placement, results)
        problems: queue.SimpleQueue[str] = queue.SimpleQueue()
        mirror = MirrorThread(_mirror(results, study), problems.put)
        mirror.changed(*(run.run_id for run in wanted if results.holds(run.run_id)))
        ended: dict[str, str] = {}
        stopped = False
        if to_train := reconciled.to_train:
            check_disk(to_train, results)
            log_file = results.logs / f"run-{time.strftime('%Y%m%d-%H%M%S')}.log"
            say(f"training {len(to_train)} runs; Ray's log: {log_file}")
            driver = Driver(
                to_train,
                options,
                code_of_tasks(study, examples),
                progress=StudyProgress(
                    runs=to_train, total_runs=len(select(wanted, options.only)), expected=_paces(timings)
                ),
                mirror=mirror,
                status=results.progress(study.study),
                news=lambda: [*results.news(), *_taken(problems)],
                further=partial(_next_round, study, options, rounds, mirror, problems.put, stopping),
                stopping=stopping,
            )
            ended = driver.train(log_file)
            stopped = driver.num_left > 0 or (driver.stopped and rounds.is_open())
        rounds.show()
        failed = _failed(reconciled, ended)
        for line in _ending_lines(wanted, reconciled, failed, options, stopped=stopped):
            say(line)
        report = None
        if ended or not stopped:
            report = write_report(results.root, study.study, partial(version_now, examples))
            patience_s = IMPATIENCE_S if stopped else MIRROR_PATIENCE_S
            for line in [*_taken(problems), *mirror.finish(report.folder, patience_s)]:
                say(line)
    return Outcome(report=report, trained=len(ended), failed=len(failed), stopped=stopped)


def _check_stops(study: Study, options: Options) -> None:
    """Refuse to stop runs early where workers do not see the files that ask them to."""
    if study.stop_early is not None and options.results.uri is not None and options.placement.address is not None:
        raise UserError(
            f"{study.study}: got `stop_early` on a cluster with results in {options.results.location}, want a disk "
            f"that all machines share for --results; or leave `stop_early` out"
        )


def _check_import(study: Study, options: Options, to_train: Sequence[WantedRun]) -> None:
    """Import the user's own function before Ray starts here; a cluster's machines may have what this one lacks."""
    if study.files is None or not to_train or options.placement.address is not None:
        return
    try:
        check_import(own_run(to_train[0].run))
    except (TrainingFunctionError, OwnCodeError) as error:
        raise UserError(
            f"{study.study}: {study.files.trainable} cannot be imported, so no run was started. Correct it, and run "
            f"this again:\n{error}"
        ) from error


def _prepare(study: Study, options: Options, say: Callable[[str], None]) -> tuple[Rounds, dict[str, str]]:
    """Fetch data and weights; return what gives the study's runs, and versions of examples (`own_examples`)."""
    results = options.results
    study.fetch(options.data_dir)
    # The machine that starts a cluster's trials may have no GPU itself.
    device = torch.device(options.placement.device if torch.cuda.is_available() else "cpu")
    _check_disk_first(study, options)
    examples = own_examples(study, options.data_dir)
    pretraining = results.pretrained, results.pretraining_progress
    backbones = ensure_backbones(study, *pretraining, device, say, options.data_dir)
    return Rounds(study, backbones, results, options.data_dir, options.only), examples


def _find_runs(
    study: Study, options: Options, say: Callable[[str], None], rounds: Rounds, examples: Mapping[str, str]
) -> tuple[list[WantedRun], Reconciled]:
    """Write down what the study wants; return these runs, and what the record holds of them.

    Of a search or a refinement, these are the runs up to the first round in which there is something to train.
    """
    results = options.results
    replaced = replaced_by(study, rounds.wanted(), results)
    if replaced.text is not None and not options.replace(replaced.text):
        raise UserError("nothing was changed")
    restart_cells(results, study.study, replaced.cells)
    while True:
        added = rounds.advance(options.max_attempts)
        wanted = rounds.wanted()
        reconciled = _reconcile(study, wanted, options, max_attempts=options.max_attempts)
        if reconciled.to_train or not added:
            break
    changed = change_lines(study.study, wanted, reconciled, results, examples)
    for line in [*changed, *renamed_lines(study, wanted, results)]:
        say(line)
    write_wanted(results, study, wanted)
    results.settle()
    write_index(results.root)  # the last writer may have died before it did
    say(f"{study.study}: {len(wanted)} runs wanted, {state_counts(reconciled.counts())}")
    return wanted, reconciled


def _next_round(
    study: Study,
    options: Options,
    rounds: Rounds,
    mirror: MirrorThread,
    say: Callable[[str], None],
    stopping: EarlyStopping,
) -> Sequence[WantedRun]:
    """Propose learning rates until there is something to train; return these runs, none at the end of the search."""
    results = options.results
    while added := rounds.advance():
        wanted = rounds.wanted()
        stopping.add(wanted)
        reconciled = _reconcile(study, wanted, options)
        write_wanted(results, study, wanted)
        results.settle()
        rounds.show()
        write_planned(study.study, wanted, reconciled, options.placement, results)
        mirror.changed(*(run.run_id for run in wanted if results.holds(run.run_id)))
        say(f"{study.study}: next round, {counted(added, 'learning rate')} proposed; {len(wanted)} runs wanted so far")
        if reconciled.to_train:
            return reconciled.to_train
    return ()


def _reconcile(study: Study, wanted: Sequence[WantedRun], options: Options, max_attempts: int = 0) -> Reconciled:
    stopped = stopped_rates(study, options.results.root)
    return reconcile(wanted, options.results, max_attempts=max_attempts, only=options.only, stopped=stopped)


def _check_disk_first(study: Study, options: Options) -> None:
    """Refuse to pretrain for runs that the disk cannot hold; their ids are not known yet, their sizes are."""
    backbones = find_backbones(study, options.results.pretrained, options.data_dir)
    if models := to_pretrain(study, backbones):
        proposed = read_proposed(options.results, study)
        wanted = expected_runs(study, backbones, options.data_dir, proposed)
        reconciled = _reconcile(study, wanted, options, max_attempts=options.max_attempts)
        check_disk(reconciled.to_train, options.results, models)


def write_wanted(results: Results, study: Study, wanted: Sequence[WantedRun]) -> None:
    """Write down what the study wants, for `status`, `report` and the mirror, and the study with all defaults."""
    folder = results.study(study.study)
    write_bytes(folder / f"{study.study}.yaml", sealed_text(study_to_yaml(study)))
    write_parquet(folder / "wanted.parquet", [run.row() for run in wanted], WANTED)
    facts = {"study": study.study, "title": study.title, "format": FORMAT} | study.facts()
    write_json(folder / "study.json", sealed(facts))


def _paces(timings: Mapping[Cell, Timing]) -> dict[Cell, RunPace]:
    """Return the paces of cells that were timed; the time of a step includes its share of the evaluations."""
    return {cell: RunPace(step_s=timing.step_s.middle, evaluation_s=0.0) for cell, timing in timings.items()}


def _failed(reconciled: Reconciled, ended: Mapping[str, str]) -> set[str]:
    """Return the ids of wanted runs whose last end was a failure, in this sweep or before."""
    before = {run_id for run_id, state in reconciled.states.items() if state is State.FAILED}
    return (before - ended.keys()) | {run_id for run_id, status in ended.items() if status == "failed"}


def _ending_lines(
    wanted: Sequence[WantedRun], reconciled: Reconciled, failed: set[str], options: Options, *, stopped: bool
) -> list[str]:
    """Return what to print about runs that did not train to their ends."""
    if stopped:
        return ["stopped; the same command resumes from here"]
    if not failed:
        asked = f"that --only {only_text(options.only)} names" if options.only else "the study wants"
        return [] if reconciled.to_train else [f"nothing to train: the record holds everything {asked}"]
    ends = read_ends(options.results, failed, ["failure"])
    reasons = {run_title(run.row()): ends[run.run_id]["failure"] for run in wanted if run.run_id in ends}
    lines = [f"{counted(len(failed), 'run')} failed; `status` lists all, `run --retry-failed` trains them again"]
    lines += failure_lines(reasons)
    given_up = failed - {run.run_id for run in reconciled.to_train}
    if given_up and (max_attempts := options.max_attempts):
        lines.append(
            f"of those, {len(given_up)} were not tried again, since they were started {max_attempts} times or more; "
            f"once the reason is fixed, give --max-attempts {2 * max_attempts}"
        )
    return lines


def _mirror(results: Results, study: Study) -> Mirror:
    return Mirror(results.root, study.study, tracking_uri(results.root))


def _taken(messages: queue.SimpleQueue[str]) -> list[str]:
    return [messages.get() for _ in range(messages.qsize())]
