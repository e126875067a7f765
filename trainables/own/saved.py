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

from .state import SCALARS, StateError

GENERATORS: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    torch.Generator: (torch.Generator.get_state, torch.Generator.set_state),
    np.random.Generator: (
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
    np.random.RandomState: (
        lambda generator: generator.get_state(legacy=False),
        np.random.RandomState.set_state,
    ),
    random.Random: (random.Random.getstate, random.Random.setstate),
}
"""Classes of random generators, with the functions that return and that restore their state."""
CONTAINERS = (dict, list, tuple, deque)
BESIDE = "'s "
"""Part of the names of what is saved beside a thing."""
GRADIENTS = f"{BESIDE}gradients"
"""End of the names of gradients: `model's gradients`."""
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
            if gradients := _gradients(thing, spent_ids):
                values[name + GRADIENTS] = gradients
            if changed := self._changed(name, thing):
                values[name + ATTRIBUTES] = changed
        return values

    def _changed(self, name: str, thing: Any) -> Fields:
        first, now = self._first[name], plain_attributes(thing)
        return {path: now[path] for path in now if path not in first or first[path] != now[path]}

    def load(self, values: ReadFields) -> None:
        """Restore what `values` returned; raises StateError for the values of other things."""
        names = {name.partition(BESIDE)[0] for name in values}
        if names != self.things.keys():
            raise StateError(
                f"the checkpoint has {', '.join(sorted(names))}, session.steps got {', '.join(self.things)}"
            )
        for name, thing in self.things.items():
            loaded_into(thing, values[name])
            gradients = values.get(name + GRADIENTS, {})
            for path, parameter in _parameters(thing).items():
                gradient = gradients.get(path)
                parameter.grad = None if gradient is None else gradient.to(parameter.device)
            for path, value in values.get(name + ATTRIBUTES, {}).items():
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
    has_attributes = hasattr(thing, "__dict__") and not isinstance(thing, NO_OBJECTS)
    in_place = (Tensor, np.ndarray, dict, list, deque, *GENERATORS)
    return is_stateful(thing) or has_attributes or isinstance(thing, in_place)


def is_savable(value: Any) -> bool:
    """Return whether an attribute is saved: a value, a generator, a thing with a state, or containers of these."""
    numbers = (Tensor, np.ndarray, np.generic)
    return all(
        is_light(leaf) or isinstance(leaf, numbers) or is_stateful(leaf) for leaf in leaves(value)
    )


def is_light(leaf: Any) -> bool:
    """Return whether a value is a number, a text, None or a random generator."""
    return type(leaf) in SCALARS or isinstance(leaf, tuple(GENERATORS))


def leaves(value: Any) -> Iterator[Any]:
    """Yield what nested containers hold, or a value that is no container."""
    if not isinstance(value, CONTAINERS):
        yield value
        return
    for inner in value.values() if isinstance(value, dict) else value:
        yield from leaves(inner)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of nested containers with changed leaves; a deque becomes a list."""
    if isinstance(value, dict):
        return {key: mapped(inner, change) for key, inner in value.items()}
    if not isinstance(value, CONTAINERS):
        return change(value)
    entries = [mapped(inner, change) for inner in value]
    return tuple(entries) if isinstance(value, tuple) else entries


def value_of(thing: Any) -> Any:
    """Return what is saved of a thing or of an attribute, as `Encoder` takes it."""
    return mapped(thing, _leaf_value)


def _leaf_value(thing: Any) -> Any:
    for kind, (get_state, _) in GENERATORS.items():
        if isinstance(thing, kind):
            return get_state(thing)
    if is_stateful(thing):
        return thing.state_dict()
    if is_savable(thing):
        return thing
    return {name: value_of(value) for name, value in vars(thing).items() if is_savable(value)}


def loaded_into(old: Any, new: Any) -> Any:
    """Restore a thing in place from what `value_of` returned of it; return it, or what takes its place."""
    for kind, (_, set_state) in GENERATORS.items():
        if isinstance(old, kind):
            set_state(old, new)
            return old
    if is_stateful(old):
        old.load_state_dict(new)
    elif isinstance(old, Tensor | np.ndarray) and getattr(new, "shape", None) == old.shape:
        numbers = old.detach() if isinstance(old, Tensor) else old
        numbers[...] = new
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
        f"{owner}.{name}": value_of(value)
        for owner, part in _parts(thing).items()
        for name, value in _attributes(part)
        if not isinstance(value, dict | deque) and {*map(type, leaves(value))} <= SCALARS
    }


def _parts(thing: Any) -> dict[str, Any]:
    """Return a thing that has a state by the path ``; of a module, also its modules and parameters by theirs."""
    if isinstance(thing, nn.Module):
        return dict(thing.named_modules()) | _parameters(thing)
    return {"": thing} if is_stateful(thing) else {}


def _attributes(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Tensor):
        yield "requires_grad", part.requires_grad
        return
    of_torch = type(part).__module__.startswith("torch.")
    for name, value in getattr(part, "__dict__", {}).items():
        if not (of_torch and name.startswith("_")):  # such as what DDP has set up in this process
            yield name, value


def _parameters(thing: Any) -> dict[str, nn.Parameter]:
    return dict(thing.named_parameters()) if isinstance(thing, nn.Module) else {}


def _gradients(thing: Any, spent_ids: set[int]) -> Fields:
    """Return the gradients that a module's next steps may add to, by the names of its parameters."""
    return {
        name: parameter.grad
        for name, parameter in _parameters(thing).items()
        if parameter.grad is not None and id(parameter) not in spent_ids
    }
