"""Published models: their sizes, where their weights are, and what a `config.json` of weights must say. Needs no torch.

A family's table has every field of the library's configuration that changes hidden states; tests list the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.trainables.models import size_type
from lr_sweep.trainables.run import BodySize


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """A published model: its size and its weights on the Hugging Face hub."""

    family: str = "gpt2"
    """A name in `trainables.models.FAMILIES`."""
    options: Fields
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
    "gpt2-medium": KnownModel(
        options={"layers": 24, "heads": 16, "width": 1024}, hub="openai-community/gpt2-medium"
    ),
    "gpt2-large": KnownModel(
        options={"layers": 36, "heads": 20, "width": 1280}, hub="openai-community/gpt2-large"
    ),
    "gpt2-xl": KnownModel(
        options={"layers": 48, "heads": 25, "width": 1600}, hub="openai-community/gpt2-xl"
    ),
    "bert-base-uncased": KnownModel(
        family="bert", options=BASE, hub="google-bert/bert-base-uncased"
    ),
    "t5-base": KnownModel(family="t5", options=BASE, hub="google-t5/t5-base"),
    "longformer-base-4096": KnownModel(
        family="longformer", options=BASE, hub="allenai/longformer-base-4096"
    ),
    "vit-base-patch16-224-in21k": KnownModel(
        family="vit", options=BASE, hub="google/vit-base-patch16-224-in21k"
    ),
}
"""Radford et al. 2019, table 2; distilgpt2: Sanh et al. 2019; the others: Lu et al. 2021, sections 3.2 and 3.14. A
study may give other sizes under other names."""


@dataclass(frozen=True, kw_only=True)
class ConfigFields:
    """The fields of a family's configuration that change the function."""

    model_type: str
    """Name of the family. Others may have tensors of the same names and compute something else."""
    sizes: Mapping[str, str]
    """Fields that must agree with the study's model -> their names in the family's `Size`."""
    computed: Mapping[str, tuple[Any, ...]]
    """Other fields -> the values that are computed, first the one that a missing field means."""
    defaults: ReadFields = field(default_factory=dict)
    """Fields of `sizes` that may be missing -> what they are then."""

    def mistakes(self, config: ReadFields, size: Any) -> Iterator[str]:
        """Yield what a configuration says that a body of this size does not compute; size None: of any size."""
        if config.get("model_type") != self.model_type:
            yield f"model_type: {_got(config, 'model_type')}, want {self.model_type!r}: only that family is computed"
            return
        for name, values in self.computed.items():
            if name in config and config[name] not in values:
                first, *others = map(shown, values)
                same = f" (or {', '.join(others)}, which are the same)" if others else ""
                yield f"{name}: {_got(config, name)}, want {first}{same}"
        for name, attribute in self.sizes.items() if size is not None else ():
            value = getattr(size, attribute)
            if config.get(name, self.defaults.get(name)) != value:
                yield f"{name}: {_got(config, name)}, want {value}: the study's model has {attribute}: {value}"


GPT2 = ConfigFields(
    model_type="gpt2",
    sizes={"n_layer": "layers", "n_head": "heads", "n_embd": "width", "n_positions": "positions"},
    computed={
        # One function, the tanh approximation of GELU, written in different ways.
        "activation_function": (
            "gelu_new",
            "gelu_fast",
            "gelu_accurate",
            "gelu_pytorch_tanh",
            "gelu_python_tanh",
        ),
        "layer_norm_epsilon": (1e-5,),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "is_causal": (True,),  # no field of `GPT2Config`, yet transformers obeys it
    },
)
"""The width of the feedforward, `n_inner`, is checked by the tensors' shapes."""


def _got(config: ReadFields, name: str) -> str:
    return f"got {shown(config[name])}" if name in config else "it is missing"


def shown(value: Any) -> str:
    """Return a JSON value in 60 characters at most."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
