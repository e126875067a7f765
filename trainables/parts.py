"""What is trained and how it starts: the table of parts and the four variants made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Initialisation = Literal["random", "pretrained", "statistics"]
"""`statistics`: random, each tensor with the pretrained one's mean and deviation (Lu et al. 2021, section 3.8)."""

PARTS: dict[str, str] = {
    "input": "the layer that turns task tokens into embeddings; always new",
    "output": "the linear layer on the hidden state that is read; always new",
    "positions": "the positional embedding table",
    "layer_norms": "both layer norms of every block and the final one",
    "attention": "query, key, value and output projections of every block",
    "feedforward": "both linear layers of every block's feedforward",
    "last_attention": "attention of the last block, which is a part of `attention`",
}
"""Every parameter of a classifier is in exactly one of the first six (`Classifier.parts`)."""


def sorted_parts(trained: Iterable[str]) -> tuple[str, ...]:
    """Return names of trained parts in the order that run ids are hashed in; raises ValueError for what is none."""
    if isinstance(trained, str):
        raise ValueError(
            f"trained: got the text {trained!r}, want a tuple of parts: ({trained!r},)"
        )
    names = tuple(sorted(trained))
    unknown = [name for name in names if name not in PARTS]
    twice = sorted({name for name in names if names.count(name) > 1} - set(unknown))
    mistakes = [f"unknown part {name!r}" for name in unknown] + [
        f"{name!r} more than once" for name in twice
    ]
    if {"attention", "last_attention"} <= set(names):
        mistakes.append("attention and last_attention, which is a part of it")
    if mistakes or not names:
        raise ValueError(
            f"trained: got {', '.join(mistakes) or 'no part'}; want some of {', '.join(sorted(PARTS))}"
        )
    return names


FROZEN_BODY = ("input", "layer_norms", "output", "positions")
"""What stays trained around a frozen body (Lu et al. 2021, section 2.2)."""

EVERYTHING = ("attention", "feedforward", "input", "layer_norms", "output", "positions")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A pair of initialisation and trained parts, which may be given in any order."""

    initialisation: Initialisation
    """How the body starts; `statistics`: random, with each pretrained tensor's mean and deviation."""
    trained: tuple[str, ...]
    """Parts that are trained: input, output, positions, layer_norms, attention, feedforward, last_attention."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "trained", sorted_parts(self.trained))

    @property
    def needs_weights(self) -> bool:
        """Whether it starts from pretrained weights, or from what they are like."""
        return self.initialisation != "random"


VARIANTS: dict[str, Variant] = {
    "frozen-random": Variant(initialisation="random", trained=FROZEN_BODY),
    "frozen-pretrained": Variant(initialisation="pretrained", trained=FROZEN_BODY),
    "unfrozen-random": Variant(initialisation="random", trained=EVERYTHING),
    "unfrozen-pretrained": Variant(initialisation="pretrained", trained=EVERYTHING),
}
"""The first four: Rothermel et al. 2021, section 3. To add a variant, add a line, or give it in the study file."""
