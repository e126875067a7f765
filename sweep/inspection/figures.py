"""`figure`: what is inside models, by the papers' figures, each with the numbers that it shows.

- attention: what a trained GPT-2 attends to (Lu et al. 2021, section 3.5, figures 3 to 5). The run's model is built
  again from its content, the weights it started from and its checkpoint.
- deviations: standard deviations of pretrained weights by layer, beside the default's (Lu et al. 2021, figure 6).
- coordinates: how large activations are by width, over a study's first steps (Yang et al. 2022, section D.1). Where a
  parametrization suits a learning rate to the width, no activation grows with it as it trains.

Shape legend: `N` examples, `H` heads, `T` tokens.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from lr_sweep.analysis.report.figure_frame import save
from lr_sweep.analysis.report.model_figures import attention_figure, coordinates_figure, deviations_figure
from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.files import whole_file, write_rows
from lr_sweep.common.text import counted, rate_text
from lr_sweep.datasets.task import Split, TaskData
from lr_sweep.sweep.inspection.show import find_run
from lr_sweep.sweep.results import run_state
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import RecordedRun
from lr_sweep.sweep.study.backbones import find_backbone
from lr_sweep.sweep.study.file import load_built_in_study
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.checkpoint import checkpoints, read_checkpoint
from lr_sweep.trainables.models import size_from
from lr_sweep.trainables.models.classifier import Classifier, build_classifier, load_weights
from lr_sweep.trainables.models.gpt2 import GPT2, WEIGHT_STD, Block
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.pretraining.fit import config_mistakes
from lr_sweep.trainables.pretraining.weights import WEIGHTS, WeightsError, WeightsSource, find_weights, weights_checksum
from lr_sweep.trainables.run import PROTOCOL_VERSION, Run, gpt2_size
from lr_sweep.trainables.worker.session import pretrained_tensors, task_data

MOST_BYTES = 4_000_000_000
"""Bytes of the largest array of attention weights: it is held in memory."""
GROWS_FROM = 0.25
"""Exponent from which sizes count as growing: half of 0.5, the least of a wrong scale."""
_LAYER = re.compile(r"h\.(\d+)\.((?:attn|mlp)\.\w+)\.(weight|bias)")

Row = dict[str, Any]


def draw_attention(
    given: str, results: Results, data_dir: Path, out: Path, *, examples: int, layer: int
) -> Iterator[str]:
    """Write a layer's attention weights on a run's first test examples as .npz, .png and .svg; yield the paths.

    The array file has `attention` (N, H, T, T) float32, whose row t has what token t attends to and sums to 1, and the
    examples: `inputs`, `labels`, and `lengths` where the task has them. The figure is of the first example.

    Raises:
        UserError: no GPT-2, no such layer, too many examples; and all that `recorded_run` and `rebuild` raise.
    """
    known, run = recorded_run(results, given)
    if run.model.family != "gpt2":
        raise UserError(f"run {known.run_id} is of the family {run.model.family}; attention is drawn of gpt2 alone")
    if not layer < run.model.layers:
        raise UserError(f"--layer: got {layer}, want 0 to {run.model.layers - 1}: the layers of run {known.run_id}")
    rebuilt = rebuild(results, known, run, data_dir)
    split = rebuilt.data.test[:examples]
    most = MOST_BYTES // (4 * gpt2_size(run).heads * rebuilt.data.shape.num_tokens**2)
    if len(split) > most:
        raise UserError(f"--examples: got {len(split)}, want at most {most}: more take over {MOST_BYTES / 1e9:g} GB")
    weights = attention_of(rebuilt, split, layer)  # (N, H, T, T)
    arrays: dict[str, Any] = {"attention": weights, "inputs": split.inputs.numpy(), "labels": split.labels.numpy()}
    arrays |= {} if split.lengths is None else {"lengths": split.lengths.numpy()}
    assert known.labels, "it has ended"
    title = f"Attention in layer {layer}: {run_state.run_title(known.labels)}"
    caption = (
        f"Run {known.run_id} at step {rebuilt.step}, where validation is best; test accuracy there "
        f"{rebuilt.test_accuracy:.1%}. The first test example. Each row shows what a token attends to: itself and "
        f"tokens before it; a row sums to 1. The first panel is the mean over heads."
    )
    stem = out / f"attention-{known.run_id}-layer{layer}"
    yield from _written(stem, arrays, attention_figure(weights[0], title, caption))


@torch.no_grad()
def attention_of(rebuilt: Rebuilt, split: Split, layer: int) -> np.ndarray:
    """Return a layer's weights (N, H, T, T) in evaluation mode and fp32, an example at a time."""
    model, body = rebuilt.model, rebuilt.model.body
    assert isinstance(body, GPT2)
    tokens = rebuilt.data.tokens(split.inputs)
    each = [body.attention_weights(model.input_layer(one), layer) for one in tokens.split(1)]  # (1, H, T, T)
    return torch.cat(each).numpy()


