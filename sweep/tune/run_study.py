"""`run`: make the record hold what the study wants: prepare, train, finish."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import Say, counted
from lr_sweep.sweep.mirror.client import tracking_uri
from lr_sweep.sweep.mirror.mirror import Mirror, MirrorThread
from lr_sweep.sweep.plan.cost import check_disk
from lr_sweep.sweep.plan.placement import check_beforehand, idle_gpu
from lr_sweep.sweep.plan.plan import state_counts
from lr_sweep.sweep.results.changes import (
    change_lines,
    inexact_runs,
    own_examples,
    replaced_by,
    restart_cells,
    restart_runs,
    version_now,
)
from lr_sweep.sweep.results.directory import storage_problems
from lr_sweep.sweep.results.recorder import write_started
from lr_sweep.sweep.results.run_state import State, read_ends, run_title
from lr_sweep.sweep.search.state import Reconciled, StudyState
from lr_sweep.sweep.study.backbones import ensure_backbones
from lr_sweep.sweep.study.only import only_text
from lr_sweep.sweep.study.runs import by_cell
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.own.probe import TrialError, tried
from lr_sweep.trainables.own.run import own_run

from .driver import train
from .failures import failure_lines
from .work import Options, Work

MIRROR_PATIENCE_S = 60.0
"""Seconds that the end of a sweep waits for MLflow; the next `run` mirrors what is missing then."""
IMPATIENCE_S = 1.0
"""Seconds that a sweep waits for MLflow after it was asked to stop."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a sweep ended."""

    report: Report | None
    """None: it was asked to stop before any run ended, so there is nothing new to report."""
    trained: int
    failed: int
    """Wanted runs whose last end was a failure, in this sweep or before."""
    stopped: bool


def run_study(study: Study, options: Options, say: Say) -> Outcome:
    """Train what the record lacks and write the report.

    Raises UserError for what the user can put right, DataError or WeightsError for missing data or weights; what was
    recorded before is intact.
    """
    results = options.results
    _check_stops(study, options)
    check_beforehand(options.placement, study.for_gpus)
    for line in idle_gpu(options.placement):
        say(line)
    results.prepare()
    with storage_problems(results.root), results.writing(study.study):
        work = _prepare(study, options, say)
        before, stopped = work.state.reconciled, False
        mirror = MirrorThread(
            Mirror(results.root, study.study, tracking_uri(results.root), results.uri),
            work.news.put,
        )
        mirror.changed(*work.held_ids())
        ended: dict[str, str] = {}
        if before.to_train:
            check_disk(before.to_train, results)
            log_file = results.logs / f"run-{time.strftime('%Y%m%d-%H%M%S')}.log"
            say(f"training {len(before.to_train)} runs; Ray's log: {log_file}")
            ended, stopped = train(work, mirror, log_file)
        return _finish(work, before, ended, mirror, say, stopped=stopped)


def _check_stops(study: Study, options: Options) -> None:
    """Refuse to stop runs early where workers do not see the files that ask them to."""
    if (
        study.stop_early is not None
        and options.results.uri is not None
        and options.placement.address is not None
    ):
        raise UserError(
            f"{study.study}: got `stop_early` on a cluster with results in {options.results.location}, want a disk "
            f"that all machines share for --results; or leave `stop_early` out"
        )


def _prepare(study: Study, options: Options, say: Say) -> Work:
    """Fetch data and weights, write down what the study wants, and find what is left to train of it."""
    results, data_dir = options.results, options.data_dir
    # The machine that starts a cluster's trials may have no GPU itself.
    device = torch.device(options.placement.device if torch.cuda.is_available() else "cpu")
    study.fetch(data_dir)
    examples = own_examples(study, data_dir)
    backbones = ensure_backbones(
        study, results.pretrained, results.pretraining_progress, device, say, data_dir
    )
    state = StudyState(
        study, backbones, results, data_dir, only=options.only, retry_failed=options.retry_failed
    )

    replaced = replaced_by(study, state.wanted, results)
    if replaced.line is not None:
        say(replaced.line)
    if replaced.cells:
        restart_cells(results, study.study, replaced.cells)
        state = state.again(retry_failed=options.retry_failed)
    if options.restart_inexact:
        restarted = inexact_runs(state.reconciled, results)
        restart_runs(results, study.study, restarted)
        say(f"{study.study}: runs that resumed inexactly and train anew: {len(restarted)}")
        state = state.again(retry_failed=options.retry_failed)

    work = Work(state, options, examples)
    wanted, reconciled = work.state.wanted, work.state.reconciled
    for line in change_lines(reconciled, results, examples):
        say(line)
    work.write_down()
    given = {"data_dir": str(data_dir), "cpus": options.placement.cpus, "fresh": options.fresh}
    write_started(results, study, **given)
    say(f"{study.study}: {len(wanted)} runs wanted, {state_counts(reconciled.counts())}")
    command = study.files.command if study.files else None
    if command and not command.resumes and reconciled.counts()[State.STARTED]:
        say(
            f"{study.study}: runs that have started are trained anew, since the command has no {{checkpoint}}"
        )
    if (
        reconciled.to_train and options.placement.address is None
    ):  # a cluster's machines may have what we lack
        _try_function(work, device.type, say)
    return work


