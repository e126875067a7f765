"""State of a training function <-> tensors by name, and plain JSON values that refer to them. No pickle."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

MAPPINGS: dict[str, Callable[[dict[Any, Any]], dict[Any, Any]]] = {
    "dict": dict,
    "ordered": OrderedDict,
    "counter": Counter,
}
SEQUENCES: dict[str, Callable[[Iterable[Any]], Any]] = {"list": list, "tuple": tuple}
TENSORS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda tensor: tensor,
    "array": lambda tensor: tensor.numpy(),
    "number": lambda tensor: tensor.numpy()[()],
}
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
)
"""Of tensors that are saved: those of safetensors."""


class StateError(Exception):
    """A value of a state cannot be saved without pickle."""


class Encoder:
    """Turns values into JSON, and collects their tensors.

    A tensor that two values share, such as tied weights, is saved once; of views of the same memory, each is copied.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def encode(self, value: Any, path: str) -> Any:
        """Return JSON that stands for a value; `path` names it in errors.

        Raises:
            StateError: it holds something other than tensors, arrays, numbers, text, None, lists, tuples and dicts.
        """
        if value is None or type(value) in (bool, int, float, str):
            return value
        for kind, type_ in MAPPINGS.items():
            if type(value) is type_:
                return {kind: self._items(value, path)} | self._metadata(value, path)
        for kind in SEQUENCES:
            if type(value) in (list, tuple) and type(value).__name__ == kind:
                return {kind: [self.encode(each, f"{path}[{index}]") for index, each in enumerate(value)]}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value.detach(), path)}
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
            array = np.array(value)  # torch shares an array's memory, and refuses what is read-only
            kind = "array" if isinstance(value, np.ndarray) else "number"
            return {kind: self._tensor(torch.from_numpy(array), path)}
        raise StateError(
            f"{path}: got {type(value).__name__}, want a tensor, an array of numbers, a number, text, None, or lists, "
            f"tuples and dicts of these. Have its `state_dict` return such values, or save it by `save(folder)`."
        )

    def _items(self, mapping: dict[Any, Any], path: str) -> list[list[Any]]:
        for key in mapping:
            if key is not None and type(key) not in (bool, int, float, str):
                raise StateError(f"{path}: got a key of type {type(key).__name__}, want text or a number")
        return [[key, self.encode(value, f"{path}[{key!r}]")] for key, value in mapping.items()]

    def _metadata(self, mapping: Any, path: str) -> dict[str, Any]:
        """Keep the versions of modules, which torch hangs on their state as an attribute."""
        found = getattr(mapping, "_metadata", None)
        return {} if found is None else {"metadata": self.encode(found, f"{path}._metadata")}

    def _tensor(self, tensor: Tensor, path: str) -> str:
        if tensor.layout != torch.strided or tensor.dtype not in DTYPES or tensor.is_meta:
            what = f"a tensor of layout {tensor.layout}, type {tensor.dtype} on {tensor.device}"
            raise StateError(f"{path}: got {what}, want a dense one of numbers that safetensors has")
        memory = (tensor.device, tensor.untyped_storage().data_ptr())
        key = (*memory, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key in self._names and tensor.numel():
            return self._names[key]
        name = str(len(self.tensors))
        self.tensors[name] = tensor.clone() if memory in self._names else tensor
        self._names[key] = self._names[memory] = name
        return name


def decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return what `Encoder.encode` was given; tensors are on the CPU."""
    if not isinstance(value, dict):
        return value
    (kind, inner), *more = value.items()
    if kind in MAPPINGS:
        mapping: dict[Any, Any] = MAPPINGS[kind]({key: decode(each, tensors) for key, each in inner})
        if more:
            vars(mapping)["_metadata"] = decode(more[0][1], tensors)
        return mapping
    if kind in SEQUENCES:
        return SEQUENCES[kind](decode(each, tensors) for each in inner)
    tensor = tensors[inner]
    return TENSORS[kind](tensor)


def fingerprint(value: Any, tensors: dict[str, Tensor]) -> str:
    """Return a hash of what `Encoder.encode` made of a value; equal hashes are of values with equal bits."""
    hashed = hashlib.sha256(json.dumps(value).encode())
    for name in _tensor_names(value):
        tensor = tensors[name].cpu().contiguous()
        hashed.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        hashed.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def _tensor_names(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _tensor_names(each)
    elif isinstance(value, dict):
        for kind, inner in value.items():
            yield from [inner] if kind in TENSORS else _tensor_names(inner)


def folder_bytes(folder: Path) -> dict[str, Tensor]:
    """Return the contents of a folder's files, by relative path, as bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _bytes_of(path) for path in files}


def _bytes_of(path: Path) -> Tensor:
    return torch.from_numpy(np.fromfile(path, dtype=np.uint8))


def write_folder(folder: Path, files: dict[str, Tensor]) -> None:
    """Write what `folder_bytes` returned into a folder."""
    for name, content in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise StateError(f"a checkpoint has a file {name!r}, which is not below its folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.numpy().tobytes())
