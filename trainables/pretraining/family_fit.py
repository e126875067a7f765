"""What pretrained weights must hold, so that a body of another family than GPT-2 computes what they were made for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from lr_sweep.trainables.backbones import load_family
from lr_sweep.trainables.pretraining.config import file_mistakes
from lr_sweep.trainables.pretraining.fit import listed, unless_unreadable
from lr_sweep.trainables.run import BodySize

TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
"""Types of numbers that are read, and their names in safetensors."""


def config_mistakes(folder: Path, family: str, size: BodySize | None) -> list[str]:
    """Return what is wrong with the `config.json` of a folder of weights, field by field; None: any size."""
    return file_mistakes(folder, "model_type", partial(load_family(family).config_mistakes, size=size))


def tensor_mistakes(folder: Path, size: BodySize) -> list[str]:
    """Return which tensors of a body are missing, misshapen or not finite; an unchanged file is read once a process."""
    return unless_unreadable(folder, partial(_mistakes_at, size=size))


@cache
def _mistakes_at(path: Path, mtime_ns: int, num_bytes: int, size: BodySize) -> tuple[str, ...]:
    family = load_family(size.family)
    tensors, wanted = family.body_tensors(load_file(path)), body_shapes(size)
    body = {name: tensors[name] for name in wanted if name in tensors}
    types = [f"{name} is of {tensor.dtype}" for name, tensor in body.items() if tensor.dtype not in TYPES]
    mistakes = [
        *listed(" lacks", [name for name in wanted if name not in body]),
        *listed(":", _misshapen(body, wanted)),
        *listed(":", types, f"; want {', '.join(TYPES.values())}"),
    ]
    return tuple(mistakes or listed(":", _not_finite(body)))


def body_shapes(size: BodySize) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the tensors that a body takes from pretrained weights."""
    with torch.device("meta"):
        body = load_family(size.family).build(size, 0)
    return {name: tuple(p.shape) for name, p in body.named_parameters() if name not in body.always_new}


def _misshapen(body: Mapping[str, Tensor], wanted: Mapping[str, tuple[int, ...]]) -> list[str]:
    shapes = {name: tuple(tensor.shape) for name, tensor in body.items()}
    return [f"{name} has shape {shape}, want {wanted[name]}" for name, shape in shapes.items() if shape != wanted[name]]


def _not_finite(body: Mapping[str, Tensor]) -> list[str]:
    wrong = {name: int((~tensor.isfinite()).sum()) for name, tensor in body.items()}
    return [
        f"{name} has {number} of {body[name].numel()} numbers that are NaN or infinite"
        for name, number in wrong.items()
        if number
    ]
