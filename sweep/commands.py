"""What each command does. Returns exit codes; raises errors for `sweep.cli` to print.

What only some commands need and takes seconds to import (torch, Ray, figures, statistics) is imported there.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from analysis.store import StoreError
from datasets import TASKS
from datasets.files import default_data_dir
from sweep.errors import UserError, unknown
from sweep.pretraining import find_backbones, hub_sources, pretrain_model, to_pretrain
from sweep.results import storage_problems
from sweep.stored_results import results_here
from sweep.study import Resources, Study
from sweep.study_file import load_study, shipped_studies
from sweep.study_model import PretrainedHere
from sweep.text import command
from trainables.models import MODELS
from trainables.pretrained import WeightsSource, find_weights

if TYPE_CHECKING:
    from sweep.placement import Placement
    from sweep.reconcile import Reconciled
    from sweep.results import Results

CUT_SHORT = (
    "error: `run` ended before it could say why. It was killed (the system does that when memory runs out: see "
    "`dmesg`), or Ray's library ended it, as it does where a part of Ray dies while it connects: see the newest file "
    "in `logs` of the results directory. Nothing that was recorded is lost; the same command resumes."
)
"""What the user reads when `run` could not say anything itself."""


def plan(chosen: Namespace) -> int:
    """Print what `run` would do, and what it costs."""
    from sweep.changes import change_lines
    from sweep.cost import estimate_cost
    from sweep.placement import Placement, check_precision, devices_here, fits
    from sweep.plan import id_lines, misfit_line, plan_text
    from sweep.reconcile import reconcile
    from sweep.runs import wanted_runs
    from sweep.timings import find_timings

    results, data_dir = results_here(chosen.results, weights=True), _data_dir(chosen)
    results.check()
    for study in [with_resources(study, chosen) for study in _studies(chosen)]:
        placement = Placement(resources=study.resources)
        check_precision(placement, study.protocol.precision)
        backbones = find_backbones(study, results.pretrained)
        wanted = wanted_runs(study, backbones, data_dir)
        reconciled = reconcile(wanted, results)
        asked = chosen.gpus is None and placement.device == "cuda"  # which takes seconds where there are GPUs
        machine = devices_here(chosen.cpus, None if asked else chosen.gpus or 0)
        at_once = placement.trials_at_once([machine])
        if chosen.measure:
            _measure(study, reconciled, placement, at_once, results, data_dir)
        timings = find_timings(wanted, reconciled, results, placement.device, study.resources.engine)
        cost = estimate_cost(reconciled, timings, placement, at_once, results)
        changes = change_lines(study.study, wanted, reconciled, results)
        print(plan_text(study, backbones, wanted, reconciled, results, data_dir, cost, changes=changes))
        if reconciled.to_train and not fits(placement, [machine]):
            print(misfit_line(placement, machine))
        if chosen.ids:
            print("\n".join(id_lines(wanted, reconciled)))
    return 0


def _measure(
    study: Study, reconciled: Reconciled, placement: Placement, at_once: int, results: Results, data_dir: Path
) -> None:
    """Time what is left of a study on this machine and store it."""
    from sweep.measure import measure_cells
    from sweep.packing import cohorts
    from sweep.placement import check_beforehand

    check_beforehand(placement, study.protocol.precision)
    results.prepare()
    with storage_problems(results.root), results.writing(study.study):
        groups = cohorts(reconciled.to_train, placement.resources, at_once)
        measure_cells(groups, placement, results, data_dir, _say)


def plan_elsewhere(study: Study, location: str, data_dir: Path) -> str:
    """Return what `run` would do on other machines, as far as it can be told from this one."""
    from sweep.cost import estimate_cost
    from sweep.placement import Placement, check_precision, devices_here
    from sweep.plan import plan_text
    from sweep.reconcile import reconcile
    from sweep.runs import wanted_runs

    placement = Placement(resources=study.resources)
    check_precision(placement, study.protocol.precision)
    try:
        results = results_here(location, weights=True)
    except StoreError as problem:  # the cluster's machines may have credentials that this one has not
        return f"No plan from here: {problem}"
    results.check()
    backbones = find_backbones(study, results.pretrained)
    wanted = wanted_runs(study, backbones, data_dir)
    reconciled = reconcile(wanted, results)
    at_once = placement.trials_at_once([devices_here(None, 0)])  # what a cluster has is known to `run` alone
    cost = estimate_cost(reconciled, {}, placement, at_once, results)
    text = plan_text(study, backbones, wanted, reconciled, results, data_dir, cost, elsewhere=True)
    if results.exists() or results.uri is not None:
        return text
    return f"{text}\nThat is as if nothing were recorded: {location} is not on this machine. The job says what is left."


def run(chosen: Namespace) -> int:
    """Train what the record lacks, study by study; say so however it ends."""
    from sweep.terminal import STOPPED, last_word, sigterm_as_ctrl_c

    with last_word(CUT_SHORT), sigterm_as_ctrl_c():
        try:
            return _train_studies(chosen)
        except KeyboardInterrupt:
            print("stopped; the same command resumes", file=sys.stderr)
            return STOPPED


def _train_studies(chosen: Namespace) -> int:
    from analysis.findings import problems
    from sweep.options import Options
    from sweep.placement import Placement
    from sweep.run_study import run_study
    from sweep.terminal import STOPPED

    results = results_here(chosen.results)
    code = 0
    for study in [with_resources(study, chosen) for study in _studies(chosen)]:
        options = Options(
            results=results,
            data_dir=_data_dir(chosen),
            placement=Placement(
                resources=study.resources, address=chosen.address, cpus=chosen.cpus, priority=chosen.priority
            ),
            max_attempts=chosen.max_attempts if chosen.retry_failed else 0,
            checkpoint_every_s=chosen.checkpoint_every_s,
        )
        outcome = run_study(study, options, _say)
        print(f"\n{outcome.report.text}\n")
        print(f"report     {outcome.report.page}")
        if results.uri is not None:
            print(f"store      {results.uri}")
        print(f"MLflow     {command('ui', '--results', str(chosen.results))}")
        if outcome.stopped:
            return STOPPED
        if outcome.failed or (chosen.strict and problems(outcome.report.findings)):
            code = 1
    return code


def pretrain(chosen: Namespace) -> int:
    """Train the weights that studies have recipes for."""
    import torch

    from sweep.disk import check_disk

    results, studies = results_here(chosen.results), _studies(chosen)
    results.prepare()
    for study in studies:
        with storage_problems(results.root), results.writing(study.study):
            backbones = find_backbones(study, results.pretrained)
            check_disk((), results, to_pretrain(study, backbones))
            for name, backbone in backbones.items():
                if not isinstance(study.models[name].pretrained, PretrainedHere):
                    print(f"{name}: nothing to pretrain here; its weights come from {backbone.source}")
                elif backbone.here:
                    print(f"{name}: already there: {backbone.source}")
                else:
                    print(pretrain_model(name, study.models[name], results, torch.device("cpu"), _say))
    return 0


def data(chosen: Namespace) -> int:
    """Fetch data sets and weights by name: tasks, known models, or studies."""
    data_dir = _data_dir(chosen)
    for name in chosen.names:
        if name in TASKS:
            _fetch_task(name, TASKS[name].Options(), data_dir)
        elif name in MODELS:
            known = MODELS[name]
            _fetch_weights(name, WeightsSource(hub=known.hub, revision=known.revision, sha256=known.sha256))
        elif name in shipped_studies() or Path(name).suffix in (".yaml", ".yml"):
            study = load_study(name)
            for task, wanted in study.tasks.items():
                _fetch_task(task, wanted.options, data_dir)
            for model, source in hub_sources(study).items():
                _fetch_weights(model, source)
        else:
            raise UserError(unknown("task, model or study", name, [*TASKS, *MODELS, *shipped_studies()]))
    return 0


def ui(chosen: Namespace) -> int:
    """Open the MLflow pages, and Ray's of a cluster."""
    if chosen.cluster is not None:
        from sweep.tunnels import open_tunnels

        if chosen.host != "127.0.0.1":
            raise UserError("--host goes with --results: a cluster's tunnels listen on this machine's loopback address")
        return open_tunnels(chosen.cluster, chosen.port)
    from sweep.ui import open_ui

    return open_ui(results_here(chosen.results).root, chosen.host, chosen.port)


