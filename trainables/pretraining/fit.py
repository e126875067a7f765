"""Whether pretrained weights are those of a body: what `config.json` and `model.safetensors` say, by name.

GPT-2's are read without torch, so that a look at a study stays quick; other families' bodies need torch anyway.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from safetensors import safe_open

from lr_sweep.trainables.models import load_family
from lr_sweep.trainables.models.published import gpt2_mistakes, shown
from lr_sweep.trainables.run import BodySize, ModelSize

TYPES = ("F32", "F16", "BF16")
MAX_SHOWN = 5
"""Tensors named in a message, of those that share a mistake."""


@dataclass(frozen=True, kw_only=True)
class _Found:
    dtype: str
    shape: tuple[int, ...]
    num_not_finite: Callable[[], int]


def config_mistakes(folder: Path, family: str, size: BodySize | None) -> list[str]:
    """Return what is wrong with the `config.json` of a `save_pretrained` folder, field by field; None: any size."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ["there is no config.json, which says how many heads there are and what the model computes"]
    except (OSError, ValueError, RecursionError) as error:
        return [f"config.json cannot be read ({error}): put the one there that was saved with the weights"]
    if not isinstance(config, dict):
        return [f"config.json: got {shown(config)}, want an object with model_type and so on"]
    mistakes_of = gpt2_mistakes if family == "gpt2" else load_family(family).config_mistakes
    return [f"config.json: {mistake}" for mistake in mistakes_of(config, size)]


def tensor_mistakes(folder: Path, size: BodySize) -> list[str]:
    """Return which tensors of a body are missing, misshapen or not finite; an unchanged file is read once a process."""
    path = folder / "model.safetensors"
    try:
        status = path.stat()
        return list(_mistakes_at(path, status.st_mtime_ns, status.st_size, size))
    except Exception as error:  # safetensors raises its own type, OSError or ValueError by what is wrong
        return [f"model.safetensors cannot be read as safetensors: {error}"]


@cache
def _mistakes_at(path: Path, mtime_ns: int, num_bytes: int, size: BodySize) -> tuple[str, ...]:
    is_gpt2 = isinstance(size, ModelSize)
    found, wanted = (_gpt2_tensors(path) if is_gpt2 else _read_tensors(path, size.family)), body_shapes(size)
    body = {name: found[name] for name in wanted if name in found}
    shapes = [f"{name} has shape {t.shape}, want {wanted[name]}" for name, t in body.items() if t.shape != wanted[name]]
    types = [f"{name} is of {tensor.dtype}" for name, tensor in body.items() if tensor.dtype not in TYPES]
    mistakes = [
        *_listed(" lacks", [name for name in wanted if name not in body]),
        *_listed(":", shapes),
        *_listed(":", types, f"; want {', '.join(TYPES)}"),
    ]
    return tuple(mistakes or _listed(":", list(_not_finite(body))))


def body_shapes(size: BodySize) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the tensors that a body takes from pretrained weights; GPT-2's without torch."""
    if isinstance(size, ModelSize):
        return _gpt2_shapes(size)
    import torch

    with torch.device("meta"):
        body = load_family(size.family).build(size, 0)
    return {name: tuple(p.shape) for name, p in body.named_parameters() if name not in body.always_new}


def _gpt2_shapes(size: ModelSize) -> dict[str, tuple[int, ...]]:
    width = size.width
    block: dict[str, tuple[int, ...]] = {
        "ln_1": (width,),
        "attn.c_attn": (width, 3 * width),
        "attn.c_proj": (width, width),
        "ln_2": (width,),
        "mlp.c_fc": (width, 4 * width),
        "mlp.c_proj": (4 * width, width),
    }
    layers = {f"h.{layer}.{name}": shape for layer in range(size.layers) for name, shape in block.items()}
    shapes: dict[str, tuple[int, ...]] = {"wpe.weight": (size.positions, width)}
    for name, weight in (layers | {"ln_f": (width,)}).items():
        shapes |= {f"{name}.weight": weight, f"{name}.bias": weight[-1:]}
    return shapes


def _gpt2_tensors(path: Path) -> dict[str, _Found]:
    with safe_open(path, framework="numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - the file is no mapping
        return {
            name.removeprefix("transformer."): _Found(
                dtype=part.get_dtype(),
                shape=tuple(part.get_shape()),
                num_not_finite=partial(_num_not_finite, path, name, part.get_dtype()),
            )
            for name, part in slices.items()
        }


def _read_tensors(path: Path, family: str) -> dict[str, _Found]:
    import torch
    from safetensors.torch import load_file

    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    return {
        name: _Found(
            dtype=names.get(tensor.dtype, str(tensor.dtype)),
            shape=tuple(tensor.shape),
            num_not_finite=lambda tensor=tensor: int((~tensor.isfinite()).sum()),  # type: ignore[misc]
        )
        for name, tensor in load_family(family).body_tensors(load_file(path)).items()
    }


def _not_finite(body: Mapping[str, _Found]) -> Iterator[str]:
    for name, tensor in body.items():
        if wrong := tensor.num_not_finite():
            yield f"{name} has {wrong} of {math.prod(tensor.shape)} numbers that are NaN or infinite"


def _num_not_finite(path: Path, name: str, dtype: str) -> int:
    with safe_open(path, framework="pt" if dtype == "BF16" else "numpy") as file:  # numpy has no bfloat16
        tensor = file.get_tensor(name)
    numbers = tensor.float().numpy() if dtype == "BF16" else tensor
    return int(np.count_nonzero(~np.isfinite(numbers)))


def _listed(verb: str, mistakes: list[str], wanted: str = "") -> list[str]:
    """Return mistakes of tensors as one, a few of them by name; none if there are none."""
    more = f" and {len(mistakes) - MAX_SHOWN} more" if len(mistakes) > MAX_SHOWN else ""
    return [f"model.safetensors{verb} {', '.join(mistakes[:MAX_SHOWN])}{more}{wanted}"] if mistakes else []
