"""GPT-2's transformer body (Radford et al. 2019) with the parameter names and layouts of Hugging Face's `GPT2Model`.

Written out rather than imported, because dropout must draw from a generator that is passed in: a run's masks are keyed
by seed and step. `attend_in_blocks` attends with dropout in memory linear in the number of tokens: the backward pass
computes the weights and masks of each block of queries again (Rabe and Staats 2021; Dao et al. 2022). A block's masks
are a function of (seed, step, layer, block) alone. Runs follow one another, so that each has the bits it has alone.

Shape legend: `R` runs, `K` distinct (seed, step) among them, `B` batch, `T` tokens, `D` width, `H` heads,
`W` = D / H, `M` positions read, `Q` queries of a block, `P` keys that it sees: its own positions and those before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from lr_sweep.trainables.factors import width_ratio
from lr_sweep.trainables.numerics import Tensors, product_dtype, rekey, wide_dtype, widened
from lr_sweep.trainables.run import QUERY_BLOCK, ModelSize, Protocol

from .family import WEIGHT_STD, Body, Dropout, Parts
from .published import GPT2 as CONFIG


@dataclass(frozen=True, kw_only=True)
class AttentionNoise:
    """What the attention masks of a layer at a step follow from."""

    keys: tuple[int, ...]
    """(K,), seeds of the generators of dropout."""
    readers: tuple[tuple[int, ...], ...]
    """For each key, the runs that share its masks."""
    layer: int
    """From 0."""
    probability: float
    """Probability of dropping a weight."""

    def mask(self, key: int, start: int, like: Tensor, num_tokens: int) -> Tensor:
        """Draw the masks of the queries from `start` on, (B, H, Q, P); `like`: (B, H, ., .), of the same device."""
        stop = min(start + QUERY_BLOCK, num_tokens)
        generator = rekey(
            torch.Generator(like.device), key, f"attention {self.layer}", start // QUERY_BLOCK
        )
        shape = *like.shape[:2], stop - start, stop
        mask = torch.empty(shape, device=like.device, dtype=wide_dtype(like))
        kept = 1.0 - self.probability
        return mask.bernoulli_(kept, generator=generator).div_(kept)

    def last_rows(self, number: int, like: Tensor, num_tokens: int) -> Tensor:
        """Return the masks of the last M queries, (K, B, H, M, T), 0 for keys after their blocks; `like` as above."""
        shape = len(self.keys), *like.shape[:2], number, num_tokens
        masks = like.new_zeros(shape, dtype=wide_dtype(like))
        first = num_tokens - number
        for key, out in zip(self.keys, masks, strict=True):
            for start in range(first - first % QUERY_BLOCK, num_tokens, QUERY_BLOCK):
                mask = self.mask(key, start, like, num_tokens)  # (B, H, Q, P)
                begin, stop = max(first, start), mask.shape[3]
                out[:, :, begin - first : stop - first, :stop] = mask[:, :, begin - start :]
        return masks


def attend_in_blocks(q: Tensor, k: Tensor, v: Tensor, noise: AttentionNoise) -> Tensor:
    """Mix values v by dropout(softmax(q k^T / sqrt(W))), each position those so far; all are (R B, H, T, W)."""
    return _Blocked.apply(q, k, v, noise)


class _Blocked(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, noise: AttentionNoise) -> Tensor:
        q, k, v = (x.to(product_dtype(q)) for x in (q, k, v))
        ctx.noise = noise
        ctx.save_for_backward(q, k, v)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for runs, start, mask in _blocks(noise, q):
            queries, keys, values = _operands(runs, start, mask, q, k, v)
            weights = _weights(queries, keys, start)  # (B, H, Q, P)
            out[runs, :, start : mask.shape[3]] = weights.mul_(mask).to(q.dtype) @ values
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v = ctx.saved_tensors
        dtype = wide_dtype(q)
        of_q, of_k, of_v = (torch.zeros(x.shape, dtype=dtype, device=x.device) for x in (q, k, v))
        for runs, start, mask in _blocks(ctx.noise, q):
            queries, keys, values = _operands(runs, start, mask, q, k, v)
            stop = mask.shape[3]
            of_mixed = _copied(grad[runs, :, start:stop])  # (B, H, Q, W)
            weights = _weights(queries, keys, start)  # (B, H, Q, P)
            of_v[runs, :, :stop] += (weights * mask).to(q.dtype).mT @ of_mixed
            of_weights = widened(of_mixed @ values.mT).mul(mask)
            of_scores = of_weights.mul_(weights)
            of_scores.addcmul_(weights, of_scores.sum(-1, keepdim=True), value=-1.0)
            low = of_scores.to(q.dtype)
            of_q[runs, :, start:stop] = widened(low @ keys).div_(math.sqrt(q.shape[3]))
            of_k[runs, :, :stop] += low.mT @ queries
        return of_q.to(q.dtype), of_k.to(q.dtype), of_v.to(q.dtype), None


def _blocks(noise: AttentionNoise, q: Tensor) -> Iterator[tuple[slice, int, Tensor]]:
    """Yield each run's rows of q, a block's first position and its masks (B, H, Q, P), drawn once for their readers."""
    batch = len(q) // sum(map(len, noise.readers))
    for key, readers in zip(noise.keys, noise.readers, strict=True):
        for start in range(0, q.shape[2], QUERY_BLOCK):
            mask = noise.mask(key, start, q[:batch], q.shape[2])
            for run in readers:
                yield slice(run * batch, (run + 1) * batch), start, mask


def _operands(
    runs: slice, start: int, mask: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> Sequence[Tensor]:
    """Return a run's queries (B, H, Q, W) of a block over sqrt(W), and keys and values (B, H, P, W) that they see."""
    # Copies: a product's last bits may follow where in memory its operands start, which differs between cohorts.
    stop = mask.shape[3]
    queries = q[runs, :, start:stop] / math.sqrt(q.shape[3])
    return [_copied(part) for part in (queries, k[runs, :, :stop], v[runs, :, :stop])]


