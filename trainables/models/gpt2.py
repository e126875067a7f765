"""GPT-2's transformer body (Radford et al. 2019) with the parameter names and layouts of Hugging Face's `GPT2Model`.

Written out rather than imported, because dropout must draw from a generator that is passed in: a run's masks are keyed
by seed and step. There is no token table: tokens of other modalities enter as embeddings.

Shape legend: `B` batch, `T` tokens, `D` width, `H` heads, `K` = D / H.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lr_sweep.trainables.models.attention import AttentionNoise, attend_long
from lr_sweep.trainables.models.config import gpt2_mistakes
from lr_sweep.trainables.models.family import WEIGHT_STD, Body, Dropout
from lr_sweep.trainables.models.parametrization import width_ratio
from lr_sweep.trainables.run import OWN_MASKS, ModelSize, Protocol

Size = ModelSize


class Conv1D(nn.Module):
    """A linear layer that stores its weight as (in, out), as GPT-2's checkpoints do."""

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_in, num_out))
        self.bias = nn.Parameter(torch.zeros(num_out))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


class _Attention(nn.Module):
    """Causal self-attention of (B, T, D)."""

    def __init__(self, size: ModelSize, layer: int) -> None:
        super().__init__()
        self.heads, self.layer, self.query_factor = size.heads, layer, 1.0
        self.c_attn = Conv1D(size.width, 3 * size.width)
        self.c_proj = Conv1D(size.width, size.width)

    def forward(self, x: Tensor, dropout: Dropout | None) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self._heads(x)  # each (B, H, T, K)
        if dropout is None or dropout.probability == 0.0:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, K)
        elif dropout.attention in OWN_MASKS:
            key = dropout.generator.initial_seed()
            noise = AttentionNoise(keys=(key,), readers=((0,),), layer=self.layer, probability=dropout.probability)
            mixed = attend_long(dropout.attention, q, k, v, noise)  # (B, H, T, K)
        else:
            mixed = dropout(_causal_weights(q, k)) @ v  # (B, H, T, K)
        return self.c_proj(mixed.transpose(1, 2).reshape(batch, tokens, width))  # (B, T, D)

    def weights(self, x: Tensor) -> Tensor:
        """Return how much each token attends to each, in evaluation mode: (B, H, T, T) of (B, T, D)."""
        q, k, _ = self._heads(x)
        return _causal_weights(q, k)

    def _heads(self, x: Tensor) -> Sequence[Tensor]:
        """Return queries, keys and values, each (B, H, T, K)."""
        batch, tokens, width = x.shape
        qkv = self.c_attn(x).view(batch, tokens, 3, self.heads, width // self.heads)  # (B, T, 3, H, K)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return (q if self.query_factor == 1.0 else q * self.query_factor), k, v


def _causal_weights(q: Tensor, k: Tensor) -> Tensor:
    """Return the softmax of query-key products over a token and those before it, (B, H, T, T) of (B, H, T, K)."""
    future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)  # (T, T)
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])  # (B, H, T, T)
    return scores.masked_fill(future, -torch.inf).softmax(-1)


class _Feedforward(nn.Module):
    """Two linear layers with GPT-2's tanh approximation of GELU between them, of (B, T, D)."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.c_fc = Conv1D(size.width, 4 * size.width)
        self.c_proj = Conv1D(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))  # (B, T, 4 D) inside


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, size: ModelSize, layer: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(size.width)
        self.attn = _Attention(size, layer)
        self.ln_2 = nn.LayerNorm(size.width)
        self.mlp = _Feedforward(size)

    def forward(self, x: Tensor, dropout: Dropout | None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        attended = self.attn(self.ln_1(x), dropout)
        x = x + (dropout(attended) if dropout else attended)  # (B, T, D)
        fed = self.mlp(self.ln_2(x))
        return x + (dropout(fed) if dropout else fed)  # (B, T, D)


class GPT2(Body):
    """Embeddings (B, T, D) to final hidden states (B, T, D); `dropout=None` is evaluation mode."""

    position_table = "wpe.weight"

    def __init__(self, size: ModelSize, num_tokens: int = 0) -> None:
        super().__init__()
        self.size = size
        table = torch.empty(max(size.positions, num_tokens), size.width)
        self.wpe = nn.Embedding.from_pretrained(table, freeze=False)
        self.h = nn.ModuleList(Block(size, layer) for layer in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)

    def forward(self, embeddings: Tensor, dropout: Dropout | None = None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        x = embeddings + self.wpe.weight[: embeddings.shape[1]]  # (B, T, D)
        x = dropout(x) if dropout else x
        for block in self.h:
            x = block(x, dropout)
        return self.ln_f(x)  # (B, T, D)

    def multiply_queries(self, factor: float) -> None:
        """Have every block's attention multiply its queries (`parametrization.query_factor`)."""
        for block in self.h:
            block.attn.query_factor = factor  # type: ignore[union-attr]

    def attention_weights(self, embeddings: Tensor, layer: int) -> Tensor:
        """Return a block's attention weights in evaluation mode, (B, H, T, T) of (B, T, D); `layer` counts from 0."""
        x = embeddings + self.wpe.weight[: embeddings.shape[1]]  # (B, T, D)
        blocks: list[Any] = list(self.h)
        for block in blocks[:layer]:
            x = block(x, None)
        return blocks[layer].attn.weights(blocks[layer].ln_1(x))

    def parts(self) -> dict[str, list[nn.Module | nn.Parameter]]:
        """Return the modules of each part."""
        blocks: list[Any] = list(self.h)
        return {
            "positions": [self.wpe],
            "layer_norms": [m for b in blocks for m in (b.ln_1, b.ln_2)] + [self.ln_f],
            "attention": [b.attn for b in blocks],
            "feedforward": [b.mlp for b in blocks],
            "last_attention": [blocks[-1].attn],
        }

    def draw(self, protocol: Protocol, generator: torch.Generator) -> None:
        """Draw every parameter by `Protocol.random_init`; biases are 0 and layer norms (1, 0) as built."""
        for name, module in self.named_modules():
            if isinstance(module, Conv1D):
                scaled = protocol.random_init == "library" and name.endswith("c_proj")
                std = WEIGHT_STD / math.sqrt(2 * self.size.layers) if scaled else WEIGHT_STD
                std /= math.sqrt(width_ratio(protocol, self.size.width))
                module.weight.normal_(0.0, std, generator=generator)
            elif isinstance(module, nn.Embedding):
                own = self.size.positions
                module.weight[:own].normal_(0.0, WEIGHT_STD, generator=generator)
                module.weight[own:].normal_(0.0, protocol.position_std, generator=generator)


build = GPT2
config_mistakes = gpt2_mistakes


def body_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the body's tensors; files of a language model have a prefix and a token table."""
    named = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in named.items() if name.split(".")[0] in ("wpe", "h", "ln_f")}
