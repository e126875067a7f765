"""`plan`, `run`, `pretrain` and `data`. They import what takes a moment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.program import command as program_command
from lr_sweep.sweep.cli import options as opt
from lr_sweep.sweep.cli import streams
from lr_sweep.sweep.cli.app import command

if TYPE_CHECKING:
    from lr_sweep.sweep.live.beside import Page
    from lr_sweep.sweep.plan.plan import Plan
    from lr_sweep.sweep.results.directory import Results

CUT_SHORT = (
    "error: `run` ended without a message. Either it was killed, as the system does when memory runs out (see "
    "`dmesg`), or Ray's library ended it because a part of Ray died (see the newest file in `logs` of the results "
    "directory). What is recorded is intact; the same command resumes."
)
"""Printed when `run` ends without a message."""

_say = partial(print, flush=True)


@command("rothermel2021-table1 --measure")
def plan(
    studies: opt.Studies,
    results: opt.Results = "results",
    data_dir: opt.DataDir = None,
    cpus_per_trial: opt.CpusPerTrial = None,
    gpus_per_trial: opt.GpusPerTrial = None,
    runs_per_trial: opt.RunsPerTrial = None,
    cpus: Annotated[int | None, opt.number("CPUs to plan for, if not those of this machine")] = None,
    gpus: Annotated[int | None, opt.number("GPUs to plan for, if not those of this machine")] = None,
    price: Annotated[
        float | None,
        opt.option(
            "PER_HOUR", "of an hour of a device: prints what runs cost", partial(opt.above_zero, what="a price")
        ),
    ] = None,
    only: opt.Only = None,
    measure: Annotated[bool, opt.flag("time a few steps of each cell here first, and keep the timings")] = False,
    ids: Annotated[bool, opt.flag("list every run with its id and state")] = False,
    suggest: Annotated[bool, opt.flag("print a grid for each cell, by the laws of recorded studies")] = False,
    json: opt.Json = False,
) -> None:
    """Print the grid, what is done, what `run` would train, what it needs and costs; train nothing."""
    from lr_sweep.sweep.plan.placement import Placement, devices_here
    from lr_sweep.sweep.plan.plan import Plan, cost_on, id_lines, plan_json, plan_on

    if json and (measure or ids or suggest):
        raise UserError("--json goes with none of --measure, --ids and --suggest: leave one of them out")
    plans = []
    resources = {"cpus_per_trial": cpus_per_trial, "gpus_per_trial": gpus_per_trial, "runs_per_trial": runs_per_trial}
    part, recorded = opt.chosen_runs(only), opt.open_results(results, weights=True)
    recorded.check()
    for study in opt.load_studies(studies, **resources):
        placement = Placement(resources=study.resources)
        planned = Plan(study, placement, recorded, opt.data_folder(data_dir), part)
        count_gpus = gpus is None and placement.device == "cuda"  # takes seconds where there are GPUs
        machine = devices_here(cpus, None if count_gpus else gpus or 0)
        if measure:
            _measure(planned, placement.trials_at_once([machine]))
        if json:
            plans.append(plan_json(planned, cost_on(planned, machine, price)))
            continue
        streams.print_facts(plan_on(planned, machine, price))
        if suggest:
            from lr_sweep.sweep.plan.suggest import suggestion_lines  # with pandas, for which no other plan waits

            print("\n".join(["", *suggestion_lines(planned)]))
        if ids:
            print("\n".join(id_lines(planned)))
    if json:
        streams.print_json({"studies": plans})


def _measure(plan: Plan, at_once: int) -> None:
    """Time the cells of a plan on this machine and keep the timings."""
    from lr_sweep.sweep.plan.measure import measure_cells
    from lr_sweep.sweep.plan.packing import cohorts
    from lr_sweep.sweep.plan.placement import check_beforehand
    from lr_sweep.sweep.results.directory import storage_problems

    check_beforehand(plan.placement, plan.study.for_gpus)
    plan.results.prepare()
    with storage_problems(plan.results.root), plan.results.writing(plan.study.study):
        groups = cohorts(plan.reconciled.to_train, plan.placement.resources, at_once)
        measure_cells(groups, plan.placement, plan.results, plan.data_dir, _say)


@command("rothermel2021-table1 --data-dir ~/data --cpus 2")
def run(
    studies: opt.Studies,
    results: opt.Results = "results",
    data_dir: opt.DataDir = None,
    address: Annotated[
        str | None, opt.option("ADDRESS", "a running Ray cluster (`auto`, HOST:PORT); default: start Ray here")
    ] = None,
    cpus: Annotated[int | None, opt.number("CPUs that a Ray started here may use; default: all")] = None,
    force: Annotated[bool, opt.flag("let --cpus be more than this machine has")] = False,
    cpus_per_trial: opt.CpusPerTrial = None,
    gpus_per_trial: opt.GpusPerTrial = None,
    runs_per_trial: opt.RunsPerTrial = None,
    priority: opt.Priority = 1,
    only: opt.Only = None,
    replace: opt.Replace = False,
    retry_failed: opt.RetryFailed = False,
    max_attempts: opt.MaxAttempts = 10,
    checkpoint_every_s: opt.CheckpointEveryS = 60.0,
    strict: opt.Strict = False,
    ui: Annotated[bool, opt.flag("serve the live page beside it, until Ctrl-C, also once the run has ended")] = False,
) -> int:
    """Train what the record lacks of a study, then write its report."""
    from lr_sweep.sweep.plan.placement import Placement
    from lr_sweep.sweep.store.results import PATIENCE_S, results_here
    from lr_sweep.sweep.terminal import STOPPED, last_word, lasting_output, signals_as_ctrl_c
    from lr_sweep.sweep.tune.options import Options
    from lr_sweep.sweep.tune.run_study import run_study

    resources = {"cpus_per_trial": cpus_per_trial, "gpus_per_trial": gpus_per_trial, "runs_per_trial": runs_per_trial}
    with last_word(CUT_SHORT), lasting_output(), signals_as_ctrl_c(), ExitStack() as stack:
        try:
            recorded, part, code = results_here(results, patience_s=PATIENCE_S), opt.chosen_runs(only), 0
            loaded = opt.load_studies(studies, **resources)
            page = stack.enter_context(_page(recorded)) if ui else None
            for study in loaded:
                options = Options(
                    results=recorded,
                    data_dir=opt.data_folder(data_dir),
                    placement=Placement(
                        resources=study.resources, address=address, cpus=cpus, force=force, priority=priority
                    ),
                    max_attempts=max_attempts if retry_failed else 0,
                    checkpoint_every_s=checkpoint_every_s,
                    only=part,
                    replace=partial(_may_replace, replace),
                )
                outcome = run_study(study, options, _say)
                if outcome.report is not None:
                    print(f"\n{outcome.report.text}\n\nreport     {outcome.report.page}")
                    if recorded.uri is not None:
                        print(f"store      {recorded.uri}")
                    print(f"MLflow     {program_command('ui', '--results', results)}")
                if outcome.stopped:
                    return STOPPED
                if outcome.failed or (strict and outcome.report is not None and outcome.report.num_problems):
                    code = 1
            if page is not None:
                _say("the live page stays until Ctrl-C")
                with suppress(KeyboardInterrupt):
                    page.wait()
            return code
        except KeyboardInterrupt:
            print("stopped; the same command resumes", file=sys.stderr)
            return STOPPED


@contextmanager
def _page(results: Results) -> Iterator[Page]:
    """Serve the live page, and say where."""
    from lr_sweep.sweep.live.beside import page_beside

    results.prepare()
    with page_beside(results) as (page, link):
        _say(f"live page  {link}")
        yield page


def _may_replace(replace: bool, line: str) -> bool:
    """Say which recorded runs would no longer be wanted, and ask, unless `--replace` was given."""
    from lr_sweep.sweep.tune.options import ANOTHER_NAME

    if replace:
        _say(line)
        return True
    again = f"to replace what it wanted, give --replace: `{program_command(*sys.argv[1:], '--replace')}`"
    return streams.agreed(f"{line}. {ANOTHER_NAME}. Replace what it wanted?", f"{line}. {ANOTHER_NAME}; {again}")


@command("quickstart")
def pretrain(studies: opt.Studies, results: opt.Results = "results", data_dir: opt.DataDir = None) -> None:
    """Pretrain the weights that a study has a recipe for; train no run."""
    import torch

    from lr_sweep.sweep.plan.cost import check_disk
    from lr_sweep.sweep.results.directory import storage_problems
    from lr_sweep.sweep.study.backbones import find_backbones, pretrain_model, to_pretrain
    from lr_sweep.sweep.study.file import load_built_in_study
    from lr_sweep.sweep.study.model import PretrainedHere

    folder = opt.data_folder(data_dir)
    recorded, loaded = opt.open_results(results), [load_built_in_study(name) for name in studies]
    recorded.prepare()
    for study in loaded:
        with storage_problems(recorded.root), recorded.writing(study.study):
            backbones = find_backbones(study, recorded.pretrained, folder)
            check_disk((), recorded, to_pretrain(study, backbones))
            for name, backbone in backbones.items():
                if not isinstance(study.bodies[name].pretrained, PretrainedHere):
                    print(f"{name}: nothing to pretrain here; its weights come from {backbone.source}")
                elif backbone.here:
                    print(f"{name}: already there: {backbone.source}")
                else:
                    paths = recorded.pretrained, recorded.pretraining_progress
                    print(pretrain_model(name, study.bodies[name], *paths, torch.device("cpu"), _say, folder))


@command("mnist cifar10 gpt2 --data-dir ~/data")
def data(
    names: Annotated[list[str], opt.argument("NAME", "tasks, known models, or studies (all they need)")],
    data_dir: opt.DataDir = None,
) -> None:
    """Fetch and verify data sets and published weights ahead of time."""
    from lr_sweep.datasets import TASKS
    from lr_sweep.sweep.study.backbones import hub_sources
    from lr_sweep.sweep.study.file import listed_studies, load_built_in_study, shipped_studies
    from lr_sweep.trainables.models.known import MODELS
    from lr_sweep.trainables.pretraining.weights import WeightsSource, find_weights

    folder = opt.data_folder(data_dir)
    for name in names:
        if name in TASKS:
            tasks, weights = {name: TASKS[name].Options()}, {}
        elif known := MODELS.get(name):
            source = WeightsSource(hub=known.hub, revision=known.revision, sha256=known.sha256, family=known.family)
            tasks, weights = {}, {name: source}
        elif name in shipped_studies() or Path(name).suffix in (".yaml", ".yml"):
            study = load_built_in_study(name)
            tasks, weights = {task: wanted.options for task, wanted in study.data_sets.items()}, hub_sources(study)
        else:
            valid = [*TASKS, *MODELS]
            listed = [*sorted(valid), *listed_studies()]
            raise UserError(unknown("task, model or study", name, [*valid, *shipped_studies()], listed))
        for task, options in tasks.items():
            TASKS[task].fetch(options, folder)
            _say(f"{task}: verified in {folder}")
        for model, source in weights.items():
            _say(f"{model}: verified in {find_weights(source, download=True)}")
