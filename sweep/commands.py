"""What each command does. Returns exit codes; raises errors for `sweep.cli` to print."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import torch
from pydantic import ValidationError

from analysis.report import write_report
from datasets import TASKS
from sweep.errors import UserError, unknown
from sweep.plan import plan_text
from sweep.pretraining import find_backbones, pretrain_model
from sweep.reconcile import reconcile
from sweep.results import Results
from sweep.run_study import Options, run_study
from sweep.runs import wanted_runs
from sweep.status import status_text
from sweep.study import Resources, Study
from sweep.study_file import load_study, shipped_studies
from sweep.study_model import PretrainedHere
from sweep.trials import Placement
from sweep.ui import open_ui
from trainables.models import MODELS
from trainables.pretrained import WeightsSource, find_weights


def plan(chosen: Namespace) -> int:
    """Print what `run` would do."""
    results = Results(chosen.results)
    results.check()
    for study in _studies(chosen):
        study = _with_resources(study, chosen)
        backbones = find_backbones(study, results.pretrained)
        wanted = wanted_runs(study, backbones, chosen.data_dir)
        reconciled = reconcile(wanted, results)
        print(plan_text(study, backbones, wanted, reconciled, results, chosen.data_dir))
        if chosen.ids:
            for run in wanted:
                state = reconciled.states[run.run_id].value
                print(run.run_id, *run.cell, f"{run.run.learning_rate:g}", run.run.seed, state)
    return 0


def run(chosen: Namespace) -> int:
    """Train what the record lacks, study by study."""
    results = Results(chosen.results)
    code = 0
    for study in _studies(chosen):
        study = _with_resources(study, chosen)
        placement = Placement(resources=study.resources, address=chosen.address, cpus=chosen.cpus)
        options = Options(
            results=results,
            data_dir=chosen.data_dir.expanduser().resolve(),
            placement=placement,
            retry_failed=chosen.retry_failed,
            checkpoint_every_s=chosen.checkpoint_every_s,
        )
        outcome = run_study(study, options, _say)
        print(f"\n{outcome.report.text}\n")
        print(f"report     {outcome.report.folder / 'report.md'}")
        print(f"MLflow     python -m sweep ui --results {chosen.results}")
        if outcome.stopped:
            return 130
        code = 1 if outcome.failed else code
    return code


def status(chosen: Namespace) -> int:
    """Print how far studies are."""
    results = Results(chosen.results)
    results.check()
    for study in _studies(chosen):
        print(status_text(results, study.study))
    return 0


def report(chosen: Namespace) -> int:
    """Write reports of what the record holds."""
    results = Results(chosen.results)
    results.check()
    for study in _studies(chosen):
        written = write_report(results.root, study.study)
        print(f"{written.text}\n\nreport     {written.folder / 'report.md'}")
    return 0


def pretrain(chosen: Namespace) -> int:
    """Train the weights that studies have recipes for."""
    results = Results(chosen.results)
    results.prepare()
    for study in _studies(chosen):
        with results.writing(study.study):
            for name, backbone in find_backbones(study, results.pretrained).items():
                if not isinstance(study.models[name].pretrained, PretrainedHere):
                    print(f"{name}: nothing to pretrain here; its weights come from {backbone.source}")
                elif backbone.here:
                    print(f"{name}: already there: {backbone.source}")
                else:
                    print(pretrain_model(name, study.models[name], results.pretrained, torch.device("cpu"), _say))
    return 0


def data(chosen: Namespace) -> int:
    """Fetch data sets and weights by name: tasks, known models, or studies."""
    for name in chosen.names:
        if name in TASKS:
            _fetch_task(name, TASKS[name].Options(), chosen.data_dir)
        elif name in MODELS:
            known = MODELS[name]
            source = WeightsSource(hub=known.hub, revision=known.revision, sha256=known.sha256)
            _say(f"{name}: verified in {find_weights(source, download=True)}")
        elif name in shipped_studies() or name.endswith(".yaml"):
            for task, wanted in load_study(name).tasks.items():
                _fetch_task(task, wanted.options, chosen.data_dir)
        else:
            raise UserError(unknown("task, model or study", name, [*TASKS, *MODELS, *shipped_studies()]))
    return 0


def ui(chosen: Namespace) -> int:
    """Open the MLflow pages."""
    return open_ui(Results(chosen.results).root, chosen.host, chosen.port)


def _fetch_task(name: str, options: object, data_dir: Path) -> None:
    TASKS[name].fetch(options, data_dir.expanduser().resolve())
    _say(f"{name}: verified in {data_dir}")


def _studies(chosen: Namespace) -> list[Study]:
    return [load_study(name) for name in chosen.studies]


def _with_resources(study: Study, chosen: Namespace) -> Study:
    """Replace the study's resources by what the command line gives."""
    names = ("cpus_per_trial", "gpus_per_trial", "runs_per_trial")
    given = {name: getattr(chosen, name) for name in names if getattr(chosen, name) is not None}
    try:
        resources = Resources(**dict(study.resources) | given)
    except ValidationError as error:
        raise UserError(f"--{'-'.join(map(str, error.errors()[0]['loc']))}: {error.errors()[0]['msg']}") from error
    return study.model_copy(update={"resources": resources})


def _say(message: str) -> None:
    print(message, flush=True)
