"""The panel "A study" of `--help`: `run`, `plan`, `report`, `status` and `init`; slow imports stay inside."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.files import make_folder, write_bytes
from lr_sweep.common.text import PROGRAM
from lr_sweep.common.text import command as program_command
from lr_sweep.sweep.cli import options as opt

from .app import command

if TYPE_CHECKING:
    from lr_sweep.analysis.study_report import Report

STARTERS = Path(__file__).parents[1] / "starters"


@command("run rothermel2021-table1 --data-dir ~/data --cpus 2")
def run(
    studies: opt.Studies,
    results: opt.Results = "results",
    data_dir: opt.DataDir = None,
    address: Annotated[
        str | None,
        opt.option(
            "ADDRESS",
            "Train on a running Ray cluster (`auto`, HOST:PORT); by default Ray is started here.",
        ),
    ] = None,
    cpus: Annotated[
        int | None, opt.number("CPUs that a Ray started here may use; by default all.")
    ] = None,
    gpus_per_trial: opt.GpusPerTrial = None,
    only: opt.Only = None,
    fresh: opt.Fresh = None,
    retry_failed: opt.RetryFailed = False,
    restart_inexact: opt.RestartInexact = False,
    checkpoint_every_s: opt.CheckpointEveryS = 60.0,
    strict: opt.Strict = False,
) -> int:
    """Train the runs that the record lacks, then write the report; after a crash, the same command resumes."""
    from lr_sweep.sweep.plan.placement import Placement
    from lr_sweep.sweep.store.results import PATIENCE_S, results_here
    from lr_sweep.sweep.terminal import STOPPED, lasting_output, signals_as_ctrl_c
    from lr_sweep.sweep.tune.run_study import run_study
    from lr_sweep.sweep.tune.work import Options
    from lr_sweep.trainables.worker.job_secrets import take_secrets

    with lasting_output(), signals_as_ctrl_c():
        try:
            if address is not None:
                take_secrets()
            recorded, code = results_here(results, patience_s=PATIENCE_S), 0
            for study in opt.load_studies(studies, gpus_per_trial, fresh):
                placement = Placement(resources=study.resources, address=address, cpus=cpus)
                options = Options(
                    results=recorded,
                    data_dir=opt.data_folder(data_dir),
                    placement=placement,
                    retry_failed=retry_failed,
                    restart_inexact=restart_inexact,
                    checkpoint_every_s=checkpoint_every_s,
                    only=only or {},
                    fresh=fresh,
                )
                outcome = run_study(study, options, opt.say)
                if outcome.report is not None:
                    print()
                    _print_report(outcome.report, recorded.uri)
                    print(f"MLflow     {program_command('ui', '--results', results)}")
                    if strict and outcome.report.num_problems:
                        code = 1
                if outcome.stopped:
                    return STOPPED
                if outcome.failed:
                    code = 1
            return code
        except KeyboardInterrupt:
            opt.say("stopped; the same command resumes", file=sys.stderr)
            return STOPPED


def _print_report(report: Report, store: str | None) -> None:
    opt.say(f"{report.text}\n\nreport     {report.page}")
    if store is not None:
        print(f"store      {store}")


@command("plan rothermel2021-table1 --measure")
def plan(
    studies: opt.Studies,
    results: opt.Results = "results",
    data_dir: opt.DataDir = None,
    gpus_per_trial: opt.GpusPerTrial = None,
    cpus: Annotated[
        int | None, opt.number("CPUs to plan for, if not those of this machine.")
    ] = None,
    gpus: Annotated[
        int | None, opt.number("GPUs to plan for, if not those of this machine.")
    ] = None,
    only: opt.Only = None,
    fresh: opt.Fresh = None,
    noise: Annotated[
        float | None,
        opt.option(
            "SD",
            "A run's standard deviation, in points or the metric's unit, in place of recorded ones.",
            float,
        ),
    ] = None,
    measure: Annotated[
        bool, opt.flag("Train each cell without a timing for a few steps here first.")
    ] = False,
    register: opt.NewFolder = None,
    json: opt.Json = False,
) -> None:
    """Show what `run` would train, what it needs and what it costs; start nothing."""
    from lr_sweep.sweep.plan.placement import Placement, devices_here
    from lr_sweep.sweep.plan.plan import Plan, cost_on, plan_json, plan_on
    from lr_sweep.sweep.plan.timings import read_measured

    plans, say = [], partial(opt.say, file=sys.stderr)  # beside the plan, which may be JSON
    recorded = opt.open_results(results, weights=True)
    recorded.check()
    if noise is not None and not 0 < noise < math.inf:
        raise UserError(f"--noise: got {noise:g}, want more than 0")
    try:
        read_measured(recorded)
    except ValueError as error:
        say(f"note: {error}")
    for study in opt.load_studies(studies, gpus_per_trial, fresh):
        placement = Placement(resources=study.resources)
        planned = Plan(study, placement, recorded, opt.data_folder(data_dir), only or {}, noise)
        # GPUs are counted where trials ask for some: it takes seconds.
        num_gpus = gpus if placement.device == "cuda" else gpus or 0
        machine = devices_here(cpus, num_gpus)
        if measure:
            # With torch, for which no other plan waits.
            from lr_sweep.sweep.tune.measure import measure_cells

            measure_cells(planned, cost_on(planned, machine), say)
        if register is not None:
            from lr_sweep.sweep.claims.bundle import rule_files
            from lr_sweep.sweep.claims.listing import write_listed

            say(write_listed(register, rule_files(study)))
        if json:
            plans.append(plan_json(planned, cost_on(planned, machine)))
        else:
            opt.say(plan_on(planned, machine))
    if json:
        opt.print_json({"studies": plans})


@command("report quickstart --strict")
def report(
    studies: opt.Studies,
    results: opt.Results = "results",
    strict: opt.Strict = False,
    latex: opt.Latex = False,
    json: opt.Json = False,
    bundle: opt.NewFolder = None,
) -> int:
    """Write the tables, figures and checks of what is recorded so far."""
    from lr_sweep.analysis.study_report import write_report
    from lr_sweep.common.source_code import version_here
    from lr_sweep.common.working_copy import publish
    from lr_sweep.sweep.results.directory import storage_problems

    recorded, reports = opt.open_results(results), []
    recorded.check()
    for study in opt.study_names(studies, recorded):
        with storage_problems(recorded.root):
            written = write_report(recorded.root, study, version_here, latex=latex)
        store = recorded.uri and publish(recorded.uri, recorded.root, written.folder)
        reports.append(written)
        if json:
            continue
        _print_report(written, store)
        if latex:
            print(f"LaTeX      {written.folder / 'table.tex'}")
    if bundle is not None:
        from lr_sweep.sweep.claims.bundle import write_bundle

        if len(studies) > 1:
            raise UserError(f"--bundle: got {len(studies)} studies, want one")
        folder = Path(studies[0]).absolute().parent
        opt.say(write_bundle(recorded, study, folder, bundle), file=sys.stderr)
    if json:
        opt.print_json({"reports": [report.as_json() for report in reports]})
    num_problems = sum(report.num_problems for report in reports)
    return int(strict and num_problems > 0)


@command("status quickstart")
def status(studies: opt.Studies, results: opt.Results = "results", json: opt.Json = False) -> None:
    """Show how far a study is, while it runs or after a crash."""
    from lr_sweep.sweep.inspection.status import status_json, status_text

    recorded = opt.open_results(results, curves=False)
    recorded.check()
    names = opt.study_names(studies, recorded)
    if json:
        return opt.print_json({"studies": [status_json(recorded, study) for study in names]})
    for study in names:
        opt.say(status_text(recorded, study))


@command("init my-sweep --kind lightning")
def init(
    folder: Annotated[
        Path, opt.argument("FOLDER", "The folder where the files go.", opt.local_path)
    ] = Path(),
    kind: Annotated[
        str,
        opt.option(
            "KIND",
            "torch (a plain loop), hf-trainer, lightning, or command (a script that a study's command starts).",
        ),
    ] = "torch",
) -> None:
    """Write a study and the code that it trains; both run as they are."""
    kinds = [path.name for path in STARTERS.iterdir()]
    if kind not in kinds:
        raise UserError(f"--kind: {unknown('kind', kind, kinds)}")
    files = {folder / path.name: path for path in sorted((STARTERS / kind).glob("*.*"))}
    if taken := [str(path) for path in files if path.exists()]:
        raise UserError(
            f"nothing was written: {', '.join(taken)} would be replaced. Name another folder."
        )
    make_folder(folder)
    for path, source in files.items():
        write_bytes(path, source.read_bytes())
        print(f"wrote {path}")
    study = folder / "mine.yaml"
    print(f"next:\n  {PROGRAM} plan {study}\n  {PROGRAM} run {study}")
