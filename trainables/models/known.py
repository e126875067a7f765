"""Known models: the table of sizes, and where their published weights are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lr_sweep.trainables.models import size_type
from lr_sweep.trainables.run import BodySize


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """A published model: its size and its weights on the Hugging Face hub."""

    family: str = "gpt2"
    """A name in `trainables.models.FAMILIES`."""
    options: dict[str, Any]
    """Fields of the family's `Size`."""
    hub: str
    """Repository, `owner/name`."""
    revision: str | None = None
    """Commit of the repository; None: the newest."""
    sha256: str | None = None
    """sha256 of `model.safetensors` at that revision, 64 hex digits; None: whatever comes is taken."""

    @property
    def size(self) -> BodySize:
        """The model's size."""
        return size_type(self.family)(**self.options)


BASE = {"layers": 12, "heads": 12, "width": 768}

MODELS: dict[str, KnownModel] = {
    "gpt2": KnownModel(
        options=BASE,
        hub="openai-community/gpt2",
        revision="607a30d783dfa663caf39e06633721c8d4cfcd7e",
        sha256="248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
    ),
    "distilgpt2": KnownModel(
        options={"layers": 6, "heads": 12, "width": 768},
        hub="distilbert/distilgpt2",
        revision="2290a62682d06624634c1f46a6ad5be0f47f38aa",
        sha256="e1ff18884359fe8beb795a5f414feb85a6ce3d929ad019c0d958c039d2b94a1b",
    ),
    "gpt2-medium": KnownModel(options={"layers": 24, "heads": 16, "width": 1024}, hub="openai-community/gpt2-medium"),
    "gpt2-large": KnownModel(options={"layers": 36, "heads": 20, "width": 1280}, hub="openai-community/gpt2-large"),
    "gpt2-xl": KnownModel(options={"layers": 48, "heads": 25, "width": 1600}, hub="openai-community/gpt2-xl"),
    "bert-base-uncased": KnownModel(family="bert", options=BASE, hub="google-bert/bert-base-uncased"),
    "t5-base": KnownModel(family="t5", options=BASE, hub="google-t5/t5-base"),
    "longformer-base-4096": KnownModel(family="longformer", options=BASE, hub="allenai/longformer-base-4096"),
    "vit-base-patch16-224-in21k": KnownModel(family="vit", options=BASE, hub="google/vit-base-patch16-224-in21k"),
}
"""Radford et al. 2019, table 2; distilgpt2: Sanh et al. 2019; the others: Lu et al. 2021, sections 3.2 and 3.14. A
study may give other sizes under other names."""
