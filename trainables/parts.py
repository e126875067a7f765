"""What is trained and how it starts: the table of parts and the four variants made of it."""

from __future__ import annotations

from dataclasses import dataclass

from datasets.task import TaskShape
from trainables.run import Initialisation, ModelSize

PARTS: dict[str, str] = {
    "input": "the layer that turns task tokens into embeddings; always new",
    "output": "the linear layer on the hidden state that is read; always new",
    "positions": "the positional embedding table",
    "layer_norms": "both layer norms of every block and the final one",
    "attention": "query, key, value and output projections of every block",
    "feedforward": "both linear layers of every block's feedforward",
}
"""Every parameter of a classifier is in exactly one part (`Classifier.parts`)."""


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
    """A named pair of initialisation and trained parts."""

    initialisation: Initialisation
    trained: tuple[str, ...]


VARIANTS: dict[str, Variant] = {
    "frozen-random": Variant(initialisation="random", trained=FROZEN_BODY),
    "frozen-pretrained": Variant(initialisation="pretrained", trained=FROZEN_BODY),
    "unfrozen-random": Variant(initialisation="random", trained=EVERYTHING),
    "unfrozen-pretrained": Variant(initialisation="pretrained", trained=EVERYTHING),
}
"""Rothermel et al. 2021, section 3."""
