"""The Vision Transformer's encoder (Dosovitskiy et al. 2020; Lu et al. 2021, section 3.2): bidirectional, pre-norm.

As in Lu et al. (appendix D.2) there is no class token and no pooler, and embeddings come from the task's input layer.
The position table is new in any case: a published one belongs to the patches of an image of one size.

Shape legend: `B` batch, `T` tokens, `D` width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor, nn
from transformers import ViTConfig
from transformers.models.vit.modeling_vit import ViTLayer

from lr_sweep.trainables.models.bert import SIZES, common_config
from lr_sweep.trainables.models.config import ConfigFields, got
from lr_sweep.trainables.models.family import LibraryBody, LibrarySize
from lr_sweep.trainables.run import Protocol


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

    def parts(self) -> dict[str, list[nn.Module | nn.Parameter]]:
        """Return the modules of each part."""
        layers: list[Any] = list(self.layers)
        norms = [norm for layer in layers for norm in (layer.layernorm_before, layer.layernorm_after)]
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

_OF_LAYER = re.compile(r"(?:encoder\.layer|layers|blocks)\.(\d+)\.(.+)\.(weight|bias)")
_NAMES = {
    # files of transformers
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    # files of timm
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.o_proj",
}
"""Modules of a layer in files -> in the library's layer; others have one name in both."""


def body_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of layers and final layer norm, from a file of transformers or of timm."""
    body: dict[str, Tensor] = {}
    for file_name, tensor in tensors.items():
        name = file_name.removeprefix("vit.")
        if found := _OF_LAYER.fullmatch(name):
            layer, module, kind = found.groups()
            if module == "attn.qkv":
                for each, own in zip(("q_proj", "k_proj", "v_proj"), tensor.chunk(3), strict=True):
                    body[f"layers.{layer}.attention.{each}.{kind}"] = own
            else:
                body[f"layers.{layer}.{_NAMES.get(module, module)}.{kind}"] = tensor
        elif name in ("layernorm.weight", "layernorm.bias", "norm.weight", "norm.bias"):
            body[f"layernorm.{name.split('.')[1]}"] = tensor
    return body


FIELDS = ConfigFields(
    model_type="vit",
    sizes=SIZES | {"layer_norm_eps": "layer_norm_eps"},
    computed={"hidden_act": ("gelu", "gelu_python"), "qkv_bias": (True,)},
    defaults={"layer_norm_eps": 1e-12},
)
_OF_TIMM = re.compile(r"vit_(tiny|small|base|large)_patch\d+_\d+(\..+)?")
"""Architectures of timm that differ in size alone; `_clip_`, `_rope_` and others compute something else."""
TIMM_HEAD_WIDTH, TIMM_EPS = 64, 1e-6


def config_mistakes(config: Mapping[str, Any], size: Any) -> Iterator[str]:
    """Yield what a `config.json` of transformers or of timm says that a ViT of this size does not compute."""
    if "model_type" in config or "architecture" not in config:
        yield from FIELDS.mistakes(config, size)
        return
    if not (isinstance(name := config["architecture"], str) and _OF_TIMM.fullmatch(name)):
        yield f"architecture: {got(config, 'architecture')}, want a plain ViT, such as vit_base_patch16_224"
    if size is None:
        return
    if config.get("num_features") != size.width:
        yield f"num_features: {got(config, 'num_features')}, want {size.width}: the width of the study's model"
    if size.width != TIMM_HEAD_WIDTH * size.heads:
        yield (
            f"heads of timm's models are {TIMM_HEAD_WIDTH} wide: "
            f"width: {size.width} does not go with heads: {size.heads}"
        )
    if size.layer_norm_eps != TIMM_EPS:
        yield f"timm's models have layer_norm_eps: {TIMM_EPS}, the study's model has {size.layer_norm_eps}"
