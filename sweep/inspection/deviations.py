"""`deviations`: standard deviations of pretrained weights by layer, beside the default's (Lu et al. 2021, figure 6)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lr_sweep.analysis.report.figure_frame import save
from lr_sweep.analysis.report.model_figures import deviations_figure
from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.files import write_rows
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.backbones import find_backbone
from lr_sweep.sweep.study.file import load_built_in_study
from lr_sweep.trainables.backbones.gpt2 import WEIGHT_STD
from lr_sweep.trainables.initialise import load_weights
from lr_sweep.trainables.pretraining.fit import config_mistakes
from lr_sweep.trainables.pretraining.weights import WeightsError, find_weights

_LAYER = re.compile(r"h\.(\d+)\.((?:attn|mlp)\.\w+)\.(weight|bias)")

Row = dict[str, Any]
"""`layer` (from 0), `tensor` (such as `attn.c_attn`), `kind` (`weight` or `bias`), `standard_deviation`, `default`."""


def write_deviations(given: str, model: str | None, results: Results, folder: Path) -> list[Path]:
    """Write the deviations of a folder of weights, or of a study's model, as .csv, .png and .svg; return the paths.

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
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"deviations-{name}"
    write_rows(stem.with_suffix(".csv"), rows)
    caption = (
        f"Weights in {where}. Standard deviation of all numbers of a tensor, about their mean. Dashed: the default "
        f"initialisation of GPT-2, {WEIGHT_STD:g} for weights and 0 for biases."
    )
    return [stem.with_suffix(".csv"), *save(deviations_figure(rows, f"Pretrained weights of {name}", caption), stem)]


def deviations(tensors: Mapping[str, Tensor]) -> Iterator[Row]:
    """Yield the standard deviation of each linear layer's weight and bias, by layer, of a GPT-2's body."""
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
