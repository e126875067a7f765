"""A `DataLoader` that a training function passes to `session.steps`: its position, and a resume in mid-epoch.

The position is the state of all random generators at the beginning of the epoch, and the number of batches that were
taken since. A resume reads these batches again, so that workers draw the same random numbers as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lr_sweep.common.files import Fields, ReadFields

from .saved import is_light, leaves, loaded_into, value_of
from .state import generator_states, restore_generators

NUM_LEAVES = 2000
"""Largest number of values of an attribute that is saved: a longer list is data."""
FOLLOWED = "followed"
"""Attribute of a loader that is followed."""


@dataclass
class Epoch:
    """An epoch under way."""

    begun: ReadFields
    """States of the random generators, and of what decides on the order, at its beginning."""
    num_taken: int = 0


class Follower:
    """Counts the batches of a `DataLoader`, and lets it resume where it was; saved in the loader's place."""

    def __init__(self, loader: Any, before: Callable[[], None]) -> None:
        """Follow a loader; `before` is called when an epoch begins."""
        self._loader, self._before, self._kind = loader, before, type(loader)
        self._epoch: Epoch | None = None
        self._resumed: Epoch | None = None
        iterate = {"__iter__": lambda _: self._batches()}
        # Accelerate's loaders have a property of this name, which cannot be set.
        followed = type(self._kind.__name__, (self._kind,), iterate)
        vars(object)["__class__"].__set__(loader, followed)
        vars(loader)[FOLLOWED] = True
        # Workers that outlive an epoch would have random numbers that only all epochs before could bring back.
        vars(_base(loader))["persistent_workers"] = False

    def state_dict(self) -> Fields:
        """Return the position; empty: no epoch is under way."""
        epoch = self._resumed or self._epoch
        return {} if epoch is None else dict(vars(epoch))

    def load_state_dict(self, state: ReadFields) -> None:
        """Let the next iteration resume from a position."""
        self._resumed = Epoch(**state) if state else None

    def _batches(self) -> Iterator[Any]:
        """Yield the batches of an epoch, or of the rest of one that is resumed."""
        self._before()
        epoch, self._resumed = self._resumed or Epoch(_random_states(self._loader)), None
        self._epoch = epoch
        batches = self._rest(epoch) if epoch.num_taken else self._kind.__iter__(self._loader)
        try:
            for batch in batches:
                epoch.num_taken += 1
                yield batch
        finally:
            if self._epoch is epoch:
                self._epoch = None

    def _rest(self, epoch: Epoch) -> Iterator[Any]:
        here = generator_states()
        _restore_random_states(self._loader, epoch.begun)
        batches: Iterator[Any] = self._kind.__iter__(self._loader)
        for _ in islice(batches, epoch.num_taken):
            pass
        restore_generators(here)
        return batches


def follow(thing: Any, before: Callable[[], None]) -> Any:
    """Return the follower of a `DataLoader`, and any other thing as it is.

    One of torchdata is followed, too: its own state does not have the random numbers of its workers.
    """
    return Follower(thing, before) if isinstance(thing, DataLoader) else thing


def _random_states(loader: Any) -> Fields:
    return {
        "process": generator_states(),
        "order": [_own_states(part) for part in parts_of(loader)],
    }


def _restore_random_states(loader: Any, states: ReadFields) -> None:
    restore_generators(states["process"])
    # Checkpoints of earlier versions have no states of the last part, the collator.
    for part, own in zip(parts_of(loader), states["order"], strict=False):
        for name, value in own.items():
            old = vars(part).get(name)
            if old is None and isinstance(value, Tensor):
                old = torch.Generator()  # a collator may make its own for its first batch
            # Not by `setattr`, which a loader refuses for what it was made with.
            vars(part)[name] = loaded_into(old, value)


def parts_of(loader: Any) -> list[Any]:
    """Return a loader and what decides on its batches, in a fixed order."""
    base = _base(loader)
    inner = getattr(base.batch_sampler, "sampler", None)
    return [loader, base, base.sampler, base.batch_sampler, inner, base.dataset, base.collate_fn]


def _base(loader: Any) -> Any:
    """Return torch's loader, which Accelerate's has inside."""
    return vars(loader).get("base_dataloader", loader)


def _own_states(part: Any) -> Fields:
    """Return the numbers and the random generators among a part's attributes, also those in small containers."""
    return {
        name: value_of(value)
        for name, value in getattr(part, "__dict__", {}).items()
        if _is_saved(value)
    }


def _is_saved(value: Any) -> bool:
    first = [*islice(leaves(value), NUM_LEAVES + 1)]
    return len(first) <= NUM_LEAVES and all(map(is_light, first))
