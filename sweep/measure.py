"""`plan --measure`: times a few real steps and evaluations of each cell's stack on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from datasets.task import DataError, TaskData
from sweep.machine_load import Moment, others_share
from sweep.packing import Places
from sweep.placement import Placement
from sweep.results import Results
from sweep.runs import WantedRun
from sweep.text import counted
from sweep.timings import Cell, busy_text, write_measured
from trainables.cohort import device_name, task_data
from trainables.device_memory import share_memory
from trainables.gpt2 import GPT2
from trainables.initialise import load_weights
from trainables.pretrained import find_weights
from trainables.run import ModelSize
from trainables.stacked_memory import largest_stack
from trainables.timing import StackTiming, time_plain, time_stack


def measure_cells(
    groups: Sequence[Sequence[WantedRun]],
    placement: Placement,
    results: Results,
    data_dir: Path,
    say: Callable[[str], None],
) -> None:
    """Time the largest group of every cell and store what was found. Fetches nothing.

    Args:
        groups: what each trial would train.
        placement: what each trial would hold; its device must be here.
        results: where to store; the caller holds the right to write.
        data_dir: where data sets are; cells whose data is not there are reported and left out.
        say: reports each cell.
    """
    largest: dict[Cell, Sequence[WantedRun]] = {}
    for group in sorted(groups, key=len):
        largest[group[0].cell] = group
    for cell, group in largest.items():
        name = " ".join(cell)
        try:
            data = _data(group[0], data_dir, placement.device)
        except DataError as error:
            say(f"{name}: not measured: {error}")
            continue
        together = _together(group, data, placement, results)
        weights = _weights(group[0])
        before = Moment.now()
        try:
            timing = _timed(group[:together], data, weights, placement)
        except (MemoryError, torch.OutOfMemoryError) as error:
            say(f"{name}: not measured: {counted(together, 'run')} together: {error}; fewer with --runs-per-trial")
            continue
        share = others_share(before, Moment.now(), wants_a_cpu=placement.device == "cpu")
        write_measured(results, _entry(group[0], together, timing, placement) | {"others_share": share})
        say(f"{name}: measured, {counted(together, 'run')} together{busy_text(share)}")


def _data(run: WantedRun, data_dir: Path, device: str) -> TaskData:
    options = tuple(sorted(run.run.task_options.items()))
    return task_data(run.run.task, options, run.run.data_checksum, str(data_dir), device)


def _together(group: Sequence[WantedRun], data: TaskData, placement: Placement, results: Results) -> int:
    """Return how many of a group train at once, as `StackedSession` decides it."""
    if placement.resources.engine == "plain":
        return 1
    places = Places(results).of(group)
    if placement.resources.runs_per_trial is not None:
        return places
    memory = share_memory(placement.device, placement.devices_per_trial)
    runs = [each.run for each in group]
    return min(places, largest_stack(runs, data.shape, memory, on_cpu=placement.device == "cpu"))


def _timed(
    runs: Sequence[WantedRun], data: TaskData, weights: dict[str, Tensor] | None, placement: Placement
) -> StackTiming:
    device = torch.device(placement.device)
    if placement.resources.engine == "plain":
        return time_plain(runs[0].run, data, weights, device)
    return time_stack([each.run for each in runs], data, weights, device)


def _weights(run: WantedRun) -> dict[str, Tensor] | None:
    """Return a run's weights, or any where they are not here yet: what is multiplied does not change how long it takes.

    None for random initialisation.
    """
    if run.weights is None:
        return None
    named = run.weights.folder
    missing = named is not None and not (Path(named) / "model.safetensors").is_file()  # `run` trains them first
    folder = None if missing else find_weights(run.weights, download=False)
    return load_weights(folder) if folder is not None else _any_weights(run.run.model)


def _any_weights(size: ModelSize) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.empty_like(tensor).normal_(0, 0.02, generator=generator)
        for name, tensor in GPT2(size).state_dict().items()
    }


def _entry(run: WantedRun, together: int, timing: StackTiming, placement: Placement) -> dict[str, object]:
    return {
        "content": run.run.content(),
        "device": device_name(placement.device),
        "engine": placement.resources.engine,
        "runs_together": together,
        "step_s": list(timing.step_s),
        "evaluation_s": list(timing.evaluation_s),
        "measured_at": time.time(),
    }