def _copied(part: Tensor) -> Tensor:
    return part.clone(memory_format=torch.contiguous_format)


def _weights(queries: Tensor, keys: Tensor, start: int) -> Tensor:
    """Return the softmax of products over what each query sees, (B, H, Q, P); at least fp32."""
    scores = widened(queries @ keys.mT)
    return scores.masked_fill_(_future(scores, start), -torch.inf).softmax(-1)


def _future(scores: Tensor, start: int = 0) -> Tensor:
    """Return which keys come after the queries, whose positions are from `start` on, bool (Q, P)."""
    return torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).triu(start + 1)


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
        q, k, v = self._heads(x)  # each (B, H, T, W)
        if dropout is None or dropout.probability == 0.0:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, W)
        elif dropout.attention == "blocked":
            key = dropout.generator.initial_seed()
            noise = AttentionNoise(
                keys=(key,), readers=((0,),), layer=self.layer, probability=dropout.probability
            )
            mixed = attend_in_blocks(q, k, v, noise)  # (B, H, T, W)
        else:
            mixed = dropout(_causal_weights(q, k)) @ v  # (B, H, T, W)
        return self.c_proj(mixed.transpose(1, 2).reshape(batch, tokens, width))  # (B, T, D)

    def _heads(self, x: Tensor) -> Sequence[Tensor]:
        """Return queries, keys and values, each (B, H, T, W)."""
        batch, tokens, width = x.shape
        qkv = self.c_attn(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # of (B, T, 3, H, W)
        q = q if self.query_factor == 1.0 else q * self.query_factor
        return q, k, v


def _causal_weights(q: Tensor, k: Tensor) -> Tensor:
    """Return the softmax of query-key products over a token and those before it, (B, H, T, T) of (B, H, T, W)."""
    scores = (q @ k.mT) / math.sqrt(q.shape[-1])  # (B, H, T, T)
    return scores.masked_fill(_future(scores), -torch.inf).softmax(-1)


class _Feedforward(nn.Module):
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
        x = self._at_positions(embeddings)
        x = dropout(x) if dropout else x
        for block in self.h:
            x = block(x, dropout)
        return self.ln_f(x)  # (B, T, D)

    def _at_positions(self, embeddings: Tensor) -> Tensor:
        return embeddings + self.wpe.weight[: embeddings.shape[1]]  # (B, T, D)

    def multiply_queries(self, factor: float) -> None:
        """Have every block's attention multiply its queries (`parametrization.query_factor`)."""
        for block in self.h:
            block.attn.query_factor = factor  # type: ignore[union-attr]

    def parts(self) -> Parts:
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
config_mistakes = CONFIG.mistakes


def body_tensors(tensors: Mapping[str, Tensor]) -> Tensors:
    """Return the body's tensors; files of a language model have a prefix and a token table."""
    named = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    return {
        name: tensor for name, tensor in named.items() if name.split(".")[0] in ("wpe", "h", "ln_f")
    }
