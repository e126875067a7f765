"""The things that a training function passes to `session.steps`: what is saved of each, and how it is restored.

A thing with `state_dict` is saved by it, with what it has beside it: the gradients of a module, and plain attributes
that have changed. Any other object is saved by its attributes. Everything is restored in place, where it is.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.trainables.own.state import SCALARS, StateError

GENERATORS: tuple[tuple[type, Callable[[Any], Any], Callable[[Any, Any], Any]], ...] = (
    (torch.Generator, torch.Generator.get_state, torch.Generator.set_state),
    (
        np.random.Generator,
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
    (
        np.random.RandomState,
        lambda generator: generator.get_state(legacy=False),
        np.random.RandomState.set_state,
    ),
    (random.Random, random.Random.getstate, random.Random.setstate),
)
"""Classes of random generators, with the functions that return and that restore their state."""
CONTAINERS = (dict, list, tuple, deque)
BESIDE = "'s "
"""Part of the names of what is saved beside a thing: `model's gradients`."""
ATTRIBUTES = f"{BESIDE}attributes"
"""End of the names of plain attributes, those that changed since the function began."""
NO_OBJECTS = (type, FunctionType, MethodType, ModuleType, DataLoader)
"""Kinds that are not saved by attributes or `state_dict`; a loader that is passed is followed."""
WANTED = (
    "an object with attributes, such as types.SimpleNamespace(count=0), a dict, a tensor, a random generator, or "
    "anything with `state_dict` and `load_state_dict`"
)


class Saved:
    """The things that a function passed, by name."""

    def __init__(self, things: Fields) -> None:
        """Take them at their first values; raises StateError for things that cannot be restored, all in one message."""
        if wrong := [
            f"{name} ({type(thing).__name__})"
            for name, thing in things.items()
            if not is_restorable(thing)
        ]:
            raise StateError(f"session.steps got {', '.join(wrong)}, want {WANTED}")
        self.things = things
        self._first = {name: plain_attributes(thing) for name, thing in things.items()}

    def values(self, spent: Iterable[Tensor]) -> Fields:
        """Return what to save, by name. `spent`: parameters whose gradients an optimizer has just used."""
        spent_ids = {id(parameter) for parameter in spent}
        values = {name: value_of(thing) for name, thing in self.things.items()}
        for name, thing in self.things.items():
            beside = {
                "gradients": _gradients(thing, spent_ids),
                "attributes": self._changed(name, thing),
            }
            values |= {f"{name}{BESIDE}{what}": value for what, value in beside.items() if value}
        return values

    def _changed(self, name: str, thing: Any) -> Fields:
        first = self._first[name]
        return {
            path: value
            for path, value in plain_attributes(thing).items()
            if path not in first or first[path] != value
        }

    def load(self, values: ReadFields) -> None:
        """Restore what `values` returned; raises StateError for the values of other things."""
        names = {name.partition(BESIDE)[0] for name in values}
        if names != self.things.keys():
            raise StateError(
                f"the checkpoint has {', '.join(sorted(names))}, session.steps got {', '.join(self.things)}"
            )
        for name, thing in self.things.items():
            loaded_into(thing, values[name])
            _load_gradients(thing, values.get(f"{name}{BESIDE}gradients", {}))
            for path, value in values.get(f"{name}{BESIDE}attributes", {}).items():
                owner, _, attribute = path.rpartition(".")
                setattr(_parts(thing)[owner], attribute, value)


def is_stateful(thing: Any) -> bool:
    """Return whether a thing returns and restores its state itself."""
    methods = ("state_dict", "load_state_dict")
    return not isinstance(thing, NO_OBJECTS) and all(
        callable(getattr(thing, method, None)) for method in methods
    )


def is_restorable(thing: Any) -> bool:
    """Return whether a thing can be restored in place."""
    kinds = (Tensor, np.ndarray, dict, list, deque)
    return (
        is_stateful(thing)
        or isinstance(thing, (*kinds, *(kind for kind, _, _ in GENERATORS)))
        or (hasattr(thing, "__dict__") and not isinstance(thing, NO_OBJECTS))
    )


def is_savable(value: Any) -> bool:
    """Return whether an attribute is saved: a value, a generator, a thing with a state, or containers of these."""
    if isinstance(value, CONTAINERS):
        inner = value.values() if isinstance(value, dict) else value
        return all(map(is_savable, inner))
    kinds = (Tensor, np.ndarray, np.generic, *(kind for kind, _, _ in GENERATORS))
    return type(value) in SCALARS or isinstance(value, kinds) or is_stateful(value)


def value_of(thing: Any) -> Any:
    """Return what is saved of a thing or of an attribute, as `Encoder` takes it."""
    for kind, get, _ in GENERATORS:
        if isinstance(thing, kind):
            return get(thing)
    if is_stateful(thing):
        return thing.state_dict()
    if isinstance(thing, dict):
        return {key: value_of(value) for key, value in thing.items()}
    if isinstance(thing, tuple):
        return tuple(map(value_of, thing))
    if isinstance(thing, list | deque):
        return [*map(value_of, thing)]
    if is_savable(thing):
        return thing
    return {name: value_of(value) for name, value in vars(thing).items() if is_savable(value)}


def loaded_into(old: Any, new: Any) -> Any:
    """Restore a thing in place from what `value_of` returned of it; return it, or what takes its place."""
    for kind, _, set_state in GENERATORS:
        if isinstance(old, kind):
            set_state(old, new)
            return old
    if is_stateful(old):
        old.load_state_dict(new)
    elif isinstance(old, Tensor) and isinstance(new, Tensor) and old.shape == new.shape:
        old.detach().copy_(new)
    elif isinstance(old, np.ndarray) and isinstance(new, np.ndarray) and old.shape == new.shape:
        old[...] = new
    elif isinstance(old, dict) and isinstance(new, dict):
        entries = {key: loaded_into(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(entries)
    elif isinstance(old, list | deque) and isinstance(new, list):
        before = [*old, *[None] * len(new)]
        loaded = [*map(loaded_into, before, new)]
        old.clear()
        old.extend(loaded)
    elif hasattr(old, "__dict__") and isinstance(new, dict):
        for name, value in new.items():
            setattr(old, name, loaded_into(getattr(old, name, None), value))
    else:
        return new
    return old


def plain_attributes(thing: Any) -> Fields:
    """Return the numbers, texts and lists of these among the attributes of a thing and of its modules, by path."""
    return {
        f"{owner}.{name}": [*value] if isinstance(value, list) else value
        for owner, part in _parts(thing).items()
        for name, value in _attributes(part)
        if _is_plain(value)
    }


def _parts(thing: Any) -> dict[str, Any]:
    """Return a thing that has a state by the path ``; of a module, also its modules and parameters by theirs."""
    if isinstance(thing, nn.Module):
        return dict([*thing.named_modules(), *thing.named_parameters()])
    return {"": thing} if is_stateful(thing) else {}


def _attributes(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Tensor):
        yield "requires_grad", part.requires_grad
        return
    of_torch = type(part).__module__.startswith("torch.")
    for name, value in getattr(part, "__dict__", {}).items():
        if not (of_torch and name.startswith("_")):  # such as what DDP has set up in this process
            yield name, value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return type(value) in SCALARS


def _gradients(thing: Any, spent_ids: set[int]) -> Fields:
    """Return the gradients that a module's next steps may add to, by the names of its parameters."""
    if not isinstance(thing, nn.Module):
        return {}
    return {
        name: parameter.grad
        for name, parameter in thing.named_parameters()
        if parameter.grad is not None and id(parameter) not in spent_ids
    }


def _load_gradients(thing: Any, gradients: ReadFields) -> None:
    if not isinstance(thing, nn.Module):
        return
    for name, parameter in thing.named_parameters():
        gradient = gradients.get(name)
        parameter.grad = None if gradient is None else gradient.to(parameter.device)
