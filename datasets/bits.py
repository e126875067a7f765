"""What the tasks of random bits share: fixed held-out sets, and training batches without end.

Held-out sets come from numpy's `RandomState`, whose stream numpy froze, keyed by the task, `data_seed` and the split's
name. Training batches come from the generator of the step.

Shape legend: `N` examples, `T` tokens an example, `D` numbers a token, `Q` answers an example.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .task import (
    ENDLESS,
    LARGEST_SEED,
    Split,
    TaskData,
    TaskShape,
    always,
    check_limits,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Uniform = Callable[..., "Tensor"]
"""Maps a shape to independent random numbers of that shape, uniform in [0, 1)."""
Make = Callable[[int, Uniform], Split]
"""Makes so many examples of uniform random numbers."""

_LARGEST_SPLIT = 1_000_000


@dataclass(frozen=True, kw_only=True)
class HeldOutOptions:
    """Options of the fixed sets of generated examples; training examples are new at every step."""

    num_validation: int = 1000
    """Validation examples."""
    num_test: int = 1000
    """Test examples."""
    num_train_evaluated: int = 1000
    """Examples on which train accuracy is measured."""
    data_seed: int = 0
    """Picks these three sets; has nothing to do with a run's seed, which picks the training batches."""

    def __post_init__(self) -> None:
        check_limits(self, ("num_validation", "num_test", "num_train_evaluated"), 1, _LARGEST_SPLIT)
        check_limits(self, ("data_seed",), 0, LARGEST_SEED)


num_train = always(ENDLESS)
origin = always("generated")
fetch = always(None)  # there are no files


def num_held_out(options: HeldOutOptions) -> int:
    """Return the validation and test examples."""
    return options.num_validation + options.num_test


def data_of(task: str, shape: TaskShape, options: HeldOutOptions, make: Make) -> TaskData:
    """Make a task's fixed sets on the CPU; further training examples are drawn with the generator passed."""

    def fixed(split: str, number: int) -> Split:
        return make(number, _uniform_numpy(f"{task}/{options.data_seed}/{split}"))

    return TaskData(
        shape=shape,
        train=fixed("train", options.num_train_evaluated),
        validation=fixed("validation", options.num_validation),
        test=fixed("test", options.num_test),
        draw=lambda number, generator: make(number, _uniform_torch(generator)),
    )


def version_checksum(task: str, version: int) -> Callable[..., str]:
    """Return a task's `checksum`, of the generator's name and version: else, its options decide the examples."""
    return always(hashlib.sha256(f"{task}/{version}".encode()).hexdigest())


def _uniform_numpy(key: str) -> Uniform:
    import torch

    words = np.frombuffer(hashlib.sha256(key.encode()).digest(), dtype="<u4")  # (8,)
    random = np.random.RandomState(words.astype(np.uint32))
    return lambda *shape: torch.from_numpy(random.random_sample(shape))


def _uniform_torch(generator: torch.Generator) -> Uniform:
    import torch

    return lambda *shape: torch.rand(shape, generator=generator, device=generator.device)
