"""`figure`: what is inside models, each figure with its numbers (Lu et al. 2021, figures 3 to 5 and figure 6).

Shape legend: `N` examples, `H` heads, `T` tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from lr_sweep.analysis.paper.model_figures import attention_figure, deviations_figure
from lr_sweep.analysis.report.figure_frame import save
from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.files import Fields, make_folder, whole_file
from lr_sweep.datasets.task import Split, TaskData
from lr_sweep.sweep.inspection.show import find_run
from lr_sweep.sweep.results import run_state
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import RecordedRun
from lr_sweep.sweep.study.backbones import find_backbone
from lr_sweep.sweep.study.file import load_built_in_study
from lr_sweep.trainables.checkpoint import checkpoints, read_checkpoint
from lr_sweep.trainables.models import size_from
from lr_sweep.trainables.models.classifier import Classifier, build_classifier
from lr_sweep.trainables.models.gpt2 import GPT2, WEIGHT_STD
from lr_sweep.trainables.pretraining.fit import config_mistakes
from lr_sweep.trainables.pretraining.weights import (
    WEIGHTS,
    WeightsError,
    WeightsSource,
    find_weights,
    load_weights,
    weights_checksum,
)
from lr_sweep.trainables.run import PROTOCOL_VERSION, Run, gpt2_size
from lr_sweep.trainables.worker.session import pretrained_tensors, task_data

MOST_BYTES = 4_000_000_000
"""Bytes of the largest array of attention weights: it is held in memory."""
_LAYER = re.compile(r"h\.(\d+)\.((?:attn|mlp)\.\w+)\.(weight|bias)")

Row = Fields


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
        raise UserError(
            f"run {known.run_id} is of the family {run.model.family}; attention is drawn of gpt2 alone"
        )
    if not layer < run.model.layers:
        raise UserError(
            f"--layer: got {layer}, want 0 to {run.model.layers - 1}: the layers of run {known.run_id}"
        )
    rebuilt = rebuild(results, known, run, data_dir)
    split = rebuilt.data.test[:examples]
    most = MOST_BYTES // (4 * gpt2_size(run).heads * rebuilt.data.shape.num_tokens**2)
    if len(split) > most:
        raise UserError(
            f"--examples: got {len(split)}, want at most {most}: more take over {MOST_BYTES / 1e9:g} GB"
        )
    weights = attention_of(rebuilt, split, layer)  # (N, H, T, T)
    arrays: Fields = {
        "attention": weights,
        "inputs": split.inputs.numpy(),
        "labels": split.labels.numpy(),
    }
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
    each = [
        body.attention_weights(model.input_layer(one), layer) for one in tokens.split(1)
    ]  # (1, H, T, T)
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
        raise UserError(
            f"{where}: no attention or feedforward of a GPT-2 among its weights (h.0.attn.c_attn.weight)"
        )
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
    found = [
        (match, tensor) for name, tensor in tensors.items() if (match := _LAYER.fullmatch(name))
    ]
    for match, tensor in sorted(
        found, key=lambda each: (int(each[0][1]), each[0][2], each[0][3] == "bias")
    ):
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
    models = {
        name: each
        for name, each in load_built_in_study(given).bodies.items()
        if each.pretrained is not None
    }
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


def _written(stem: Path, numbers: Sequence[Row] | Fields, figure: Figure) -> list[str]:
    make_folder(stem.parent)
    path = stem.with_name(f"{stem.name}.{'npz' if isinstance(numbers, dict) else 'csv'}")
    if isinstance(numbers, dict):
        with whole_file(path) as partial, partial.open("wb") as file:
            np.savez(file, **numbers)
    else:
        with whole_file(path) as partial:
            pd.DataFrame(numbers).to_csv(partial, index=False)
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
        raise UserError(
            f"run {known.run_id} is {known.status}: want one that has ended; `ls` lists them"
        )
    content: Fields = json.loads(known.row["content"])
    if (version := content.get("protocol_version")) != PROTOCOL_VERSION:
        raise UserError(
            f"run {known.run_id} is of protocol version {version}, this program trains by version {PROTOCOL_VERSION}: "
            f"use the program that trained it"
        )
    if own := content.get("trainable") or content.get("command"):
        raise UserError(
            f"run {known.run_id} is of the user's own code, {own}; want a built-in model"
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
        model = load_built_in_study(results.options(study)).bodies.get(
            (known.labels or {})["model"]
        )
        if model is not None and model.pretrained is not None:
            return find_backbone(model, results.pretrained).source
    raise UserError(
        f"run {known.run_id} started from weights with sha256 {run.weights_checksum}: they are not in "
        f"{results.pretrained}, and no recorded study that wants the run says where they are. Put them into a folder "
        f"there, with their config.json."
    )
