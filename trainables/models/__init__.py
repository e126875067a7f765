"""In: embeddings. Out: hidden states. One file per family of bodies, listed here.

To add a family: write one file with what `trainables.models.family.Family` lists, and add one line to `FAMILIES`.
The stacked engine serves GPT-2 alone; other families train in the plain one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from lr_sweep.trainables.run import BodySize, ModelSize

if TYPE_CHECKING:
    from .family import Family

FAMILIES: dict[str, str] = {
    "gpt2": "lr_sweep.trainables.models.gpt2",
    "lstm": "lr_sweep.trainables.models.lstm",
    "bert": "lr_sweep.trainables.models.bert",
    "t5": "lr_sweep.trainables.models.t5",
    "longformer": "lr_sweep.trainables.models.longformer",
    "vit": "lr_sweep.trainables.models.vit",
}
"""Module of each family; imported when a study names it, because it takes torch, and some take transformers."""


def load_family(name: str) -> Family:
    """Import a family of `FAMILIES`."""
    return cast("Family", importlib.import_module(FAMILIES[name]))


def size_type(family: str) -> type[BodySize]:
    """Return what the sizes of a family are; for all but GPT-2 this imports torch."""
    return ModelSize if family == "gpt2" else load_family(family).Size
