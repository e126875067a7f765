"""GPT-2's transformer body (Radford et al. 2019) with the parameter names and layouts of Hugging Face's `GPT2Model`.

Written out rather than imported because dropout must draw from a generator that is passed in (a run's masks are keyed
by seed and step) and because there is no token table: tokens of other modalities enter as embeddings.

Shape legend: `B` batch, `T` tokens, `D` width, `H` heads, `K` = D / H.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.run import ModelSize


class Dropout:
    """Inverted dropout whose masks come, in call order, from one generator; the same generator gives the same masks."""

    def __init__(self, probability: float, generator: torch.Generator) -> None:
        self.probability = probability
        self.generator = generator

    def __call__(self, x: Tensor) -> Tensor:
        """Return x with entries set to 0 and the others scaled up; any shape."""
        if self.probability == 0.0:
            return x
        keep = torch.empty_like(x).bernoulli_(1.0 - self.probability, generator=self.generator)
        return x * keep.div_(1.0 - self.probability)


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


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.c_attn = Conv1D(size.width, 3 * size.width)
        self.c_proj = Conv1D(size.width, size.width)

    def forward(self, x: Tensor, dropout: Dropout | None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        batch, tokens, width = x.shape
        qkv = self.c_attn(x).view(batch, tokens, 3, self.heads, width // self.heads)  # (B, T, 3, H, K)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, K)
        if dropout is None or dropout.probability == 0.0:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, K)
        else:
            mixed = dropout(causal_attention_weights(q, k)) @ v  # (B, H, T, K)
        return self.c_proj(mixed.transpose(1, 2).reshape(batch, tokens, width))  # (B, T, D)


def causal_attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """Return softmax(q k^T / sqrt(K)) over the positions so far, (B, H, T, T).

    Written out in training, because torch's fused attention draws its dropout from the global generator.
    """
    tokens = q.shape[-2]
    future = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)  # (T, T)
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])  # (B, H, T, T)
    return scores.masked_fill(future, -torch.inf).softmax(-1)


class Feedforward(nn.Module):
    """Two linear layers with GPT-2's tanh approximation of GELU between them."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.c_fc = Conv1D(size.width, 4 * size.width)
        self.c_proj = Conv1D(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))  # (B, T, 4 D) inside


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(size.width)
        self.attn = Attention(size)
        self.ln_2 = nn.LayerNorm(size.width)
        self.mlp = Feedforward(size)

    def forward(self, x: Tensor, dropout: Dropout | None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        attended = self.attn(self.ln_1(x), dropout)
        x = x + (dropout(attended) if dropout else attended)  # (B, T, D)
        fed = self.mlp(self.ln_2(x))
        return x + (dropout(fed) if dropout else fed)  # (B, T, D)


class GPT2(nn.Module):
    """Embeddings (B, T, D) to final hidden states (B, T, D); `dropout=None` is evaluation mode."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.wpe = nn.Embedding.from_pretrained(torch.empty(size.positions, size.width), freeze=False)
        self.h = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)

    def forward(self, embeddings: Tensor, dropout: Dropout | None = None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        x = embeddings + self.wpe.weight[: embeddings.shape[1]]  # (B, T, D)
        x = dropout(x) if dropout else x
        for block in self.h:
            x = block(x, dropout)
        return self.ln_f(x)  # (B, T, D)
