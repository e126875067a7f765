"""What a task is: splits as tensors, and the shape a model needs to know. Tasks import torch, which is slow, late.

Shape legend: `N` examples, `T` tokens an example, `D` numbers a token, `Q` answers an example.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lr_sweep.common.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch
    from torch import Tensor

T = TypeVar("T")

ENDLESS = 10**9
"""`Task.num_train` of tasks whose training examples are drawn (`TaskData.draw`)."""
LARGEST_SEED = 2**32 - 1
"""Largest seed of numpy's `RandomState`."""


class DataError(UserError):
    """Data is missing, corrupted or unreachable; the message says which file, what was wanted and what to do."""


def check_limits(options: object, names: Iterable[str], low: int, high: int) -> None:
    """Raise ValueError if one of these options is not within limits, which are inclusive."""
    for name in names:
        if not low <= getattr(options, name) <= high:
            raise ValueError(f"{name} is {getattr(options, name)}, wanted {low} to {high}")


def always(value: T) -> Callable[..., T]:
    """Return a function of `Task` that returns this whatever the options, such as `origin`."""
    return lambda *arguments: value


def options_content(options: Any) -> dict[str, Any]:
    """Return the options of a task or a protocol by name, as run ids have them.

    Options in the class's `later`, which came after runs were recorded, are left out at their defaults, so ids stay.
    """
    later = getattr(options, "later", ())
    return {
        field.name: value
        for field in dataclasses.fields(options)
        if (value := getattr(options, field.name)) != field.default or field.name not in later
    }


@dataclass(frozen=True, kw_only=True)
class TaskShape:
    """What a model must know of a task: its tokens are symbols (`num_token_ids`) or real values (`token_dim`)."""

    num_tokens: int
    """Tokens an example, padding included."""
    num_classes: int
    """Classes of each answer."""
    num_token_ids: int | None = None
    """Size of the vocabulary, padding included; None: tokens are real-valued."""
    token_dim: int | None = None
    """Numbers a token; None: tokens are symbols."""
    num_answers: int = 1
    """Classes to predict for each example, Q; loss and accuracy are means over them."""
    num_read: int = 1
    """Last positions that the output layer reads; each gives Q / `num_read` answers, in order."""

    def __post_init__(self) -> None:
        if (self.num_token_ids is None) == (self.token_dim is None):
            raise DataError(
                f"got {self}, want num_token_ids (symbols) or token_dim (real values), and not both"
            )
        if wrong := [
            name for name, size in dataclasses.asdict(self).items() if size is not None and size < 1
        ]:
            raise DataError(f"got {self}, want {' and '.join(wrong)} of 1 or more")
        if self.num_read > self.num_tokens or self.num_answers % self.num_read:
            raise DataError(
                f"got {self}, want num_read of num_tokens at most, and a divisor of num_answers"
            )

    @property
    def num_outputs(self) -> int:
        """Logits that the output layer gives at each position it reads."""
        return self.num_answers // self.num_read * self.num_classes


@dataclass(frozen=True, kw_only=True)
class Split:
    """Examples as tensors on one device."""

    inputs: Tensor
    """Symbols: (N, T) token ids of an integer type. Real values: (N, T, D) raw numbers, integers or floats."""
    labels: Tensor
    """(N,), or (N, Q) of tasks with several answers: int64 of 0 to `num_classes` - 1."""
    lengths: Tensor | None = None
    """(N,) int64 of 1 to T, real tokens of each example; None: all T."""

    def __len__(self) -> int:
        return len(self.labels)

    def num_batches(self, size: int) -> int:
        """Return the number of whole batches of `size` examples in an epoch; raises DataError if there is none."""
        if size > len(self):
            raise DataError(
                f"protocol.batch_size is {size}, and the training split has {len(self)} examples: lower it"
            )
        return len(self) // size

    def __getitem__(self, rows: slice | Tensor) -> Split:
        return self._map(lambda tensor: tensor[rows])

    @staticmethod
    def stack(splits: Sequence[Split]) -> Split:
        """Put K splits of one size side by side: each tensor gets a first dimension K."""
        import torch

        lengths = [split.lengths for split in splits if split.lengths is not None]
        return Split(
            inputs=torch.stack([split.inputs for split in splits]),
            labels=torch.stack([split.labels for split in splits]),
            lengths=torch.stack(lengths) if lengths else None,
        )

    def to(self, device: torch.device) -> Split:
        """Copy to a device."""
        return self._map(lambda tensor: tensor.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Split:
        lengths = None if self.lengths is None else change(self.lengths)
        return Split(inputs=change(self.inputs), labels=change(self.labels), lengths=lengths)


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task's three splits, ready to train on."""

    shape: TaskShape
    train: Split
    """Training examples; of an endless task, those on which train accuracy is measured."""
    validation: Split
    test: Split
    scale: Tensor | None = None
    """(D,) float32; real-valued tokens are `inputs * scale + shift`. None, with `shift`: they are the inputs."""
    shift: Tensor | None = None
    """(D,) float32."""
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    """Maps model-ready tokens (B, T, D) and a generator to tokens of the same shape; training batches only."""
    draw: Callable[[int, torch.Generator], Split] | None = None
    """Draws so many training examples on the generator's device: the task is endless. None: they are of `train`."""

    def to(self, device: torch.device) -> TaskData:
        """Copy to a device."""
        names = ("train", "validation", "test", "scale", "shift")
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        return dataclasses.replace(
            self,
            **{name: tensor.to(device) for name, tensor in given.items() if tensor is not None},
        )

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
        """Frozen keyword-only dataclass; every field has a documented default. `later`: see `options_content`."""

    def shape(self, options: Any) -> TaskShape:
        """Return the shape without touching data."""

    def num_train(self, options: Any) -> int:
        """Return the size of the training split without touching data: the largest batch; endless tasks: `ENDLESS`."""

    def num_held_out(self, options: Any) -> int:
        """Return the sizes of validation and test split together without touching data; for `plan --device`."""

    def checksum(self, options: Any, data_dir: Path) -> str:
        """Return a text that identifies the examples that `load` would return, without loading or downloading them.

        It must change with everything outside the code that `load` reads: files, or versions of a library that changes
        examples. Runs on data that changes under the same checksum are not trained again.
        """

    def origin(self, options: Any, data_dir: Path) -> str:
        """Return where the examples come from, for tables: `generated`, `release`, `torchvision`, `scikit-learn`."""

    def fetch(self, options: Any, data_dir: Path) -> None:
        """Verify, download or generate the data, once, under a lock; raises DataError if it cannot be had."""

    def load(self, options: Any, data_dir: Path) -> TaskData:
        """Fetch, then read the three splits into memory on the CPU; raises as `fetch`."""


def missing_names(task: object) -> list[str]:
    """Return the names of `Task` that a module lacks."""
    return [name for name in vars(Task) if not name.startswith("_") and not hasattr(task, name)]
