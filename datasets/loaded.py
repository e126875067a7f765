"""Loading a task and comparing the tensors with its declared shape: the one way in which data reaches an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .task import DataError, Split, Task, TaskData, TaskShape

SPLITS = ("train", "validation", "test")
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
TYPES = {
    "int64": (torch.int64,),
    "float32": (torch.float32,),
    "integers": INTEGERS,
    "real numbers": (*INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64),
}
"""The types that a tensor may have, by what messages call them."""


def load_checked(name: str, definition: Task, options: Any, data_dir: Path) -> TaskData:
    """Load a task onto the CPU; raises DataError, with all mismatches, if it is missing or not as `shape` declares."""
    declared = definition.shape(options)
    data = definition.load(options, data_dir)
    if wrong := list(mismatches(data, declared)):
        raise DataError(
            f"{name}: what `load` returns is not what `shape` declares:\n"
            + "\n".join(f"  {mismatch}" for mismatch in wrong)
            + "\nCorrect the task's `load` or its `shape`; datasets/task.py says what each returns."
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


def mismatches(data: TaskData, declared: TaskShape) -> Iterator[str]:
    """Compare loaded data with the declared shape; yield what differs, as got and wanted."""
    if data.shape != declared:
        yield f"shape: got {data.shape}, want what `shape` returns, {declared}"
    for name in SPLITS:
        yield from _split_mismatches(name, getattr(data, name), declared)
    given = [name for name in ("scale", "shift") if getattr(data, name) is not None]
    if declared.token_dim is None:
        yield from (f"{name}: got one, want none: num_token_ids declares symbols" for name in given)
        return
    if len(given) == 1:
        yield f"{given[0]}: got it alone, want both scale and shift, or neither for inputs that are used as they are"
    for name in given:
        yield from _mismatch(
            name, getattr(data, name), (declared.token_dim,), "float32", "token_dim"
        )


def _split_mismatches(name: str, split: Split, declared: TaskShape) -> Iterator[str]:
    num_examples = len(split.labels)
    if not num_examples:
        yield f"{name}: got no examples, want one or more"
    examples, tokens = (num_examples,), (num_examples, declared.num_tokens)
    answers = examples if declared.num_answers == 1 else (num_examples, declared.num_answers)
    if declared.num_token_ids is not None:
        ids = 0, declared.num_token_ids - 1
        yield from _mismatch(
            f"{name}.inputs", split.inputs, tokens, "integers", "num_tokens and num_token_ids", ids
        )
    elif declared.token_dim is not None:
        shape = *tokens, declared.token_dim
        yield from _mismatch(
            f"{name}.inputs", split.inputs, shape, "real numbers", "num_tokens and token_dim"
        )
    yield from _mismatch(
        f"{name}.labels",
        split.labels,
        answers,
        "int64",
        "num_classes",
        (0, declared.num_classes - 1),
    )
    if split.lengths is not None:
        yield from _mismatch(
            f"{name}.lengths",
            split.lengths,
            examples,
            "int64",
            "num_tokens",
            (1, declared.num_tokens),
        )


def _mismatch(
    name: str,
    tensor: object,
    shape: tuple[int, ...],
    types: str,
    declared_by: str,
    limits: tuple[int, int] | None = None,
) -> Iterator[str]:
    """Compare one tensor with the shape, the types and the limits that fields of `TaskShape` declare."""
    if not isinstance(tensor, Tensor):
        yield f"{name}: got {type(tensor).__name__}, want a torch tensor"
    elif tensor.shape != shape or tensor.dtype not in TYPES[types]:
        got = f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
        yield f"{name}: got {got}, want {types} of shape {shape}, by {declared_by}"
    elif tensor.numel():
        low, high = (number.item() for number in tensor.aminmax())  # in one pass, without a copy
        if not -float("inf") < low <= high < float("inf"):  # false for NaN, which aminmax passes on
            yield f"{name}: got numbers that are not finite, want finite ones"
        elif limits is not None and not limits[0] <= low <= high <= limits[1]:
            yield f"{name}: got {low:g} to {high:g}, want {limits[0]} to {limits[1]}, by {declared_by}"
