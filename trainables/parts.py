"""What is trained and how it starts: the table of parts and the four variants made of it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from datasets.task import TaskShape

if TYPE_CHECKING:
    from trainables.run import ModelSize

Initialisation = Literal["random", "pretrained"]

PARTS: dict[str, str] = {
    "input": "the layer that turns task tokens into embeddings; always new",
    "output": "the linear layer on the hidden state that is read; always new",
    "positions": "the positional embedding table",
    "layer_norms": "both layer norms of every block and the final one",
    "attention": "query, key, value and output projections of every block",
    "feedforward": "both linear layers of every block's feedforward",
}
"""Every parameter of a classifier is in exactly one part (`Classifier.parts`)."""


def sorted_parts(trained: Iterable[str]) -> tuple[str, ...]:
    """Return names of trained parts in the order that run ids are hashed in.

    Raises:
        ValueError: there is none, one is named twice, or one is not in `PARTS`.
    """
    if isinstance(trained, str):
        raise ValueError(f"trained: got the text {trained!r}, want a tuple of parts: ({trained!r},)")
    return _sorted_parts(tuple(trained))


@functools.cache
def _sorted_parts(trained: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(sorted(trained))
    unknown = [name for name in names if name not in PARTS]
    twice = sorted({name for name in names if names.count(name) > 1} - set(unknown))
    mistakes = [f"unknown part {name!r}" for name in unknown] + [f"{name!r} more than once" for name in twice]
    if mistakes or not names:
        raise ValueError(f"trained: got {', '.join(mistakes) or 'no part'}; want some of {', '.join(sorted(PARTS))}")
    return names


def part_sizes(size: ModelSize, task: TaskShape) -> dict[str, int]:
    """Return how many numbers each part of `PARTS` has, without making any of them; a weight counts with its bias."""
    width = size.width
    if task.token_dim is not None:
        num_input = _linear(task.token_dim, width)
    else:
        assert task.num_token_ids is not None
        num_input = task.num_token_ids * width
    return {
        "input": num_input,
        "output": _linear(width, task.num_classes),
        "positions": max(size.positions, task.num_tokens) * width,
        "layer_norms": (2 * size.layers + 1) * 2 * width,
        "attention": size.layers * (_linear(width, 3 * width) + _linear(width, width)),
        "feedforward": size.layers * (_linear(width, 4 * width) + _linear(4 * width, width)),
    }


def _linear(num_in: int, num_out: int) -> int:
    return (num_in + 1) * num_out


FROZEN_BODY = ("input", "layer_norms", "output", "positions")
"""What stays trained around a frozen body (Lu et al. 2021, section 2.2)."""

EVERYTHING = tuple(sorted(PARTS))


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A named pair of initialisation and trained parts, which may be given in any order."""

    initialisation: Initialisation
    trained: tuple[str, ...]
    """Names in `PARTS`; sorted here."""

    def __post_init__(self) -> None:
        if self.initialisation not in get_args(Initialisation):
            raise ValueError(
                f"initialisation: got {self.initialisation!r}, want one of {', '.join(get_args(Initialisation))}"
            )
        object.__setattr__(self, "trained", sorted_parts(self.trained))


VARIANTS: dict[str, Variant] = {
    "frozen-random": Variant(initialisation="random", trained=FROZEN_BODY),
    "frozen-pretrained": Variant(initialisation="pretrained", trained=FROZEN_BODY),
    "unfrozen-random": Variant(initialisation="random", trained=EVERYTHING),
    "unfrozen-pretrained": Variant(initialisation="pretrained", trained=EVERYTHING),
}
"""The first four: Rothermel et al. 2021, section 3. To add a variant, add a line."""
