"""`plan`: what `run` would do and what that costs, as text. Starts nothing, fetches nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis.text import rate_text, study_heading
from sweep.cost import Cost, cost_lines
from sweep.disk import disk_bytes, trained_parameters
from sweep.placement import Placement, described
from sweep.pretraining import UNKNOWN_WEIGHTS, Backbone, to_pretrain
from sweep.reconcile import Reconciled
from sweep.results import Results
from sweep.runs import WantedRun, by_cell
from sweep.standing import State
from sweep.study import Study
from sweep.text import aligned, counted, gigabytes
from trainables.run import ModelSize


def plan_text(
    study: Study,
    backbones: dict[str, Backbone],
    wanted: Sequence[WantedRun],
    reconciled: Reconciled,
    results: Results,
    data_dir: Path,
    cost: Cost,
    elsewhere: bool = False,
    changes: Sequence[str] = (),
) -> str:
    """Return the plan as lines for the terminal; `elsewhere`: without what depends on this machine, disk and costs.

    `changes` are from `sweep.changes`.
    """
    return "\n".join(
        [
            study_heading(study.study, study.title),
            "",
            *_grid_lines(study, wanted),
            "",
            *_cell_lines(wanted, reconciled),
            "",
            *_weights_lines(backbones),
            *_total_lines(study, wanted, reconciled, cost),
            *(f"{'' if place else 'changed':11}{line}" for place, line in enumerate(changes)),
            *([] if elsewhere else [_disk_line(reconciled, to_pretrain(study, backbones), results, cost)]),
            f"data       {data_dir}",
            f"results    {results.location}",
            *([] if elsewhere else ["", *cost_lines(cost)]),
        ]
    )


def _grid_lines(study: Study, wanted: Sequence[WantedRun]) -> list[str]:
    rates = study.learning_rate_grid()
    axes = {
        "task": len(study.tasks),
        "model": len(study.models),
        "variant": len(study.variants),
        "learning rate": len(rates),
        "seed": len(study.seed_list()),
    }
    factors = " x ".join(counted(number, axis) for axis, number in axes.items())
    return [
        f"grid       {factors} = {counted(len(wanted), 'run')}",
        f"rates      {'  '.join(map(rate_text, rates))}",
        f"seeds      {'  '.join(map(str, study.seed_list()))}",
    ]


def _cell_lines(wanted: Sequence[WantedRun], reconciled: Reconciled) -> list[str]:
    rows = [("task", "model", "variant", "runs", "steps", "trained parameters", "done", "to train")]
    left = {run.run_id for run in reconciled.to_train}
    for cell, runs in by_cell(wanted).items():
        done = sum(reconciled.states[run.run_id].over for run in runs)
        trained = trained_parameters(runs[0].run, runs[0].shape)
        todo = sum(run.run_id in left for run in runs)
        rows.append((*cell, str(len(runs)), str(runs[0].num_steps), f"{trained:,}", str(done), str(todo)))
    return aligned(rows, right=range(3, 8))


def _weights_lines(backbones: dict[str, Backbone]) -> list[str]:
    lines = []
    for name, backbone in backbones.items():
        if backbone.source is None:
            continue
        standing = "here" if backbone.here else "not here yet; `run` gets or trains them first"
        lines.append(f"weights    {name}: {backbone.description} ({standing})")
        if backbone.checksum == UNKNOWN_WEIGHTS:
            lines.append("           run ids depend on the weights: those of its pretrained runs are known then")
    return lines


def _total_lines(study: Study, wanted: Sequence[WantedRun], reconciled: Reconciled, cost: Cost) -> list[str]:
    resources = study.resources
    steps = sum(run.num_steps for run in reconciled.to_train)
    return [
        f"runs       {len(wanted)} wanted: {state_counts(reconciled.counts())}",
        f"to train   {counted(len(reconciled.to_train), 'run')} in {counted(cost.num_trials, 'trial')}, "
        f"at most {steps:,} gradient steps",
        f"resources  {resources.cpus_per_trial} CPU and {resources.gpus_per_trial:g} GPU a trial",
    ]


def misfit_line(placement: Placement, machine: Mapping[str, float]) -> str:
    """Return what `run` would refuse of a machine that holds no trial."""
    return (
        f"note       `run` would refuse this: a trial asks for {described(placement.trial)}, and the machine planned "
        f"for has {described(machine)}. Plan for another with --cpus and --gpus, or ask for less with "
        f"--cpus-per-trial and --gpus-per-trial."
    )


def _disk_line(reconciled: Reconciled, models: Sequence[ModelSize], results: Results, cost: Cost) -> str:
    needed, free = disk_bytes(reconciled.to_train, cost.at_once, models), results.free_bytes()
    line = f"disk       about {gigabytes(needed)} for {'weights, ' if models else ''}checkpoints and record"
    if results.uri is not None:  # a store has no end
        return line
    return f"{line}, {gigabytes(free)} free{': not enough' if needed > free else ''}"


def state_counts(counts: Counter[State]) -> str:
    """Return `3 complete, 9 new`."""
    return ", ".join(f"{counts[state]} {state.value}" for state in State if counts[state]) or "none"


def id_lines(wanted: Sequence[WantedRun], reconciled: Reconciled) -> list[str]:
    """Return a line a run with its id and state, for `--ids`."""
    return [
        " ".join((_known_id(run), *run.cell, rate_text(run.run.learning_rate), str(run.run.seed), state.value))
        for run in wanted
        for state in [reconciled.states[run.run_id]]
    ]


def _known_id(run: WantedRun) -> str:
    """Return a run's id; while its weights are not here, it has none yet."""
    return "(no-weights-yet)" if run.run.weights_checksum == UNKNOWN_WEIGHTS else run.run_id
