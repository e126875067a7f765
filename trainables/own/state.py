"""The state of a training function between two steps as it is saved: values by name, and the random generators.

State is saved as tensors by name, and plain JSON values that refer to them. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.trainables.numerics import State, Tensors

TYPES: dict[str, Callable[[Any], Any]] = {
    "dict": dict,
    "ordered": OrderedDict,
    "counter": Counter,
    "list": list,
    "tuple": tuple,
}
KINDS = {type_: kind for kind, type_ in TYPES.items()}
TENSORS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda tensor: tensor,
    "array": lambda tensor: tensor.numpy(),
    "number": lambda tensor: tensor.numpy()[()],
}
SCALARS = {bool, int, float, str, type(None)}
AS_RANK_0 = {"rank": 0}
"""In the state of another rank, by an earlier version, in place of a thing whose bits are those of rank 0's."""
LARGEST_NUMPY_SEED = 2**32


class StateError(Exception):
    """A value of a state cannot be saved without pickle, or a saved state is of other things."""


# --- what the function saves


def state_of(saved: ReadFields, generators: Fields, watched: ReadFields) -> State:
    """Return the state of values by name, and of random generators; raises StateError for what only pickle could save.

    `watched` is plain JSON, kept as it is.
    """
    encoder = Encoder()
    things = {name: encoder.encode(value, name) for name, value in saved.items()}
    values = {"saved": things, "generators": encoder.encode(generators, "random generators")}
    return encoder.tensors, values | {"watched": watched}


def saved_values(tensors: Mapping[str, Tensor], values: ReadFields) -> Fields:
    """Return the values by name that `state_of` was given."""
    return {name: decode(value, tensors) for name, value in values["saved"].items()}


def joined(states: Sequence[State]) -> State:
    """Return the states of all ranks as one, with `by_rank` as its inverse."""
    tensors: Tensors = {}
    for rank, (own, _) in enumerate(states):
        prefix = f"rank{rank}." if rank else ""
        tensors |= {prefix + name: tensor for name, tensor in own.items()}
    (_, first), *others = states
    return tensors, {**first, "ranks": [values for _, values in others]}


def by_rank(tensors: Mapping[str, Tensor], values: ReadFields) -> list[State]:
    """Return the state of each rank; of a run in one process, its state.

    Tensors that a rank lacks are those of rank 0 with the same names.
    """
    first = dict(values)
    of_ranks = [first, *first.pop("ranks", [])]
    kept: list[Tensors] = [{} for _ in of_ranks]
    for name, tensor in tensors.items():
        rank, _, plain = name.rpartition(".")
        kept[int(rank.removeprefix("rank") or 0)][plain] = tensor
    states: list[State] = []
    for rank_tensors, rank_values in zip(kept, of_ranks, strict=True):
        things = {
            name: first["saved"][name] if value == AS_RANK_0 else value
            for name, value in rank_values["saved"].items()
        }
        states.append((kept[0] | rank_tensors, rank_values | {"saved": things}))
    return states


# --- random generators


def seed_generators(seed: int) -> None:
    """Seed torch (all devices), numpy and `random`."""
    torch.manual_seed(seed)
    np.random.seed(seed % LARGEST_NUMPY_SEED)
    random.seed(seed)


def generator_states() -> Fields:
    """Return the states of these generators: tensors, arrays, lists and numbers."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": np.random.get_state(legacy=False),
        "random": random.getstate(),
    }


def restore_generators(states: Fields) -> None:
    """Restore what `generator_states` returned."""
    torch.set_rng_state(states["torch"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])
    np.random.set_state(states["numpy"])
    random.setstate(states["random"])


# --- values <-> JSON


class Encoder:
    """Turns values into JSON, and collects their tensors: a shared one once, a copy of each view of one memory."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def encode(self, value: Any, path: str) -> Any:
        """Return JSON that stands for a value; raises StateError, which names its `path`, if none can."""
        if type(value) in SCALARS:
            return value
        if kind := KINDS.get(type(value)):
            if isinstance(value, dict):
                return {kind: self._items(value, path)} | self._metadata(value, path)
            return {kind: [self.encode(entry, f"{path}[{at}]") for at, entry in enumerate(value)]}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value.detach(), path)}
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
            array = np.array(value)  # torch shares an array's memory, and refuses what is read-only
            kind = "array" if isinstance(value, np.ndarray) else "number"
            return {kind: self._tensor(torch.from_numpy(array), path)}
        raise StateError(
            f"{path}: got {type(value).__name__}, want a tensor, an array of numbers, a number, text, None, or lists, "
            f"tuples and dicts of these. Have its `state_dict` return such values."
        )

    def _items(self, mapping: dict[Any, Any], path: str) -> list[list[Any]]:
        for key in mapping:
            if type(key) not in SCALARS:
                raise StateError(
                    f"{path}: got a key of type {type(key).__name__}, want text or a number"
                )
        return [[key, self.encode(value, f"{path}[{key!r}]")] for key, value in mapping.items()]

    def _metadata(self, mapping: Any, path: str) -> Fields:
        """Keep the versions of modules, which torch hangs on their state as an attribute."""
        versions = getattr(mapping, "_metadata", None)
        return {} if versions is None else {"metadata": self.encode(versions, f"{path}._metadata")}

    def _tensor(self, tensor: Tensor, path: str) -> str:
        is_sharded = hasattr(tensor, "device_mesh")
        is_dense = tensor.layout == torch.strided and not tensor.is_meta and not is_sharded
        if not is_dense or not _has_type(tensor.dtype):
            kind = "sharded tensor" if is_sharded else "tensor"
            what = f"a {kind} of layout {tensor.layout}, type {tensor.dtype} on {tensor.device}"
            raise StateError(
                f"{path}: got {what}, want a dense one of numbers that safetensors has"
            )
        memory = (tensor.device, tensor.untyped_storage().data_ptr())
        key = (*memory, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key in self._names and tensor.numel():
            return self._names[key]
        name = str(len(self.tensors))
        self.tensors[name] = tensor.clone() if memory in self._names else tensor
        self._names[key] = self._names[memory] = name
        return name


@cache
def _has_type(dtype: torch.dtype) -> bool:
    """Return whether safetensors saves and loads tensors of a type."""
    try:
        return load(save({"": torch.empty(0, dtype=dtype)}))[""].dtype == dtype
    except Exception:  # the library has no list of its types, and no error of its own for others
        return False


def decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return what `Encoder.encode` was given; tensors are on the CPU."""
    if not isinstance(value, dict):
        return value
    (kind, inner), *more = value.items()
    if kind in TENSORS:
        return TENSORS[kind](tensors[inner])
    if kind in ("list", "tuple"):
        return TYPES[kind](decode(entry, tensors) for entry in inner)
    mapping = TYPES[kind]({key: decode(entry, tensors) for key, entry in inner})
    for _, versions in more:
        vars(mapping)["_metadata"] = decode(versions, tensors)
    return mapping


def fingerprint(value: Any, tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of what `Encoder.encode` made of a value; equal hashes are of values with equal bits."""
    # torch's `set_state_dict` makes lists of tuples, or the other way round.
    text = json.dumps(value).replace('{"tuple": ', '{"list": ')
    hashed = hashlib.sha256(text.encode())
    for name in _tensor_names(value):
        tensor = tensors[name].cpu().contiguous()
        hashed.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        hashed.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def _tensor_names(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for entry in value:
            yield from _tensor_names(entry)
    elif isinstance(value, dict):
        for kind, inner in value.items():
            yield from [inner] if kind in TENSORS else _tensor_names(inner)