def _try_function(work: Work, device: str, say: Say) -> None:
    """Import the user's own function before Ray starts here, and try each cell that begins, or that resumes a run."""
    study, results, reconciled = work.state.study, work.options.results, work.state.reconciled
    if study.files is None or study.files.command:
        return
    begins = not any(results.curve(run_id).exists() for run_id in work.held_ids())
    cells = by_cell(
        wanted
        for wanted in reconciled.to_train
        if begins or reconciled.states[wanted.run_id] is not State.WAITING
    )
    asked = [runs[0] for runs in cells.values()] or [reconciled.to_train[0]]
    runs = [(own_run(wanted.run), wanted.num_steps) for wanted in asked]
    name = f"{study.study}: {study.files.trainable}"
    try:
        probes = tried(runs, device if cells else None)
    except TrialError as error:
        (failed,) = (wanted for wanted in asked if wanted.run is error.run)
        raise UserError(
            f"{name} {error}\nNo run was started; the trial was of {run_title(failed.row())}. "
            f"Correct it, and run this again. `--only` trains other runs without it."
        ) from error
    work.probes.update(zip(cells, probes, strict=False))
    cells_by_text: dict[str, list[str]] = {}
    for cell, probe in work.probes.items():
        if probe.resumed != "exactly":
            cells_by_text.setdefault(probe.text(), []).append(" ".join(cell))
    for text, titles in cells_by_text.items():
        say(f"{name} ({', '.join(titles)}): {text}")


def _finish(
    work: Work,
    before: Reconciled,
    ended: Mapping[str, str],
    mirror: MirrorThread,
    say: Say,
    *,
    stopped: bool,
) -> Outcome:
    """Say which runs did not train to their ends; write the report, unless nothing is new, and mirror it.

    `before`: what the record held when the sweep began; `ended`: the statuses of runs that ended in it, by id.
    """
    failed_before = {run_id for run_id, state in before.states.items() if state is State.FAILED}
    failed = failed_before - ended.keys() | {
        run_id for run_id, status in ended.items() if status == "failed"
    }
    if stopped:
        say("stopped; the same command resumes from here")
    elif failed:
        for line in _failure_lines(work, failed):
            say(line)
    elif not before.to_train:
        asked = (
            f"that --only {only_text(work.options.only)} names"
            if work.options.only
            else "the study wants"
        )
        say(f"nothing to train: the record holds everything {asked}")
    report = None
    if ended or not stopped:
        mirror.close(0)  # which mirrors the rest beside the report, without rests
        report = write_report(
            work.options.results.root, work.state.study.study, partial(version_now, work.examples)
        )
        patience_s = IMPATIENCE_S if stopped else MIRROR_PATIENCE_S
        for line in [*work.take_news(), *mirror.finish(report.folder, patience_s)]:
            say(line)
    return Outcome(report=report, trained=len(ended), failed=len(failed), stopped=stopped)


def _failure_lines(work: Work, failed: set[str]) -> list[str]:
    ends = read_ends(work.options.results, failed, ["failure"])
    runs = [run for run in work.state.wanted if run.run_id in ends]
    reasons = {run_title(run.row()): ends[run.run_id]["failure"] or "" for run in runs}
    number = counted(len(failed), "run")
    advice = f"{number} failed; `status` lists all, `run --retry-failed` trains them again"
    return [advice, *failure_lines(reasons)]
