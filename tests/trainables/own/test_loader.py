"""Loaders that a training function passes resume in mid-epoch, with the same batches and random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler, WeightedRandomSampler

from lr_sweep.trainables.own.loader import Follower, follow
from lr_sweep.trainables.own.state import generator_states, restore_generators, seed_generators


class Noisy:
    """Each example has random numbers of all three generators of the process that reads it."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(()).item()])


class Stream(IterableDataset[Any]):
    """Counts its epochs, and shuffles by a generator of its own."""

    def __init__(self) -> None:
        self.epoch, self.own = 0, np.random.default_rng(1)

    def __iter__(self) -> Iterator[float]:
        self.epoch += 1
        for index in self.own.permutation(10):
            yield self.epoch * index


class Shuffled(Sampler[int]):
    """Has a generator of its own in a dict, which goes through all epochs."""

    def __init__(self) -> None:
        self.own = {"order": random.Random(1)}

    def __iter__(self) -> Iterator[int]:
        return iter(self.own["order"].sample(range(10), 10))

    def __len__(self) -> int:
        return 10


class Masked:
    """A collator with a generator of its own, which it makes for its first batch."""

    def __init__(self) -> None:
        self.generator: torch.Generator | None = None

    def __call__(self, rows: list[int]) -> torch.Tensor:
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(5)
        return torch.tensor(rows) + torch.rand(len(rows), generator=self.generator)


def of_torchdata(generator: torch.Generator | None) -> DataLoader[Any]:
    """An epoch begins with a seed from the process, or from the loader's generator."""
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    loader: DataLoader[Any] = torchdata.StatefulDataLoader(torch.arange(10), 2, shuffle=True, generator=generator)
    return loader


NEW: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffle": lambda: DataLoader(Noisy(), 2, shuffle=True),  # type: ignore[arg-type]
    "workers": lambda: DataLoader(Noisy(), 2, shuffle=True, num_workers=2, persistent_workers=True),  # type: ignore[arg-type]
    "generator": lambda: DataLoader(range(10), 2, shuffle=True, generator=torch.Generator().manual_seed(1)),  # type: ignore[arg-type]
    "sampler": lambda: DataLoader(range(10), 2, sampler=Shuffled()),  # type: ignore[arg-type]
    "weights": lambda: DataLoader(range(10), 2, sampler=WeightedRandomSampler([1.0] * 10, 10)),  # type: ignore[arg-type]
    "stream": lambda: DataLoader(Stream(), 2),
    "collator": lambda: DataLoader(range(10), 2, collate_fn=Masked()),  # type: ignore[arg-type]
    "torchdata": lambda: of_torchdata(None),
    "torchdata with a generator": lambda: of_torchdata(torch.Generator().manual_seed(5)),
}


def batches(loader: DataLoader[Any]) -> Iterator[list[Any]]:
    while True:
        for batch in loader:
            yield batch.tolist()


@pytest.mark.parametrize("kind", NEW)
@pytest.mark.parametrize("step", [1, 5, 7])
def test_it_resumes_with_the_next_batch(kind: str, step: int) -> None:
    """An epoch has five batches; the process's own generators are used between them, too."""
    seed_generators(3)
    loader = NEW[kind]()
    follower = follow(loader, lambda: None)
    whole = batches(loader)
    for _ in range(step):
        next(whole)
        torch.rand(1)
    position, generators = follower.state_dict(), generator_states()
    wanted = [(next(whole), torch.rand(1).item()) for _ in range(6)]
    seed_generators(9)
    other = NEW[kind]()
    pending = [generators]
    resumed = follow(other, lambda: restore_generators(pending.pop()) if pending else None)
    resumed.load_state_dict(position)
    assert resumed.state_dict() == position  # a checkpoint before its first batch
    rest = batches(other)
    assert [(next(rest), torch.rand(1).item()) for _ in range(6)] == wanted


def test_an_iterator_that_is_dropped_has_no_position() -> None:
    loader = NEW["shuffle"]()
    follower = follow(loader, lambda: None)
    next(iter(loader))
    assert follower.state_dict() == {}


def test_other_things_are_left_as_they_are() -> None:
    data = [1, 2]
    assert follow(data, lambda: None) is data
    loader = NEW["shuffle"]()
    assert isinstance(follow(loader, lambda: None), Follower)
    assert len(loader) == 5
    assert isinstance(loader, DataLoader)
