"""The Vision Transformer's encoder (Dosovitskiy et al. 2020; Lu et al. 2021, section 3.2): bidirectional, pre-norm.

As in Lu et al. (appendix D.2) there is no class token and no pooler, and embeddings come from the task's input layer.
The position table is new in any case: a published one belongs to the patches of an image of one size.

Shape legend: `B` batch, `T` tokens, `D` width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor, nn
from transformers import ViTConfig
from transformers.models.vit.modeling_vit import ViTLayer

from lr_sweep.trainables.run import Protocol

from .bert import SIZES, common_config
from .family import LibraryBody, LibrarySize, Parts
from .published import ConfigFields


@dataclass(frozen=True, kw_only=True)
class Size(LibrarySize):
    """A ViT; `vit-base-patch16-224-in21k` is 12 layers, 12 heads, width 768."""

    family: ClassVar[str] = "vit"
    layer_norm_eps: Annotated[float, Interval(gt=0, le=1)] = 1e-12
    """Added to the variance by layer norms, 1e-6 in timm."""


class ViT(LibraryBody):
    """Embeddings (B, T, D) to final hidden states (B, T, D)."""

    always_new = ("position_embeddings",)

    def __init__(self, size: Size, num_tokens: int) -> None:
        super().__init__()
        self.size = size
        config = ViTConfig(**common_config(size), layer_norm_eps=size.layer_norm_eps)
        self.position_embeddings = nn.Parameter(torch.zeros(num_tokens, size.width))
        self.dropout = nn.Dropout()
        self.layers = nn.ModuleList(ViTLayer(config) for _ in range(size.layers))
        self.layernorm = nn.LayerNorm(size.width, eps=size.layer_norm_eps)

    def hidden_states(self, embeddings: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        x = self.dropout(embeddings + self.position_embeddings[: embeddings.shape[1]])  # (B, T, D)
        for layer in self.layers:
            x = layer(x, None)
        return self.layernorm(x)

    def parts(self) -> Parts:
        """Return the modules of each part."""
        layers: list[Any] = list(self.layers)
        norms = [
            norm for layer in layers for norm in (layer.layernorm_before, layer.layernorm_after)
        ]
        return {
            "positions": [self.position_embeddings],
            "layer_norms": [*norms, self.layernorm],
            "attention": [layer.attention for layer in layers],
            "feedforward": [layer.mlp for layer in layers],
            "last_attention": [layers[-1].attention],
        }

    def draw(self, protocol: Protocol, generator: torch.Generator) -> None:
        """Draw every parameter by the library's rule, position rows as those beyond a model's own."""
        super().draw(protocol, generator)
        self.position_embeddings.normal_(0.0, protocol.position_std, generator=generator)


build = ViT

_OF_LAYER = re.compile(r"(?:encoder\.layer|layers)\.(\d+)\.(.+)\.(weight|bias)")
_NAMES = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
"""Modules of a layer in older files -> in the library's layer; others have one name in both."""


def body_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of layers and final layer norm."""
    body: dict[str, Tensor] = {}
    for file_name, tensor in tensors.items():
        name = file_name.removeprefix("vit.")
        if match := _OF_LAYER.fullmatch(name):
            layer, module, kind = match.groups()
            body[f"layers.{layer}.{_NAMES.get(module, module)}.{kind}"] = tensor
        elif name in ("layernorm.weight", "layernorm.bias"):
            body[name] = tensor
    return body


FIELDS = ConfigFields(
    model_type="vit",
    sizes=SIZES | {"layer_norm_eps": "layer_norm_eps"},
    computed={"hidden_act": ("gelu", "gelu_python"), "qkv_bias": (True,)},
    defaults={"layer_norm_eps": 1e-12},
)
config_mistakes = FIELDS.mistakes
