"""What a training function has in its variables between two steps, by fingerprints: what changes there may be lost.

Looked at are the function's frames, the modules of its files, and objects of its own classes in them: numbers, texts,
random generators, tensors, and things with `state_dict`.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, GeneratorType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from lr_sweep.trainables.own.loader import FOLLOWED, NUM_ENTRIES, parts_of
from lr_sweep.trainables.own.saved import CONTAINERS, is_savable, value_of
from lr_sweep.trainables.own.session import OwnSession
from lr_sweep.trainables.own.state import Encoder, fingerprint

NUM_ELEMENTS = 2**14
"""Number of the first elements of a tensor that are compared: a large one is data, or changes everywhere."""
DEEPEST = 4
"""Largest number of attributes in a name."""
MOST_PARTS = 10_000
"""Number of parts of a library's object after which none are added to those that are looked at."""
NOT_PASSED = "a DataLoader that is not passed"
"""What stands for the fingerprint of a loader whose position cannot be seen."""
Variables = Mapping[str, str]
"""Fingerprints by name, as `count in train`."""


def variables_of(
    frame: FrameType | None, folder: Path, passed: Collection[int], *, everywhere: bool
) -> Variables:
    """Return the variables of a frame and of its callers, as far as their code is in a folder.

    `passed`: ids of the things that the function passed; they are compared as they are saved. `everywhere`: also look
    for optimizers, schedules and scalers in objects of libraries, such as a trainer, which takes a while.
    """
    walk = _Walk(str(folder), passed, everywhere=everywhere)
    while frame is not None:
        walk.add_frame(frame)
        frame = frame.f_back
    return walk.found


class _Walk:
    def __init__(self, folder: str, passed: Collection[int], *, everywhere: bool) -> None:
        self.found: dict[str, str] = {}
        self._folder, self._passed, self._everywhere = folder, passed, everywhere
        self._seen: set[int] = set()

    def add_frame(self, frame: FrameType) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(self._folder):
            return
        variables = frame.f_locals
        for name in variables.keys() & _read_names(code):
            self._add(name, variables[name], code.co_name)
        if type(variables) is dict and variables is not frame.f_globals:
            variables.clear()  # a copy, which would keep the memory of a step's tensors
        for name, value in frame.f_globals.items():
            if not name.startswith("__"):
                self._add(name, value, code.co_filename[len(self._folder) + 1 :])

    def _add(self, name: str, value: Any, where: str) -> None:
        # An object may raise anything when it is looked at, and is then left out.
        with suppress(Exception):
            self._compare(name, value, where)

    def _compare(self, name: str, value: Any, where: str) -> None:
        key = f"{name} in {where}"
        if isinstance(value, DataLoader):
            if FOLLOWED not in vars(value):
                self.found[key] = NOT_PASSED
                return
            for part in filter(self._is_own, parts_of(value)):
                self._add_attributes(f"{name}.{type(part).__name__}", part, where)
        elif isinstance(value, GeneratorType):
            if value.gi_frame is not None:
                self.add_frame(value.gi_frame)
        elif id(value) not in self._passed and _is_small(value) and is_savable(value):
            self.found[key] = _fingerprint(value)
        elif self._is_own(value) and name.count(".") < DEEPEST:
            self._add_attributes(name, value, where)
        elif self._everywhere and not isinstance(value, OwnSession):
            for part in _parts_of_library(value, self._seen):
                self._add(f"{name}'s {type(part).__name__}", part, where)

    def _is_own(self, value: Any) -> bool:
        module = sys.modules.get(type(value).__module__)
        of_file = str(getattr(module, "__file__", "")).startswith(self._folder)
        return of_file or isinstance(value, SimpleNamespace)

    def _add_attributes(self, name: str, owner: Any, where: str) -> None:
        if id(owner) in self._seen:
            return
        self._seen.add(id(owner))
        for attribute, value in list(getattr(owner, "__dict__", {}).items()):
            if not (isinstance(owner, nn.Module) and attribute.startswith("_")):
                self._add(f"{name}.{attribute}", value, where)


def _parts_of_library(owner: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the optimizers, schedules and scalers in an object, and in the objects that it holds."""
    inside = [owner]
    for value in inside:
        if id(value) in seen or isinstance(value, type | ModuleType | nn.Module | Tensor):
            continue
        seen.add(id(value))
        if isinstance(value, Optimizer | LRScheduler | GradScaler):
            yield value
        elif len(inside) < MOST_PARTS:
            parts = value if isinstance(value, CONTAINERS) else getattr(value, "__dict__", {})
            inside += parts.values() if isinstance(parts, dict) else parts


def _is_small(value: Any) -> bool:
    return not isinstance(value, CONTAINERS) or len(value) <= NUM_ENTRIES


def _fingerprint(value: Any) -> str:
    """Return the fingerprint of what `is_savable`; raises StateError if only pickle could save it."""
    encoder = Encoder()
    encoded = encoder.encode(_first_elements(value_of(value)), "")
    return fingerprint(encoded, encoder.tensors)[:16]


def _first_elements(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        return value.reshape(-1)[:NUM_ELEMENTS]
    if isinstance(value, dict):
        return {key: _first_elements(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_first_elements, value)]
    return value


@cache
def _read_names(code: CodeType) -> frozenset[str]:
    """Return the names that code reads: a counter that is never read changes nothing."""
    read = [each.argval for each in dis.get_instructions(code) if "LOAD" in each.opname]
    pairs = [names if isinstance(names, tuple) else (names,) for names in read]
    return frozenset(name for names in pairs for name in names if isinstance(name, str))
