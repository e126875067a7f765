"""What the tensors of a `model.safetensors` must be like to become a GPT-2's body; reads the file without torch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from trainables.run import ModelSize

EXPONENTS: dict[str, tuple[type[np.unsignedinteger[Any]], int]] = {
    "F32": (np.uint32, 0x7F800000),
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
}
"""Types of numbers that are read -> unsigned integers of their size, and the exponent's bits: all set in NaN, inf."""
PIECE = 1 << 20
"""Numbers looked at in one go."""
MAX_SHOWN = 5
"""Tensors named in a message, of those that share a mistake."""


def body_shapes(size: ModelSize) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a body's tensors, those of `trainables.gpt2.GPT2`."""
    width = size.width
    block = {
        "ln_1.weight": (width,),
        "ln_1.bias": (width,),
        "attn.c_attn.weight": (width, 3 * width),
        "attn.c_attn.bias": (3 * width,),
        "attn.c_proj.weight": (width, width),
        "attn.c_proj.bias": (width,),
        "ln_2.weight": (width,),
        "ln_2.bias": (width,),
        "mlp.c_fc.weight": (width, 4 * width),
        "mlp.c_fc.bias": (4 * width,),
        "mlp.c_proj.weight": (4 * width, width),
        "mlp.c_proj.bias": (width,),
    }
    blocks = {f"h.{layer}.{name}": shape for layer in range(size.layers) for name, shape in block.items()}
    return {"wpe.weight": (size.positions, width), **blocks, "ln_f.weight": (width,), "ln_f.bias": (width,)}


def tensor_mistakes(folder: Path, size: ModelSize) -> list[str]:
    """Return what keeps the tensors of a folder from becoming a model's body: missing, misshapen, not finite.

    An unchanged file is read once a process.
    """
    path = folder / "model.safetensors"
    try:
        status = path.stat()
        return list(_mistakes_at(path, status.st_mtime_ns, status.st_size, size))
    except Exception as error:  # safetensors raises its own type, OSError or ValueError by what is wrong
        return [f"model.safetensors cannot be read as safetensors: {error}"]


@cache
def _mistakes_at(path: Path, mtime_ns: int, num_bytes: int, size: ModelSize) -> tuple[str, ...]:
    tensors, data_at = _tensors(path)
    if "wpe.weight" not in tensors:
        return ("model.safetensors is not of a GPT-2: it has no tensor wpe.weight",)
    wanted = body_shapes(size)
    if other := _other_size(tensors, size):
        return (other,)
    missing = [name for name in wanted if name not in tensors]
    here = [name for name in wanted if name in tensors]
    misshapen = [
        f"{name} has shape {_shape(tensors[name])}, want {wanted[name]}"
        for name in here
        if _shape(tensors[name]) != wanted[name]
    ]
    types = [f"{name} is of {tensors[name]['dtype']}" for name in here if tensors[name]["dtype"] not in EXPONENTS]
    mistakes = [*_listed("lacks", missing), *_listed("", misshapen)]
    mistakes += _listed("", types, f"; want {', '.join(EXPONENTS)}")
    return tuple(mistakes) or tuple(_listed("", _not_finite(path, data_at, {name: tensors[name] for name in here})))


def _tensors(path: Path) -> tuple[dict[str, Any], int]:
    """Return tensors by their names in the body, with `dtype`, `shape` and `data_offsets`, and where data begin."""
    with safe_open(path, framework="numpy"):  # checks the header against the file's size
        pass
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {name.removeprefix("transformer."): tensor for name, tensor in header.items()}, 8 + length


def _other_size(tensors: dict[str, Any], size: ModelSize) -> str | None:
    """Say what size the tensors have if it is another one; which tensors differ would be a long list."""
    positions, width = (*_shape(tensors["wpe.weight"]), 0, 0)[:2]
    layers = len({name.split(".")[1] for name in tensors if name.startswith("h.") and name.endswith(".ln_1.weight")})
    got = {"layers": layers, "width": width, "positions": positions}
    wrong = {name: value for name, value in got.items() if value != getattr(size, name)}
    differences = ", ".join(f"{name}: got {value}, want {getattr(size, name)}" for name, value in wrong.items())
    return f"model.safetensors is of another size: {differences}" if wrong else None


def _not_finite(path: Path, data_at: int, tensors: dict[str, Any]) -> list[str]:
    found = []
    for name, tensor in tensors.items():
        unsigned, exponent = EXPONENTS[tensor["dtype"]]
        begin, end = tensor["data_offsets"]
        if end == begin:
            continue
        shape = ((end - begin) // np.dtype(unsigned).itemsize,)
        numbers = np.memmap(path, unsigned, mode="r", offset=data_at + begin, shape=shape)
        wrong = sum(
            int(np.count_nonzero((numbers[at : at + PIECE] & exponent) == exponent)) for at in range(0, shape[0], PIECE)
        )
        if wrong:
            found.append(f"{name} has {wrong} of {shape[0]} numbers that are NaN or infinite")
    return found


def _shape(tensor: dict[str, Any]) -> tuple[int, ...]:
    return tuple(tensor["shape"])


def _listed(verb: str, mistakes: list[str], wanted: str = "") -> list[str]:
    if not mistakes:
        return []
    more = f" and {len(mistakes) - MAX_SHOWN} more" if len(mistakes) > MAX_SHOWN else ""
    text = f"model.safetensors{f' {verb}' if verb else ':'} {', '.join(mistakes[:MAX_SHOWN])}{more}{wanted}"
    return [text]
