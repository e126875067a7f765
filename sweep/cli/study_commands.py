"""Commands that train studies or prepare that. They return exit codes; `sweep.cli.parser` prints their errors.

Modules that take seconds to import (torch, Ray, figures, statistics) are imported by the commands that need them.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.object_store import StoreError
from lr_sweep.common.program import command
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.files import default_data_dir
from lr_sweep.sweep.cli import asking
from lr_sweep.sweep.results.directory import storage_problems
from lr_sweep.sweep.store.results import results_here
from lr_sweep.sweep.study.backbones import find_backbones, hub_sources, pretrain_model, to_pretrain
from lr_sweep.sweep.study.file import listed_studies, load_built_in_study, load_study, shipped_studies
from lr_sweep.sweep.study.model import PretrainedHere
from lr_sweep.sweep.study.only import ALL_RUNS, Only
from lr_sweep.sweep.study.study import Resources, Study
from lr_sweep.trainables.models import MODELS
from lr_sweep.trainables.pretraining.weights import WeightsSource, find_weights

if TYPE_CHECKING:
    from lr_sweep.sweep.plan.plan import Plan

CUT_SHORT = (
    "error: `run` ended without a message. Either it was killed, as the system does when memory runs out (see "
    "`dmesg`), or Ray's library ended it because a part of Ray died (see the newest file in `logs` of the results "
    "directory). What is recorded is intact; the same command resumes."
)
"""Printed when `run` ends without a message."""


_say = partial(print, flush=True)


def plan(chosen: Namespace) -> int:
    """Print what `run` would do, and what it costs."""
    from lr_sweep.sweep.plan.gpus import GPUS
    from lr_sweep.sweep.plan.placement import Placement, devices_here
    from lr_sweep.sweep.plan.plan import Plan, id_lines, plan_on

    gpu = GPUS[chosen.device] if chosen.device else None
    if gpu is not None and chosen.measure:
        raise UserError(f"--measure times this machine, --device computes for {gpu.title}: leave one of them out")
    results, data_dir = results_here(chosen.results, weights=True), data_folder(chosen)
    results.check()
    for loaded in _studies(chosen):
        study = loaded if gpu is None else _on_gpus(loaded)
        placement = Placement(resources=study.resources)
        planned = Plan(study, placement, results, data_dir, chosen.only)
        machine = {"CPU": chosen.cpus or math.inf, "GPU": chosen.gpus or 1}
        if gpu is None:
            count_gpus = chosen.gpus is None and placement.device == "cuda"  # takes seconds where there are GPUs
            machine = devices_here(chosen.cpus, None if count_gpus else chosen.gpus or 0)
        if chosen.measure:
            _measure(planned, placement.trials_at_once([machine]))
        print(plan_on(planned, machine, gpu, chosen.price))
        if chosen.ids:
            print("\n".join(id_lines(planned)))
    return 0


def _on_gpus(study: Study) -> Study:
    """Give each trial a GPU where it has none."""
    if study.resources.gpus_per_trial:
        return study
    return study.model_copy(update={"resources": study.resources.model_copy(update={"gpus_per_trial": 1.0})})


def probe(chosen: Namespace) -> int:
    """Probe the training functions of studies; return how many problems there are."""
    from lr_sweep.sweep.inspection.probe_study import probe_study

    return sum(probe_study(study, data_folder(chosen), _say) for study in _studies(chosen))


def _measure(plan: Plan, at_once: int) -> None:
    """Time the cells of a plan on this machine and keep the timings."""
    from lr_sweep.sweep.plan.measure import measure_cells
    from lr_sweep.sweep.plan.packing import cohorts
    from lr_sweep.sweep.plan.placement import check_beforehand

    check_beforehand(plan.placement, plan.study.for_gpus)
    plan.results.prepare()
    with storage_problems(plan.results.root), plan.results.writing(plan.study.study):
        groups = cohorts(plan.reconciled.to_train, plan.placement.resources, at_once)
        measure_cells(groups, plan.placement, plan.results, plan.data_dir, _say)


def plan_elsewhere(study: Study, location: str, data_dir: Path, only: Only = ALL_RUNS) -> str:
    """Return what `run` would do on other machines, as far as this one knows."""
    from lr_sweep.sweep.plan.cost import estimate_cost
    from lr_sweep.sweep.plan.placement import Placement, devices_here
    from lr_sweep.sweep.plan.plan import Plan, plan_text

    placement = Placement(resources=study.resources)
    try:
        results = results_here(location, weights=True)
    except StoreError as problem:  # the cluster's machines may have credentials that this one lacks
        return f"No plan from here: {problem}"
    results.check()
    planned = Plan(study, placement, results, data_dir, only)
    at_once = placement.trials_at_once([devices_here(None, 0)])  # what the cluster has is unknown here
    cost = estimate_cost(planned.reconciled, {}, placement, at_once, results)
    text = plan_text(planned, cost, elsewhere=True)
    if results.exists() or results.uri is not None:
        return text
    return (
        f"{text}\nThis plan is for an empty results directory: {location} is not on this machine. The job prints what "
        f"is left to train there."
    )


def run(chosen: Namespace) -> int:
    """Train what the record lacks, study by study; explain any end, SIGKILL included."""
    from lr_sweep.sweep.terminal import STOPPED, last_word, lasting_output, signals_as_ctrl_c

    with last_word(CUT_SHORT), lasting_output(), signals_as_ctrl_c():
        try:
            return _train_studies(chosen)
        except KeyboardInterrupt:
            print("stopped; the same command resumes", file=sys.stderr)
            return STOPPED


def _train_studies(chosen: Namespace) -> int:
    from lr_sweep.sweep.plan.placement import Placement
    from lr_sweep.sweep.terminal import STOPPED
    from lr_sweep.sweep.tune.options import Options
    from lr_sweep.sweep.tune.run_study import run_study

    results = results_here(chosen.results)
    where = {"address": chosen.address, "cpus": chosen.cpus, "force": chosen.force, "priority": chosen.priority}
    code = 0
    for study in _studies(chosen):
        options = Options(
            results=results,
            data_dir=data_folder(chosen),
            placement=Placement(resources=study.resources, **where),
            max_attempts=chosen.max_attempts if chosen.retry_failed else 0,
            checkpoint_every_s=chosen.checkpoint_every_s,
            only=chosen.only,
            replace=partial(_may_replace, chosen),
        )
        outcome = run_study(study, options, _say)
        if outcome.report is not None:
            print(f"\n{outcome.report.text}\n\nreport     {outcome.report.page}")
            if results.uri is not None:
                print(f"store      {results.uri}")
            print(f"MLflow     {command('ui', '--results', str(chosen.results))}")
        if outcome.stopped:
            return STOPPED
        if outcome.failed or (chosen.strict and outcome.report is not None and outcome.report.num_problems):
            code = 1
    return code


def _may_replace(chosen: Namespace, line: str) -> bool:
    """Say which recorded runs would no longer be wanted, and ask, unless `--replace` was given."""
    from lr_sweep.sweep.tune.options import ANOTHER_NAME

    if chosen.replace:
        _say(line)
        return True
    again = f"to replace what it wanted, give --replace: `{command(*sys.argv[1:], '--replace')}`"
    return asking.agreed(f"{line}. {ANOTHER_NAME}. Replace what it wanted?", f"{line}. {ANOTHER_NAME}; {again}")


def pretrain(chosen: Namespace) -> int:
    """Train the weights that studies have recipes for."""
    import torch

    from lr_sweep.sweep.plan.cost import check_disk

    results, studies = results_here(chosen.results), [load_built_in_study(name) for name in chosen.studies]
    results.prepare()
    for study in studies:
        with storage_problems(results.root), results.writing(study.study):
            backbones = find_backbones(study, results.pretrained, data_folder(chosen))
            check_disk((), results, to_pretrain(study, backbones))
            for name, backbone in backbones.items():
                if not isinstance(study.bodies[name].pretrained, PretrainedHere):
                    print(f"{name}: nothing to pretrain here; its weights come from {backbone.source}")
                elif backbone.here:
                    print(f"{name}: already there: {backbone.source}")
                else:
                    paths = results.pretrained, results.pretraining_progress
                    model, cpu = study.bodies[name], torch.device("cpu")
                    print(pretrain_model(name, model, *paths, cpu, _say, data_folder(chosen)))
    return 0


def data(chosen: Namespace) -> int:
    """Fetch data sets and weights by name: tasks, known models, or studies."""
    data_dir = data_folder(chosen)
    for name in chosen.names:
        if name in TASKS:
            tasks, weights = {name: TASKS[name].Options()}, {}
        elif known := MODELS.get(name):
            source = WeightsSource(hub=known.hub, revision=known.revision, sha256=known.sha256, family=known.family)
            tasks, weights = {}, {name: source}
        elif name in shipped_studies() or Path(name).suffix in (".yaml", ".yml"):
            study = load_built_in_study(name)
            tasks, weights = {task: wanted.options for task, wanted in study.data_sets.items()}, hub_sources(study)
        else:
            names = [*TASKS, *MODELS]
            listed = [*sorted(names), *listed_studies()]
            raise UserError(unknown("task, model or study", name, [*names, *shipped_studies()], listed))
        for task, options in tasks.items():
            TASKS[task].fetch(options, data_dir)
            _say(f"{task}: verified in {data_dir}")
        for model, source in weights.items():
            _say(f"{model}: verified in {find_weights(source, download=True)}")
    return 0


def data_folder(chosen: Namespace) -> Path:
    """Return the folder of data sets that a command was given, or the default one."""
    try:
        return Path(chosen.data_dir or default_data_dir()).expanduser().resolve()
    except RuntimeError as error:  # `~nouser`, or links that lead to themselves
        raise UserError(f"{chosen.data_dir or '$SWEEP_DATA_DIR'}: {error}: give another --data-dir") from error


def _studies(chosen: Namespace) -> list[Study]:
    """Load all studies before anything is done for the first."""
    return [with_resources(load_study(name), chosen) for name in chosen.studies]


def with_resources(study: Study, chosen: Namespace) -> Study:
    """Replace a study's resources by those given on the command line."""
    names = ("cpus_per_trial", "gpus_per_trial", "runs_per_trial")
    given = {name: value for name in names if (value := getattr(chosen, name, None)) is not None}
    try:
        resources = Resources(**dict(study.resources) | given)
    except ValidationError as error:
        first = error.errors()[0]
        option = "-".join(map(str, first["loc"])).replace("_", "-")
        raise UserError(f"--{option}: {first['msg']}") from error
    return study.model_copy(update={"resources": resources})
