"""Known models: the table of sizes, and where their published weights are."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.run import ModelSize


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """A published GPT-2: its size and its weights on the Hugging Face hub."""

    size: ModelSize
    hub: str
    """Repository, `owner/name`."""
    revision: str | None = None
    """Commit of the repository; None: the newest."""
    sha256: str | None = None
    """Of `model.safetensors` at that revision, 64 hex digits; None: not pinned, whatever comes is taken."""


MODELS: dict[str, KnownModel] = {
    "gpt2": KnownModel(
        size=ModelSize(layers=12, heads=12, width=768),
        hub="openai-community/gpt2",
        revision="607a30d783dfa663caf39e06633721c8d4cfcd7e",
        sha256="248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
    ),
    "distilgpt2": KnownModel(
        size=ModelSize(layers=6, heads=12, width=768),
        hub="distilbert/distilgpt2",
        revision="2290a62682d06624634c1f46a6ad5be0f47f38aa",
        sha256="e1ff18884359fe8beb795a5f414feb85a6ce3d929ad019c0d958c039d2b94a1b",
    ),
    "gpt2-medium": KnownModel(size=ModelSize(layers=24, heads=16, width=1024), hub="openai-community/gpt2-medium"),
    "gpt2-large": KnownModel(size=ModelSize(layers=36, heads=20, width=1280), hub="openai-community/gpt2-large"),
}
"""Radford et al. 2019, table 2; distilgpt2: Sanh et al. 2019. A study may give other sizes under other names."""
