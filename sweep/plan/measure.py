"""`plan --measure`: times a few steps and evaluations of each cell on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lr_sweep.common.text import counted
from lr_sweep.datasets.task import DataError, TaskData
from lr_sweep.sweep.plan.placement import CohortSizes, Group, Placement, largest_groups
from lr_sweep.sweep.plan.timings import keep_measured
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.trainables.models import load_family
from lr_sweep.trainables.models.classifier import load_weights
from lr_sweep.trainables.own.probe import probe
from lr_sweep.trainables.own.run import OwnRun, TrainingFunctionError
from lr_sweep.trainables.pretraining.weights import find_weights
from lr_sweep.trainables.run import Run, engine_of
from lr_sweep.trainables.worker.memory import largest_stack, share_memory
from lr_sweep.trainables.worker.session import device_name, task_data
from lr_sweep.trainables.worker.timing import time_engine


def measure_cells(
    groups: Sequence[Group],
    placement: Placement,
    results: Results,
    data_dir: Path,
    say: Callable[[str], None],
) -> None:
    """Time the largest group of every cell and store what was found; the caller holds the lock of the results.

    Fetches nothing: cells without their data are reported to `say` and left out.
    """
    for cell, group in largest_groups(groups).items():
        name = " ".join(cell)
        try:
            timed = _time(group, placement, results, data_dir)
        except (DataError, TrainingFunctionError, MemoryError, torch.OutOfMemoryError) as error:
            say(f"{name}: not measured: {error}")
            continue
        entry = {
            "content": group[0].run.content(),
            "device": device_name(placement.device),
            "engine": engine_of(group[0].run, placement.resources.engine),
            "runs_together": timed.together,
            "step_s": list(timed.step_s),
            "evaluation_s": list(timed.evaluation_s),
            "measured_at": time.time(),
        }
        keep_measured(results, entry)
        say(f"{name}: measured, {counted(timed.together, 'run')} together{timed.note}")


class _Timed(NamedTuple):
    """What was timed of a cell: seconds for all runs together."""

    together: int
    step_s: tuple[float, ...]
    evaluation_s: tuple[float, ...]
    note: str = ""


def _time(group: Sequence[WantedRun], placement: Placement, results: Results, data_dir: Path) -> _Timed:
    """Time runs of a cell; raises DataError, TrainingFunctionError, or MemoryError or torch's if they do not fit."""
    if isinstance(group[0].run, OwnRun):
        return _time_own(group[0].run, placement)
    runs = [each.run for each in group if isinstance(each.run, Run)]
    data = task_data(runs[0], data_dir, placement.device)
    together = _together(group, data, placement, results)
    engine, device = engine_of(runs[0], placement.resources.engine), torch.device(placement.device)
    try:
        timed = time_engine(runs[:together], data, _weights(group[0], runs[0]), device, plain=engine == "plain")
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise MemoryError(f"{counted(together, 'run')} together: {error}; fewer with --runs-per-trial") from error
    return _Timed(together, *timed)


def _time_own(run: OwnRun, placement: Placement) -> _Timed:
    """Time a run of the user's own function, and say whether it can be repeated and resumed."""
    found = probe(run, placement.device)
    return _Timed(1, found.step_s, found.evaluation_s, note=f"; {found.text()}")


def _together(group: Sequence[WantedRun], data: TaskData, placement: Placement, results: Results) -> int:
    """Return how many of a group train at once, as `Session` decides it."""
    if engine_of(group[0].run, placement.resources.engine) == "plain":
        return 1
    most = CohortSizes(results).of(group)
    if placement.resources.runs_per_trial is not None:
        return most
    memory = share_memory(placement.device, placement.devices_per_trial)
    runs = [each.run for each in group if isinstance(each.run, Run)]
    return min(most, largest_stack(runs, data.shape, memory, on_cpu=placement.device == "cpu"))


def _weights(wanted: WantedRun, run: Run) -> dict[str, Tensor] | None:
    """Return a run's pretrained weights, or random ones where they are not here: a step takes as long with them."""
    if wanted.weights is None:
        return None
    named = wanted.weights.folder
    missing = named is not None and not (Path(named) / "model.safetensors").is_file()  # `run` trains them first
    if not missing and (folder := find_weights(wanted.weights, download=False)):
        return load_weights(folder, run.model.family)
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.empty_like(tensor).normal_(0, 0.02, generator=generator)
        for name, tensor in load_family(run.model.family).build(run.model, 0).state_dict().items()
    }
