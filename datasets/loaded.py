"""Loading a task and checking what came: the one way in which a task's data reaches an engine.

Shape legend: `N` examples, `T` tokens an example, `D` numbers a token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datasets.task import DataError, Split, Task, TaskData, TaskShape

IDS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types that symbols may have."""
SPLITS = ("train", "validation", "test")


def load_checked(name: str, definition: Task, options: Any, data_dir: Path) -> TaskData:
    """Load a task onto the CPU and compare what came with the shape that the task declares.

    Raises:
        DataError: the data is missing, or differs from what is declared; the message has all mismatches.
    """
    declared = definition.shape(options)
    data = definition.load(options, data_dir)
    if wrong := list(mismatches(data, declared)):
        raise DataError(
            f"{name}: what `load` returns is not what `shape` declares:\n"
            + "\n".join(f"  {each}" for each in wrong)
            + "\nMend the task's `load` or its `shape`; datasets/task.py says what each returns."
        )
    return data


def examples_version(data: TaskData) -> str:
    """Return 16 hex digits of the sha256 of all numbers of a task on the CPU."""
    content = hashlib.sha256()
    splits = [getattr(data, name) for name in SPLITS]
    tensors = [tensor for split in splits for tensor in (split.inputs, split.labels, split.lengths)]
    for tensor in [*tensors, data.scale, data.shift]:
        if tensor is not None:
            content.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            content.update(tensor.contiguous().view(torch.uint8).numpy())
    return content.hexdigest()[:16]


def mismatches(data: object, declared: TaskShape) -> Iterator[str]:
    """Compare loaded data with the declared shape; yield what differs, as got and wanted."""
    if not isinstance(data, TaskData):
        yield f"got a {type(data).__name__}, want a TaskData"
        return
    if data.shape != declared:
        yield f"shape: got {data.shape}, want what `shape` returns, {declared}"
    for name in SPLITS:
        yield from (f"{name}{wrong}" for wrong in _split_mismatches(getattr(data, name), declared))
    yield from _scale_mismatches(data, declared)


def _split_mismatches(split: object, declared: TaskShape) -> Iterator[str]:
    if not isinstance(split, Split):
        yield f": got a {type(split).__name__}, want a Split"
        return
    tensors = {"inputs": split.inputs, "labels": split.labels, "lengths": split.lengths}
    given = {name: tensor for name, tensor in tensors.items() if name != "lengths" or tensor is not None}
    if others := {name: tensor for name, tensor in given.items() if not isinstance(tensor, Tensor)}:
        yield from (f".{name}: got {type(each).__name__}, want a torch tensor" for name, each in others.items())
        return
    num_examples = split.labels.numel()
    if not num_examples:
        yield ": got no examples, want one or more"
    yield from _integers("labels", split.labels, num_examples, 0, declared.num_classes - 1, "the declared num_classes")
    if split.lengths is not None:
        yield from _integers("lengths", split.lengths, num_examples, 1, declared.num_tokens, "the declared num_tokens")
    yield from _input_mismatches(split.inputs, num_examples, declared)


def _integers(name: str, values: Tensor, number: int, low: int, high: int, declared: str) -> Iterator[str]:
    if values.shape != (number,) or values.dtype != torch.int64:
        yield f".{name}: got {_described(values)}, want int64 of shape {(number,)}"
    elif number and (found := _range(values)) and not low <= found[0] <= found[1] <= high:
        yield f".{name}: got {found[0]:g} to {found[1]:g}, want {low} to {high} by {declared}"


def _input_mismatches(inputs: Tensor, num_examples: int, declared: TaskShape) -> Iterator[str]:
    symbols = declared.token_dim is None
    shape = (num_examples, declared.num_tokens, *(() if declared.token_dim is None else (declared.token_dim,)))
    if inputs.shape != shape:
        axes = "(examples, num_tokens)" if symbols else "(examples, num_tokens, token_dim)"
        yield f".inputs: got shape {tuple(inputs.shape)}, want {shape}, which is {axes}"
    if symbols and inputs.dtype not in IDS:
        yield f".inputs: got {_dtype(inputs)}, want integers, as num_token_ids declares symbols"
    elif not symbols and inputs.dtype not in IDS and not inputs.dtype.is_floating_point:
        yield f".inputs: got {_dtype(inputs)}, want real numbers, as token_dim declares"
    elif inputs.numel():
        low, high = _range(inputs)
        if not -float("inf") < low <= high < float("inf"):  # false for NaN, which aminmax passes on
            yield ".inputs: got numbers that are not finite, want finite ones"
        elif declared.num_token_ids is not None and not 0 <= low <= high < declared.num_token_ids:
            yield f".inputs: got ids {low:g} to {high:g}, want 0 to {declared.num_token_ids - 1} by num_token_ids"


def _scale_mismatches(data: TaskData, declared: TaskShape) -> Iterator[str]:
    given = {name: getattr(data, name) for name in ("scale", "shift") if getattr(data, name) is not None}
    if declared.token_dim is None:
        yield from (f"{name}: got one, want none: num_token_ids declares symbols" for name in given)
        return
    if len(given) == 1:
        (one,), (other,) = given, {"scale", "shift"} - given.keys()
        yield f"{other}: got none beside a {one}, want both, or neither for inputs that are used as they are"
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            yield f"{name}: got {type(tensor).__name__}, want a torch tensor"
        elif tensor.shape != (declared.token_dim,) or tensor.dtype != torch.float32:
            yield f"{name}: got {_described(tensor)}, want float32 of shape {(declared.token_dim,)}"
        elif not bool(tensor.isfinite().all()):
            yield f"{name}: got numbers that are not finite, want finite ones"


def _range(values: Tensor) -> tuple[float, float]:
    low, high = values.aminmax()  # one pass, and nothing is copied
    return low.item(), high.item()


def _described(values: Tensor) -> str:
    return f"{_dtype(values)} of shape {tuple(values.shape)}"


def _dtype(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")
