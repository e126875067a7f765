"""T5's encoder alone (Raffel et al. 2019; Lu et al. 2021, section 3.14), of the transformers library's blocks.

Positions are a bias of attention by relative distance, shared by all blocks; any number of tokens will do.

Shape legend: `B` batch, `T` tokens, `D` width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Block, T5LayerNorm

from lr_sweep.common.limits import Dimension
from lr_sweep.trainables.run import Protocol

from .family import LibraryBody, LibrarySize, Parts, tensors_of
from .published import ConfigFields

LEAST_BUCKETS = 4
"""A quarter of the buckets are for single distances; with fewer, that is none, and the library divides by it."""


@dataclass(frozen=True, kw_only=True)
class Size(LibrarySize):
    """An encoder of T5's first version; `t5-base` is 12 layers, 12 heads, width 768."""

    family: ClassVar[str] = "t5"
    buckets: Dimension = 32
    """Rows of the table of relative positions, from 4; half of them are for tokens to the right."""
    max_distance: Dimension = 128
    """Tokens at this distance and farther share a row; more than a quarter of `buckets`."""

    def __post_init__(self) -> None:
        if self.buckets < LEAST_BUCKETS:
            raise ValueError(f"buckets: got {self.buckets}, want at least {LEAST_BUCKETS}")
        if self.max_distance <= (exact := self.buckets // 2 // 2):
            raise ValueError(
                f"max_distance: got {self.max_distance}, want more than {exact}: a quarter of the buckets"
            )

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.width // self.heads


class T5Encoder(LibraryBody):
    """Embeddings (B, T, D) to final hidden states (B, T, D)."""

    def __init__(self, size: Size, num_tokens: int) -> None:
        super().__init__()
        self.size = size
        sizes = {name: getattr(size, attribute) for name, attribute in FIELDS.sizes.items()}
        # Fused attention adds up its gradients in no fixed order on a GPU.
        config = T5Config(**sizes, attn_implementation="eager")
        blocks = (
            T5Block(config, has_relative_attention_bias=index == 0, layer_idx=index)
            for index in range(size.layers)
        )
        self.block = nn.ModuleList(blocks)
        self.final_layer_norm = T5LayerNorm(size.width, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout()

    @property
    def layers(self) -> list[tuple[Any, Any]]:
        """Self-attention and feedforward of each block, with their layer norms."""
        blocks: list[Any] = list(self.block)
        return [(block.layer[0], block.layer[1]) for block in blocks]

    def hidden_states(self, embeddings: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        x, bias = self.dropout(embeddings), None
        for block in self.block:
            x, bias, *_ = block(x, None, bias)  # (B, T, D), (1, heads, T, T): the first block's
        return self.dropout(self.final_layer_norm(x))

    def parts(self) -> Parts:
        """Return the modules of each part."""
        attentions = []
        for attention, _ in self.layers:
            own = attention.SelfAttention
            attentions.append([own.q, own.k, own.v, own.o])
        norms = [module.layer_norm for pair in self.layers for module in pair]
        return {
            "positions": [self.layers[0][0].SelfAttention.relative_attention_bias],
            "layer_norms": [*norms, self.final_layer_norm],
            "attention": [linear for attention in attentions for linear in attention],
            "feedforward": [feedforward.DenseReluDense for _, feedforward in self.layers],
            "last_attention": attentions[-1],
        }

    def draw(self, protocol: Protocol, generator: torch.Generator) -> None:
        """Draw every parameter by the library's rule, that of Raffel et al.'s code."""
        of_width = self.size.width**-0.5
        for attention, feedforward in self.layers:
            own, linear = attention.SelfAttention, feedforward.DenseReluDense
            own.q.weight.normal_(0.0, of_width * self.size.head_width**-0.5, generator=generator)
            for weight in (own.k.weight, own.v.weight, own.o.weight, linear.wi.weight):
                weight.normal_(0.0, of_width, generator=generator)
            linear.wo.weight.normal_(0.0, self.size.feedforward**-0.5, generator=generator)
            attention.layer_norm.weight.fill_(1.0)
            feedforward.layer_norm.weight.fill_(1.0)
        bias = self.layers[0][0].SelfAttention.relative_attention_bias
        bias.weight.normal_(0.0, of_width, generator=generator)
        self.final_layer_norm.weight.fill_(1.0)


build = T5Encoder


def body_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the encoder's tensors of a whole T5."""
    return tensors_of(tensors, "encoder.", ("block", "final_layer_norm"))


FIELDS = ConfigFields(
    model_type="t5",
    sizes={
        "d_model": "width",
        "num_layers": "layers",
        "num_heads": "heads",
        "d_kv": "head_width",
        "d_ff": "feedforward",
        "relative_attention_num_buckets": "buckets",
        "relative_attention_max_distance": "max_distance",
    },
    computed={"feed_forward_proj": ("relu",), "layer_norm_epsilon": (1e-6,)},
    defaults={"relative_attention_max_distance": 128},  # files from before 2022 lack it
)
config_mistakes = FIELDS.mistakes