def _fetch_task(name: str, options: object, data_dir: Path) -> None:
    TASKS[name].fetch(options, data_dir)
    _say(f"{name}: verified in {data_dir}")


def _fetch_weights(name: str, source: WeightsSource) -> None:
    _say(f"{name}: verified in {find_weights(source, download=True)}")


def _data_dir(chosen: Namespace) -> Path:
    try:
        return Path(chosen.data_dir or default_data_dir()).expanduser().resolve()
    except RuntimeError as error:  # `~nouser`, or links that lead to themselves
        raise UserError(f"{chosen.data_dir or '$SWEEP_DATA_DIR'}: {error}: give another --data-dir") from error


def _studies(chosen: Namespace) -> list[Study]:
    return [load_study(name) for name in chosen.studies]


def with_resources(study: Study, chosen: Namespace) -> Study:
    """Replace the study's resources by what the command line gives."""
    names = ("cpus_per_trial", "gpus_per_trial", "runs_per_trial")
    given = {name: getattr(chosen, name) for name in names if getattr(chosen, name) is not None}
    try:
        resources = Resources(**dict(study.resources) | given)
    except ValidationError as error:
        first = error.errors()[0]
        option = "-".join(map(str, first["loc"])).replace("_", "-")
        raise UserError(f"--{option}: {first['msg']}") from error
    return study.model_copy(update={"resources": resources})


def _say(message: str) -> None:
    print(message, flush=True)