def draw_deviations(given: str, results: Results, out: Path, *, model: str | None) -> Iterator[str]:
    """Write the deviations of a folder of weights, or of a study's model, as .csv, .png and .svg; yield the paths.

    Raises:
        UserError: no such study or model, several of them, or no pretrained GPT-2.
        WeightsError: the weights are missing, damaged, or cannot be read.
    """
    name, where = _weights(given, model, results)
    if mistakes := config_mistakes(where, "gpt2", None):
        raise WeightsError(f"{where}: {'; '.join(mistakes)}")
    rows = list(deviations(load_weights(where)))
    if not rows:
        raise UserError(f"{where}: no attention or feedforward of a GPT-2 among its weights (h.0.attn.c_attn.weight)")
    caption = (
        f"Weights in {where}. Standard deviation of all numbers of a tensor, about their mean. Dashed: the default "
        f"initialisation of GPT-2, {WEIGHT_STD:g} for weights and 0 for biases."
    )
    figure = deviations_figure(rows, f"Pretrained weights of {name}", caption)
    yield from _written(out / f"deviations-{name}", rows, figure)


def deviations(tensors: Mapping[str, torch.Tensor]) -> Iterator[Row]:
    """Yield the standard deviation of each linear layer's weight and bias, by layer, of a GPT-2's body.

    Rows have `layer` (from 0), `tensor` (such as `attn.c_attn`), `kind` (`weight` or `bias`), `standard_deviation` and
    `default`.
    """
    found = [(match, tensor) for name, tensor in tensors.items() if (match := _LAYER.fullmatch(name))]
    for match, tensor in sorted(found, key=lambda each: (int(each[0][1]), each[0][2], each[0][3] == "bias")):
        yield {
            "layer": int(match[1]),
            "tensor": match[2],
            "kind": match[3],
            "standard_deviation": tensor.double().std(correction=0).item(),
            "default": WEIGHT_STD if match[3] == "weight" else 0.0,
        }


def _weights(given: str, model: str | None, results: Results) -> tuple[str, Path]:
    """Return a name for files, and the folder of the weights, which is fetched if it is on the hub."""
    if (path := Path(given).expanduser()).is_dir():
        return path.resolve().name, path
    models = {name: each for name, each in load_built_in_study(given).bodies.items() if each.pretrained is not None}
    if not models:
        raise UserError(f"{given}: none of its models has pretrained weights")
    if model is None and len(models) > 1:
        raise UserError(f"{given}: give --model, one of: {', '.join(models)}")
    model = model or next(iter(models))
    if model not in models:
        raise UserError(f"{given}: --model: {unknown('model', model, models)}")
    folder = find_weights(find_backbone(models[model], results.pretrained).source, download=True)
    assert folder is not None, "find_weights downloads or raises"
    return model, folder


class Group(NamedTuple):
    """Cells of a study that differ in width alone."""

    task: str
    variant: str
    layers: int


