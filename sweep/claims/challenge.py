"""`challenge`: makes a bundle again from its runs, trains some of these again, and compares the curves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import torch

from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.common.text import Say, without_escapes
from lr_sweep.datasets.files import default_data_dir
from lr_sweep.sweep.plan.placement import Placement, cpus_here, gpus_here
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.state import StudyState
from lr_sweep.sweep.study.backbones import ensure_backbones
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.study import Study
from lr_sweep.sweep.tune.run_study import run_study
from lr_sweep.sweep.tune.work import Options

from .bundle import RULE, bundle_files, check, computed_state
from .listing import LIST, differences, lines_of, read_files, write_files
from .retraining import (
    ALTERED,
    ERROR,
    chance,
    deciding_runs,
    differences_of,
    drawn,
    p_of_gain,
    strata,
)


def challenge(
    bundle: Path,
    num_runs: int,
    seed: int,
    allow: Callable[[], None],
    say: Say,
) -> bool:
    """Challenge a bundle, and return whether its claim holds.

    Args:
        bundle: the folder.
        num_runs: how many runs are trained again.
        seed: draws these.
        allow: raises UserError if the user does not trust the files that were shown.
        say: gets a line about each problem, and one sentence at the end.

    Raises UserError for what cannot be read or trained.
    """
    with scratch_folder("claim-") as scratch:
        again = Results(scratch / "again")
        again.prepare()
        try:
            contents = _listed(bundle, say)
            allow()
            state = _state(contents, again, say)
            computed = bundle_files(state)
            check(differences(contents, computed))
        except RecordError as error:
            say(without_escapes(f"{error}\nThe claim does not hold. Nothing was trained."))
            return False
        holds, text = _trained_again(state, again, num_runs, seed, say)
    say(f"{text}; all numbers of the report follow from the runs.")
    return holds


def _listed(bundle: Path, say: Say) -> dict[str, bytes]:
    """Show a bundle's list, and return its contents; raises RecordError if these are not as listed."""
    content, contents = read_files(bundle)
    lines = content.decode(errors="replace").splitlines()
    for line in lines:
        say(repr(line)[1:-1])
    say(f"sha256 of {LIST}: {sha256(content).hexdigest()}")
    names = {line.partition("  ")[2] for line in {*lines} ^ {*lines_of(contents)}}
    check(f"{name!r} is not as the list has it" for name in sorted(names))
    return contents


def _state(contents: dict[str, bytes], again: Results, say: Say) -> StudyState:
    """Return what a bundle's study wants by its runs; raises RecordError as `computed_state`.

    Weights that the study pretrains are made in `again`.
    """
    folder = again.root.parent
    write_files(folder / "files", contents)
    rule = next((folder / "files" / RULE).iterdir())
    study = load_study(rule / f"{rule.name}.yaml")
    data_dir = default_data_dir()
    study.fetch(data_dir)
    device = torch.device("cuda" if _here(study).resources.gpus_per_trial else "cpu")
    progress = again.pretraining_progress
    backbones = ensure_backbones(study, again.pretrained, progress, device, say, data_dir)
    return computed_state(study, backbones, data_dir, contents, folder)


def _here(study: Study) -> Study:
    """Return a study as it trains here: without stopping runs, and on GPUs if there are some."""
    gpus = min(study.resources.gpus_per_trial, gpus_here())
    return study.with_options(gpus_per_trial=gpus).model_copy(update={"stop_early": None})


def _train(state: StudyState, again: Results, run_ids: Sequence[str], say: Say) -> None:
    """Train runs as `run` does, with the claimed number of CPUs: rounding depends on that of threads."""
    study = _here(state.study)
    resources = study.resources
    cpus = max(cpus_here(), resources.cpus_per_trial * resources.processes_per_run)
    options = Options(
        results=again,
        data_dir=state.data_dir,
        placement=Placement(resources=resources, cpus=cpus, force=True),
        only={"run": frozenset(run_ids)},
    )
    shutil.copytree(state.results.studies, again.studies)
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # the user's server gets no such runs
    if run_study(study, options, say).stopped:
        raise KeyboardInterrupt


def _trained_again(
    state: StudyState, again: Results, num_runs: int, seed: int, say: Say
) -> tuple[bool, str]:
    """Train some runs again, and return whether these are as claimed, with a sentence."""
    name = state.study.study
    claimed = read_summary(state.results.root, name).summary
    runs = {run.run_id: run for run in state.wanted}
    parts = strata(deciding_runs(claimed)["run_id"], runs, num_runs)
    run_ids = drawn(parts, seed)
    _train(state, again, run_ids, say)
    text = f"{len(run_ids)} of {len(runs)} runs trained again (seed {seed}): "
    differing = {
        run_id: difference
        for run_id in run_ids
        for difference in differences_of(runs[run_id], state.results, again)
    }
    if not differing:
        text += f"equal to the bit; if {ALTERED:.0%} of the runs had been altered, "
        return True, f"{text}this would have found it in {chance(parts):.0%} of draws"
    text += f"{len(differing)} are not equal to the bit"
    for run_id, (step, conditions) in differing.items():
        others = ", ".join(conditions) or "none"
        say(f"run {run_id} parts at step {step}; other conditions than here: {others}")
    if not all(conditions for _, conditions in differing.values()):
        return False, f"{text}, and equal bits were to be expected"
    p = p_of_gain(claimed, read_summary(again.root, name).summary)
    is_refuted = p < ERROR
    how = "too good" if is_refuted else "plausible"
    return not is_refuted, f"{text}; the claimed values are {how} for further seeds (p {p:.2g})"
