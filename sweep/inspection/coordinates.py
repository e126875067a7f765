"""`coordinates`: how large activations are by width, over a study's first steps (Yang et al. 2022, section D.1).

Where a parametrization suits a learning rate to the width, no activation grows with it as it trains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from lr_sweep.analysis.report.figure_frame import save
from lr_sweep.analysis.report.model_figures import coordinates_figure
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_rows
from lr_sweep.common.text import counted, rate_text
from lr_sweep.sweep.study.file import load_built_in_study
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.backbones.gpt2 import Block
from lr_sweep.trainables.plain import Training
from lr_sweep.trainables.run import Run
from lr_sweep.trainables.session import task_data

GROWS_FROM = 0.25
"""Exponent from which sizes are said to grow: halfway to 0.5, the least by which a wrong scale grows with the width."""

Row = dict[str, Any]
"""`width`, `seed`, `step`, `layer` (`block 1`, ..., `output`), `size`: the mean of absolute values."""


class Group(NamedTuple):
    """Cells of a study that differ in width alone."""

    task: str
    variant: str
    layers: int


def write_coordinates(
    given: str, data_dir: Path, folder: Path, *, rate: float | None, num_steps: int
) -> Iterator[tuple[list[Path], str]]:
    """Write each group's sizes as .csv, .png and .svg; yield the paths, and what its exponents say.

    Raises:
        UserError: no study, none of GPT-2 from random weights in two widths, no learning rate, or sizes that overflow.
        DataError: data are missing.
    """
    study = load_built_in_study(given)
    folder.mkdir(parents=True, exist_ok=True)
    for group, runs in _groups(study, given, data_dir, rate).items():
        every = [run.sibling(run.learning_rate, seed) for run in runs for seed in study.seed_list()]
        rows = [row for run in every for row in sizes(run, data_dir, num_steps)]
        name = f"{study.study}, {group.task}, {group.variant}, {counted(group.layers, 'layer')}"
        used = f"{name}, at {rate_text(runs[0].learning_rate)} after {counted(num_steps, 'step')}"
        if not np.isfinite([row["size"] for row in rows]).all():
            raise UserError(f"{used}: activations are not finite; give a smaller --rate, or fewer --steps")
        said = f"{used}: {sentence(exponents(rows))}"
        stem = folder / f"coordinates-{study.study}-{group.task}-{group.variant}-{group.layers}"
        write_rows(stem.with_suffix(".csv"), rows)
        seeds = counted(len(study.seed_list()), "seed")
        caption = f"{said} Mean absolute values on the first training examples, mean over {seeds}."
        yield [stem.with_suffix(".csv"), *save(coordinates_figure(rows, "Activations by width", caption), stem)], said


def _groups(study: Study, given: str, data_dir: Path, rate: float | None) -> dict[Group, list[Run]]:
    """Return a run of each width, ascending, of each group that has several; at the middle of the study's rates."""
    groups: dict[Group, dict[int, Run]] = defaultdict(dict)
    for cell in study.cell_list():
        size = study.bodies[cell.model].body_size
        if size.family == "gpt2" and not study.starts_from_weights(cell.variant):
            rates = cell.learning_rates if rate is None else (rate,)
            if not rates:
                raise UserError(f"{given}: its learning rates are searched for, none is given; want --rate")
            run = study.run(cell, {}, study.examples(cell.task, data_dir), None)
            assert isinstance(run, Run)
            its = groups[Group(cell.task, cell.variant, size.layers)]
            its.setdefault(size.width, run.sibling(rates[len(rates) // 2], 0))
    several = {group: [run for _, run in sorted(its.items())] for group, its in groups.items() if len(its) > 1}
    if not several:
        raise UserError(f"{given}: want a GPT-2 that starts at random, in two widths or more with as many layers")
    return several


def sizes(run: Run, data_dir: Path, num_steps: int) -> Iterator[Row]:
    """Yield the mean absolute value after each block and of the output, before the first step and after each.

    In evaluation mode, on the first training examples, as many as a batch has.
    """
    data = task_data(run, data_dir, "cpu")
    training = Training(run, data, None, torch.device("cpu"))
    batch, found = training.data.train[: run.protocol.batch_size], dict[str, float]()
    blocks = [module for module in training.model.modules() if isinstance(module, Block)]
    layers = {f"block {number}": block for number, block in enumerate(blocks, 1)}
    for name, layer in (layers | {"output": training.model.output_layer}).items():
        layer.register_forward_hook(lambda _, __, out, name=name: found.update({name: out.abs().mean().item()}))
    for step in range(num_steps + 1):
        if step:
            training.train_chunk(1)
        with torch.no_grad():
            training.model(training.data.tokens(batch.inputs), batch.lengths)
        where = {"width": run.model.width, "seed": run.seed, "step": step}
        yield from (where | {"layer": name, "size": size} for name, size in found.items())


def exponents(rows: list[Row]) -> dict[str, float]:
    """Return the slope of log mean size after the last step on log width, least squares, of each layer."""
    last = max(row["step"] for row in rows)
    means: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["step"] == last:
            means[row["layer"]][row["width"]].append(row["size"])
    return {
        layer: float(np.polyfit(np.log(list(by_width)), np.log([np.mean(x) for x in by_width.values()]), 1)[0])
        for layer, by_width in means.items()
    }


def sentence(found: dict[str, float]) -> str:
    """Say whether any size grows with the width, with the exponents."""
    each = ", ".join(f"{layer} width^{exponent:.2f}".replace("-", "−") for layer, exponent in found.items())
    growing = [layer for layer, exponent in found.items() if exponent >= GROWS_FROM]
    which = f"{', '.join(growing)} {'grows' if len(growing) == 1 else 'grow'}" if growing else "nothing grows"
    return f"{which} with the width ({each})."