def draw_coordinates(given: str, data_dir: Path, out: Path, *, rate: float | None, steps: int) -> Iterator[str]:
    """Write each group's sizes as .csv, .png and .svg; yield the paths, and what its exponents say.

    Raises:
        UserError: no study, none of GPT-2 from random weights in two widths, no learning rate, or sizes that overflow.
        DataError: data are missing.
    """
    study = load_built_in_study(given)
    for group, runs in _groups(study, data_dir, rate).items():
        every = [run.sibling(run.learning_rate, seed) for run in runs for seed in study.seed_list()]
        rows = [row for run in every for row in sizes(run, data_dir, steps)]
        name = f"{study.study}, {group.task}, {group.variant}, {counted(group.layers, 'layer')}"
        used = f"{name}, at {rate_text(runs[0].learning_rate)} after {counted(steps, 'step')}"
        if not np.isfinite([row["size"] for row in rows]).all():
            raise UserError(f"{used}: activations are not finite; give a smaller --rate, or fewer --steps")
        said = f"{used}: {sentence(exponents(rows))}"
        stem = out / f"coordinates-{study.study}-{group.task}-{group.variant}-{group.layers}"
        seeds = counted(len(study.seed_list()), "seed")
        caption = f"{said} Mean absolute values on the first training examples, mean over {seeds}."
        yield from _written(stem, rows, coordinates_figure(rows, "Activations by width", caption))
        yield said


