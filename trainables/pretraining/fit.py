"""What `config.json` and `model.safetensors` must hold, so that our GPT-2 computes what the weights were made for.

The tables have every field of transformers' `GPT2Config` that changes hidden states of a body that gets embeddings and
is trained in float32; tests/trainables/test_weights_config.py lists the others and tries each. Needs no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from lr_sweep.trainables.pretraining.config import ConfigFields, file_mistakes, got
from lr_sweep.trainables.run import ModelSize

FAMILY = "gpt2"
"""Of `model_type`. Others have tensors of the same names and compute something else."""

SIZES = {"n_layer": "layers", "n_head": "heads", "n_embd": "width", "n_positions": "positions"}
"""Fields that must be there and agree with the study's model -> their names in `ModelSize`."""

ALIASES = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
}
"""Other names that transformers reads."""

COMPUTED: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "is_causal": (True,),
    "quantization_config": (None,),
    "auto_map": (None,),
}
"""Fields that change the function -> the values that this program computes, first the one that a missing field means.

The activations are one function, the tanh approximation of GELU, written in different ways. `is_causal` is no field of
`GPT2Config`, yet transformers obeys it; `auto_map` names code of the model's own.
"""
FEEDFORWARD = "n_inner"
"""Width of the feedforward; null is 4 x n_embd, the one that this program computes."""
EXPONENTS: dict[str, tuple[type[np.unsignedinteger[Any]], int]] = {
    "F32": (np.uint32, 0x7F800000),
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
}
"""Types of numbers that are read -> unsigned integers of their size, and the exponent's bits: all set in NaN, inf."""
PIECE = 1 << 20
"""Numbers examined at a time."""
MAX_SHOWN = 5
"""Tensors named in a message, of those that share a mistake."""


FIELDS = ConfigFields(model_type=FAMILY, sizes=SIZES, computed=COMPUTED, aliases=ALIASES)


def config_mistakes(folder: Path, size: ModelSize | None) -> list[str]:
    """Return what is wrong with the `config.json` of a `save_pretrained` folder, field by field; None: any size."""
    return file_mistakes(folder, "n_head, n_layer", partial(field_mistakes, size=size))


def field_mistakes(config: Mapping[str, Any], size: ModelSize | None) -> Iterator[str]:
    """Yield what `config.json` says that a GPT-2 of this size does not compute; None: of any size."""
    yield from FIELDS.mistakes(config, size)
    if config.get("model_type") == FAMILY and size and config.get(FEEDFORWARD) not in (None, 4 * size.width):
        yield f"{FEEDFORWARD}: {got(config, FEEDFORWARD)}, want null or {4 * size.width} (4 x n_embd)"


def body_shapes(size: ModelSize) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a body's tensors, those of `trainables.backbones.gpt2.GPT2`."""
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


def tensor_mistakes(folder: Path, size: ModelSize) -> list[str]:
    """Return which tensors of a body are missing, misshapen or not finite; an unchanged file is read once a process."""
    return unless_unreadable(folder, partial(_mistakes_at, size=size))


def unless_unreadable(folder: Path, mistakes_at: Callable[[Path, int, int], Iterable[str]]) -> list[str]:
    """Return what `mistakes_at` finds by path, time of change in ns and size of weights, or why they are unreadable."""
    path = folder / "model.safetensors"
    try:
        status = path.stat()
        return list(mistakes_at(path, status.st_mtime_ns, status.st_size))
    except Exception as error:  # safetensors raises its own type, OSError or ValueError by what is wrong
        return [f"model.safetensors cannot be read as safetensors: {error}"]


@cache
def _mistakes_at(path: Path, mtime_ns: int, num_bytes: int, size: ModelSize) -> tuple[str, ...]:
    tensors, data_at = _tensors(path)
    wanted = body_shapes(size)
    missing = [name for name in wanted if name not in tensors]
    body = {name: tensors[name] for name in wanted if name in tensors}
    shapes = {name: tuple(tensor["shape"]) for name, tensor in body.items()}
    misshapen = [
        f"{name} has shape {shape}, want {wanted[name]}" for name, shape in shapes.items() if shape != wanted[name]
    ]
    types = [f"{name} is of {tensor['dtype']}" for name, tensor in body.items() if tensor["dtype"] not in EXPONENTS]
    mistakes = [
        *listed(" lacks", missing),
        *listed(":", misshapen),
        *listed(":", types, f"; want {', '.join(EXPONENTS)}"),
    ]
    return tuple(mistakes or listed(":", _not_finite(path, data_at, body)))


def _tensors(path: Path) -> tuple[dict[str, Any], int]:
    """Return tensors by their names in the body, with `dtype`, `shape` and `data_offsets`, and where data begin."""
    with safe_open(path, framework="numpy"):  # checks the header against the file's size
        pass
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {name.removeprefix("transformer."): tensor for name, tensor in header.items()}, 8 + length


def _not_finite(path: Path, data_at: int, tensors: dict[str, Any]) -> list[str]:
    found = []
    for name, tensor in tensors.items():
        unsigned, exponent = EXPONENTS[tensor["dtype"]]
        size = math.prod(tensor["shape"])
        numbers = np.memmap(path, unsigned, mode="r", offset=data_at + tensor["data_offsets"][0], shape=(size,))
        pieces = (numbers[start : start + PIECE] for start in range(0, size, PIECE))
        if wrong := sum(int(np.count_nonzero((piece & exponent) == exponent)) for piece in pieces):
            found.append(f"{name} has {wrong} of {size} numbers that are NaN or infinite")
    return found


def listed(verb: str, mistakes: list[str], wanted: str = "") -> list[str]:
    """Return mistakes of tensors as one, a few of them by name; none if there are none."""
    more = f" and {len(mistakes) - MAX_SHOWN} more" if len(mistakes) > MAX_SHOWN else ""
    return [f"model.safetensors{verb} {', '.join(mistakes[:MAX_SHOWN])}{more}{wanted}"] if mistakes else []
