"""In: embeddings. Out: hidden states. One file per family of bodies, listed here.

To add a family: write one file with what `trainables.models.family.Family` lists, and add one line to `FAMILIES`.
The stacked engine serves GPT-2 alone; other families train in the plain one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

from lr_sweep.trainables.run import BodySize, ModelSize, refuse_gone

if TYPE_CHECKING:
    from lr_sweep.trainables.models.family import Family

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


def size_from(content: Mapping[str, Any]) -> BodySize:
    """Rebuild a model's size from what `Run.content()` has of it; raises as `refuse_gone`."""
    options = dict(content)
    family = options.pop("family", "gpt2")
    refuse_gone({family: "family"}, FAMILIES)
    kind = size_type(family)
    refuse_gone(options, [field.name for field in fields(kind)])
    return kind(**{**kind.later, **options})
