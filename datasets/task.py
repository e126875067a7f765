"""What a task is: splits as tensors, and the shape a model needs to know.

Tasks import torch where they load, not where they start: planning asks for options, shapes and checksums alone, and
torch takes seconds to import.

Shape legend: `N` examples, `T` tokens an example, `D` numbers a token.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor


class DataError(Exception):
    """Data is missing, corrupted or unreachable; the message says which file, what was wanted and what to do."""


@dataclass(frozen=True, kw_only=True)
class TaskShape:
    """What a model must know of a task: its tokens are symbols (`num_token_ids`) or real values (`token_dim`).

    Raises:
        DataError: it is no shape of a task.
    """

    num_tokens: int
    """Tokens an example, padding included."""
    num_classes: int
    num_token_ids: int | None = None
    """Size of the vocabulary, padding included; None: tokens are real-valued."""
    token_dim: int | None = None
    """Numbers a token; None: tokens are symbols."""

    def __post_init__(self) -> None:
        if (self.num_token_ids is None) == (self.token_dim is None):
            raise DataError(f"got {self}, want num_token_ids (symbols) or token_dim (real values), and not both")
        if wrong := [name for name, size in dataclasses.asdict(self).items() if size is not None and size < 1]:
            raise DataError(f"got {self}, want {' and '.join(wrong)} of 1 or more")


@dataclass(frozen=True, kw_only=True)
class Split:
    """Examples as tensors on one device."""

    inputs: Tensor
    """Symbols: (N, T) token ids of an integer type. Real values: (N, T, D) raw numbers, integers or floats."""
    labels: Tensor
    """(N,) int64 of 0 to `num_classes` - 1."""
    lengths: Tensor | None = None
    """(N,) int64 of 1 to T, real tokens of each example; None: all T."""

    def __len__(self) -> int:
        return len(self.labels)

    def num_batches(self, size: int) -> int:
        """Return the whole batches of so many examples in an epoch.

        Raises:
            DataError: there is none.
        """
        if size > len(self):
            raise DataError(f"protocol.batch_size is {size}, and the training split has {len(self)} examples: lower it")
        return len(self) // size

    def __getitem__(self, rows: slice | Tensor) -> Split:
        lengths = None if self.lengths is None else self.lengths[rows]
        return Split(inputs=self.inputs[rows], labels=self.labels[rows], lengths=lengths)

    def to(self, device: torch.device) -> Split:
        """Copy to a device."""
        lengths = None if self.lengths is None else self.lengths.to(device)
        return Split(inputs=self.inputs.to(device), labels=self.labels.to(device), lengths=lengths)


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task's three splits, ready to train on."""

    shape: TaskShape
    train: Split
    validation: Split
    test: Split
    origin: str
    """Where the examples came from, for tables: `generated`, `release`, `torchvision`, `scikit-learn`."""
    scale: Tensor | None = None
    """(D,) float32; real-valued tokens are `inputs * scale + shift`. None, with `shift`: they are the inputs."""
    shift: Tensor | None = None
    """(D,) float32."""
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    """Maps model-ready tokens (B, T, D) and a generator to tokens of the same shape; training batches only."""

    def to(self, device: torch.device) -> TaskData:
        """Copy to a device."""
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in ("train", "validation", "test")}
        if self.scale is not None and self.shift is not None:
            moved |= {"scale": self.scale.to(device), "shift": self.shift.to(device)}
        return dataclasses.replace(self, **moved)

    def tokens(self, inputs: Tensor) -> Tensor:
        """Turn raw inputs into what a model reads: (B, T) int64 ids or (B, T, D) float32."""
        if self.shape.token_dim is None:
            return inputs.long()  # (B, T)
        if self.scale is None or self.shift is None:
            return inputs.float()  # (B, T, D)
        return inputs.float() * self.scale + self.shift  # (B, T, D)


class Task(Protocol):
    """A module of this package. `options` is an instance of the task's own `Options` dataclass."""

    @property
    def Options(self) -> type:  # noqa: N802
        """Frozen keyword-only dataclass; every field has a documented default."""

    def shape(self, options: Any) -> TaskShape:
        """Tell the shape without touching data."""

    def num_train(self, options: Any) -> int:
        """Return the size of the training split without touching data; no study may have larger batches."""

    def checksum(self, options: Any, data_dir: Path) -> str:
        """Identify the examples that `load` would give, without loading or downloading them.

        It must change with everything that `load` reads: the bytes of its files, versions of a library that makes or
        changes examples, anything outside the code. Options are in a run's id anyway, and so is the code of a task of
        your own (`datasets.sources`). Data that changes under the same checksum is the same run, and is not trained
        again.
        """

    def origin(self, options: Any, data_dir: Path) -> str:
        """Tell what `load` would give as `TaskData.origin`, without loading."""

    def fetch(self, options: Any, data_dir: Path) -> None:
        """Make sure the data is in `data_dir`: verify, download or generate, once, under a lock.

        Raises:
            DataError: missing and not to be had, or corrupted.
        """

    def load(self, options: Any, data_dir: Path) -> TaskData:
        """Fetch, then read the three splits into memory on the CPU.

        Raises:
            DataError: as `fetch`.
        """


def missing_names(task: object) -> list[str]:
    """Return what a module lacks to be a task; there is nothing to import from `Task` that would say so itself."""
    return [name for name in vars(Task) if not name.startswith("_") and not hasattr(task, name)]