def _groups(study: Study, data_dir: Path, rate: float | None) -> dict[Group, list[Run]]:
    """Return a run of each width, ascending, of each group that has several; at the middle of the study's rates."""
    groups: dict[Group, dict[int, Run]] = defaultdict(dict)
    for cell in study.cell_list():
        size = study.bodies[cell.model].body_size
        if size.family == "gpt2" and not study.starts_from_weights(cell.variant):
            rates = cell.learning_rates if rate is None else (rate,)
            if not rates:
                raise UserError(f"{study.study}: its learning rates are searched for, none is given; want --rate")
            run = study.run(cell, {}, study.examples(cell.task, data_dir), None)
            assert isinstance(run, Run)
            its = groups[Group(cell.task, cell.variant, size.layers)]
            its.setdefault(size.width, run.sibling(rates[len(rates) // 2], 0))
    several = {group: [run for _, run in sorted(its.items())] for group, its in groups.items() if len(its) > 1}
    if not several:
        raise UserError(f"{study.study}: want a GPT-2 that starts at random, in two widths or more with as many layers")
    return several


def sizes(run: Run, data_dir: Path, num_steps: int) -> Iterator[Row]:
    """Yield the mean absolute value after each block and of the output, before the first step and after each.

    In evaluation mode, on the first training examples, as many as a batch has. Rows have `width`, `seed`, `step`,
    `layer` (`block 1`, ..., `output`) and `size`.
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
            training.model(training.data.tokens(batch.inputs))
        where = {"width": run.model.width, "seed": run.seed, "step": step}
        yield from (where | {"layer": name, "size": size} for name, size in found.items())


def exponents(rows: list[Row]) -> dict[str, float]:
    """Return the slope of log mean size after the last step on log width, least squares, of each layer."""
    frame = pd.DataFrame(rows)
    last = frame[frame["step"] == frame["step"].max()]
    means = np.log(last.pivot_table("size", "width", "layer", sort=False))
    slopes = np.polyfit(np.log(means.index), means, 1)[0]
    return dict(zip(means.columns, map(float, slopes), strict=True))


def sentence(found: dict[str, float]) -> str:
    """Return a sentence: which sizes grow with the width, with the exponents."""
    each = ", ".join(f"{layer} width^{exponent:.2f}".replace("-", "−") for layer, exponent in found.items())
    growing = [layer for layer, exponent in found.items() if exponent >= GROWS_FROM]
    which = f"{', '.join(growing)} {'grows' if len(growing) == 1 else 'grow'}" if growing else "nothing grows"
    return f"{which} with the width ({each})."


def _written(stem: Path, numbers: Sequence[Row] | dict[str, Any], figure: Figure) -> list[str]:
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.with_suffix(".npz" if isinstance(numbers, dict) else ".csv")
    if isinstance(numbers, dict):
        with whole_file(path) as partial, partial.open("wb") as file:
            np.savez(file, **numbers)
    else:
        write_rows(path, numbers)
    return [str(path), *map(str, save(figure, stem))]


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """A run as it was at its best validation accuracy, on the CPU."""

    data: TaskData
    model: Classifier
    step: int
    test_accuracy: float
    """Test accuracy at that step, a fraction."""


def recorded_run(results: Results, given: str) -> tuple[RecordedRun, Run]:
    """Find an ended run by its id or the first letters of it; return it and its content.

    Raises:
        UserError: no such run, it has not ended, or it is of another version of the protocol.
        RecordError: damaged files.
    """
    known = find_run(results, given, ["content"])
    if known.row is None:
        raise UserError(f"run {known.run_id} is {known.status}: want one that has ended; `ls` lists them")
    content: dict[str, Any] = json.loads(known.row["content"])
    if (version := content.get("protocol_version")) != PROTOCOL_VERSION:
        raise UserError(
            f"run {known.run_id} is of protocol version {version}, this program trains by version {PROTOCOL_VERSION}: "
            f"use the program that trained it"
        )
    if "trainable" in content:
        raise UserError(
            f"run {known.run_id} is of the user's own function {content['trainable']}; want a built-in model"
        )
    return known, Run.from_content(content, size_from(content["model"]))


def rebuild(results: Results, known: RecordedRun, run: Run, data_dir: Path) -> Rebuilt:
    """Build a run's model with the tensors of its best step.

    Raises:
        UserError: there is no intact checkpoint with an evaluation, or its pretrained weights are not known.
        WeightsError, DataError: weights or data are missing, or not those of the run.
    """
    found = map(read_checkpoint, checkpoints(results.checkpoints(known.run_id)))
    saved = next((each for each in found if each is not None), None)
    if saved is None or saved[1]["best_step"] is None:
        what = "no intact checkpoint" if saved is None else "no evaluation in its checkpoint"
        raise UserError(
            f"run {known.run_id} has {what} in {results.checkpoints(known.run_id)}. `gc` "
            f"removes checkpoints, and merging from a store brings none: train the run again."
        )
    tensors, progress = saved
    source = _weights_of(results, known, run) if run.weights_checksum else None
    data = task_data(run, data_dir, "cpu")
    model = build_classifier(run, data.shape, pretrained_tensors(run, source, None))
    with torch.no_grad():
        for name, parameter in model.trained_parameters():
            parameter.copy_(tensors[f"best.{name}"])
    (best,) = [each for each in progress["curve"] if each["step"] == progress["best_step"]]
    return Rebuilt(data=data, model=model, step=best["step"], test_accuracy=best["test_accuracy"])


def _weights_of(results: Results, known: RecordedRun, run: Run) -> WeightsSource:
    """Return where a run's pretrained weights are: made here, else where a study that wants the run has them."""
    for path in sorted(results.pretrained.glob(f"[!.]*/{WEIGHTS}")):
        if weights_checksum(path.parent) == run.weights_checksum:
            return WeightsSource(folder=str(path.parent))
    for study in known.budgets:
        model = load_built_in_study(results.options(study)).bodies.get((known.labels or {})["model"])
        if model is not None and model.pretrained is not None:
            return find_backbone(model, results.pretrained).source
    raise UserError(
        f"run {known.run_id} started from weights with sha256 {run.weights_checksum}: they are not in "
        f"{results.pretrained}, and no recorded study that wants the run says where they are. Put them into a folder "
        f"there, with their config.json."
    )
