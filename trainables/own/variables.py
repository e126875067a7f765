"""What a training function has in its variables between two steps, by fingerprints: what changes there may be lost.

Looked at are the function's frames, the modules of its files, and objects of its own classes in them: numbers, texts,
random generators, tensors, and things with `state_dict`.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
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

from .loader import FOLLOWED, parts_of
from .saved import CONTAINERS, GENERATORS, is_savable, mapped, value_of
from .session import OwnSession
from .state import Encoder, fingerprint

NUM_ENTRIES = 1000
"""Largest number of entries of a container that is compared: a longer one is data."""
NUM_ELEMENTS = 2**14
"""Number of the first elements of a tensor that are compared: a large one is data, or changes everywhere."""
DEEPEST = 4
"""Largest number of attributes in a name."""
MOST_PARTS = 10_000
"""Number of parts of a library's object after which none are added to those that are looked at."""
NOT_PASSED = "a DataLoader that is not passed"
"""What stands for the fingerprint of a loader whose position cannot be seen."""
NOT_FOLLOWED = (type, ModuleType, nn.Module, Tensor, OwnSession)
"""Kinds of objects in which no optimizers and generators are looked for; a session has those that are saved."""
Variables = Mapping[str, str]
"""Fingerprints by name, as `count in train`."""


def variables_of(
    frame: FrameType | None, folder: Path, passed: Collection[int], *, everywhere: bool
) -> Variables:
    """Return the variables of a frame and of its callers, as far as their code is in a folder.

    `passed`: ids of the things that the function passed; they are compared as they are saved. `everywhere`: also look
    for optimizers, schedules, scalers and random generators in objects of libraries, such as a trainer, which takes a
    while.
    """
    walk = _Walk(str(folder), passed, everywhere=everywhere)
    while frame is not None:
        walk.add_frame(frame)
        frame = frame.f_back
    return walk.fingerprints


class _Walk:
    def __init__(self, folder: str, passed: Collection[int], *, everywhere: bool) -> None:
        self.fingerprints: dict[str, str] = {}
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
                self.fingerprints[key] = NOT_PASSED
                return
            for part in filter(self._is_own, parts_of(value)):
                self._add_attributes(f"{name}.{type(part).__name__}", part, where)
            self._add_parts(name, value, where)
        elif isinstance(value, GeneratorType):
            if value.gi_frame is not None:
                self.add_frame(value.gi_frame)
        elif id(value) not in self._passed and _is_small(value) and is_savable(value):
            self.fingerprints[key] = _fingerprint(value)
        elif self._is_own(value) and name.count(".") < DEEPEST:
            self._add_attributes(name, value, where)
        else:
            self._add_parts(name, value, where)

    def _add_parts(self, name: str, value: Any, where: str) -> None:
        if self._everywhere:
            for part_name, part in _parts_of_library(value, self._seen):
                self._add(f"{name}'s {part_name}", part, where)

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


def _parts_of_library(owner: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the optimizers, schedules, scalers and generators in an object and in those that it holds, with names.

    The name of a generator, which stands for much, has the kind of its owner, such as a collator.
    """
    inside = [(owner, owner)]
    for holder, value in inside:  # it grows meanwhile
        if id(value) in seen or isinstance(value, NOT_FOLLOWED):
            continue
        seen.add(id(value))
        kind = type(value).__name__
        if isinstance(value, tuple(GENERATORS)):
            yield f"{type(holder).__name__}'s {kind}", value
        elif isinstance(value, Optimizer | LRScheduler | GradScaler):
            yield kind, value
        elif len(inside) < MOST_PARTS:
            holder = holder if isinstance(value, CONTAINERS) else value
            inside += [(holder, part) for part in _inner(value)]


def _inner(value: Any) -> Iterable[Any]:
    """Return what an object or a container holds; of a loader that is followed, what a resume may not restore."""
    if isinstance(value, DataLoader):
        return [value.collate_fn]
    parts = value if isinstance(value, CONTAINERS) else getattr(value, "__dict__", {})
    return parts.values() if isinstance(parts, dict) else parts


def _is_small(value: Any) -> bool:
    return not isinstance(value, CONTAINERS) or len(value) <= NUM_ENTRIES


def _fingerprint(value: Any) -> str:
    """Return the fingerprint of what `is_savable`; raises StateError if only pickle could save it."""
    encoder = Encoder()
    encoded = encoder.encode(mapped(value_of(value), _first_elements), "")
    return fingerprint(encoded, encoder.tensors)[:16]


def _first_elements(value: Any) -> Any:
    return value.reshape(-1)[:NUM_ELEMENTS] if isinstance(value, Tensor | np.ndarray) else value


@cache
def _read_names(code: CodeType) -> frozenset[str]:
    """Return the names that code reads: a counter that is never read changes nothing."""
    read = [step.argval for step in dis.get_instructions(code) if "LOAD" in step.opname]
    pairs = [names if isinstance(names, tuple) else (names,) for names in read]
    return frozenset(name for names in pairs for name in names if isinstance(name, str))
