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

from .family import WEIGHT_STD, Body, Dropout, Parts, tensors_of
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
        block = start // QUERY_BLOCK
        stop = min(start + QUERY_BLOCK, num_tokens)
        generator = torch.Generator(like.device)
        rekey(generator, key, f"attention {self.layer}", block)

        batch, heads = like.shape[:2]
        mask = torch.empty(
            (batch, heads, stop - start, stop), device=like.device, dtype=wide_dtype(like)
        )
        kept = 1.0 - self.probability
        return mask.bernoulli_(kept, generator=generator).div_(kept)

    def last_rows(self, number: int, like: Tensor, num_tokens: int) -> Tensor:
        """Return the masks of the last M queries, (K, B, H, M, T), 0 for keys after their blocks; `like` as above."""
        batch, heads = like.shape[:2]
        shape = len(self.keys), batch, heads, number, num_tokens
        masks = like.new_zeros(shape, dtype=wide_dtype(like))
        first = num_tokens - number
        first_block = first - first % QUERY_BLOCK
        for key, out in zip(self.keys, masks, strict=True):
            for start in range(first_block, num_tokens, QUERY_BLOCK):
                mask = self.mask(key, start, like, num_tokens)  # (B, H, Q, P)
                stop = mask.shape[3]
                begin = max(first, start)
                rows = slice(begin - first, stop - first)
                out[:, :, rows, :stop] = mask[:, :, begin - start :]
        return masks


def attend_in_blocks(q: Tensor, k: Tensor, v: Tensor, noise: AttentionNoise) -> Tensor:
    """Mix values v by dropout(softmax(q k^T / sqrt(W))), each position those so far; all are (R B, H, T, W)."""
    return _Blocked.apply(q, k, v, noise)


class _Blocked(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, noise: AttentionNoise) -> Tensor:
        dtype = product_dtype(q)
        q, k, v = (x.to(dtype) for x in (q, k, v))
        ctx.noise = noise
        ctx.save_for_backward(q, k, v)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for runs, start, mask in _blocks(noise, q):
            queries, keys, values = _operands(runs, start, mask, q, k, v)
            weights = _weights(queries, keys, start).mul_(mask)  # (B, H, Q, P)
            block = slice(start, mask.shape[3])
            out[runs, :, block] = weights.to(q.dtype) @ values
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v = ctx.saved_tensors
        dtype = q.dtype
        scale = math.sqrt(q.shape[3])
        of_q = torch.zeros(q.shape, dtype=wide_dtype(q), device=q.device)
        of_k, of_v = torch.zeros_like(of_q), torch.zeros_like(of_q)
        for runs, start, mask in _blocks(ctx.noise, q):
            queries, keys, values = _operands(runs, start, mask, q, k, v)
            stop = mask.shape[3]
            of_mixed = _copied(grad[runs, :, start:stop])  # (B, H, Q, W)
            weights = _weights(queries, keys, start)  # (B, H, Q, P)

            dropped = (weights * mask).to(dtype)
            of_v[runs, :, :stop] += dropped.mT @ of_mixed

            of_weights = widened(of_mixed @ values.mT).mul(mask)
            of_scores = of_weights.mul_(weights)
            row_sums = of_scores.sum(-1, keepdim=True)
            of_scores.addcmul_(weights, row_sums, value=-1.0)

            low = of_scores.to(dtype)
            of_q[runs, :, start:stop] = widened(low @ keys).div_(scale)
            of_k[runs, :, :stop] += low.mT @ queries
        return of_q.to(dtype), of_k.to(dtype), of_v.to(dtype), None


def _blocks(noise: AttentionNoise, q: Tensor) -> Iterator[tuple[slice, int, Tensor]]:
    """Yield each run's rows of q, a block's first position and its masks (B, H, Q, P), drawn once for their readers."""
    num_runs = sum(map(len, noise.readers))
    num_tokens = q.shape[2]
    batch = len(q) // num_runs
    for key, readers in zip(noise.keys, noise.readers, strict=True):
        for start in range(0, num_tokens, QUERY_BLOCK):
            mask = noise.mask(key, start, q[:batch], num_tokens)
            for run in readers:
                first = run * batch
                yield slice(first, first + batch), start, mask


def _operands(
    runs: slice, start: int, mask: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> Sequence[Tensor]:
    """Return a run's queries (B, H, Q, W) of a block over sqrt(W), and keys and values (B, H, P, W) that they see."""
    # Copies: a product's last bits may follow where in memory its operands start, which differs between cohorts.
    stop = mask.shape[3]
    scale = math.sqrt(q.shape[3])
    queries = q[runs, :, start:stop] / scale
    keys = k[runs, :, :stop]
    values = v[runs, :, :stop]
    return [_copied(part) for part in (queries, keys, values)]


def _copied(part: Tensor) -> Tensor:
    return part.clone(memory_format=torch.contiguous_format)


def _weights(queries: Tensor, keys: Tensor, start: int) -> Tensor:
    """Return the softmax of products over what each query sees, (B, H, Q, P); at least fp32."""
    scores = widened(queries @ keys.mT)
    scores.masked_fill_(_future(scores, start), -torch.inf)
    return scores.softmax(-1)


def _future(scores: Tensor, start: int = 0) -> Tensor:
    """Return which keys come after the queries, whose positions are from `start` on, bool (Q, P)."""
    pairs = scores.shape[2:]
    every = torch.ones(pairs, dtype=torch.bool, device=scores.device)
    return every.triu(start + 1)


Size = ModelSize


class Conv1D(nn.Module):
    """A linear layer that stores its weight as (in, out), as GPT-2's checkpoints do."""

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_in, num_out))
        self.bias = nn.Parameter(torch.zeros(num_out))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        rows = x.reshape(-1, x.shape[-1])  # (N, in)
        mapped = torch.addmm(self.bias, rows, self.weight)  # (N, out)
        return mapped.view(*x.shape[:-1], -1)


class _Attention(nn.Module):
    """Causal self-attention of (B, T, D)."""

    def __init__(self, size: ModelSize, layer: int) -> None:
        super().__init__()
        self.heads = size.heads
        self.layer = layer
        self.query_factor = 1.0
        self.c_attn = Conv1D(size.width, 3 * size.width)
        self.c_proj = Conv1D(size.width, size.width)

    def forward(self, x: Tensor, dropout: Dropout | None) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self._heads(x)  # each (B, H, T, W)
        if dropout is None or dropout.probability == 0.0:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, W)
        elif dropout.attention == "blocked":
            noise = AttentionNoise(
                keys=(dropout.generator.initial_seed(),),
                readers=((0,),),
                layer=self.layer,
                probability=dropout.probability,
            )
            mixed = attend_in_blocks(q, k, v, noise)  # (B, H, T, W)
        else:
            mixed = dropout(_causal_weights(q, k)) @ v  # (B, H, T, W)
        joined = mixed.transpose(1, 2).reshape(batch, tokens, width)  # (B, T, D)
        return self.c_proj(joined)

    def _heads(self, x: Tensor) -> Sequence[Tensor]:
        """Return queries, keys and values, each (B, H, T, W)."""
        batch, tokens, width = x.shape
        head_width = width // self.heads
        qkv = self.c_attn(x).view(batch, tokens, 3, self.heads, head_width)  # (B, T, 3, H, W)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if self.query_factor != 1.0:
            q = q * self.query_factor
        return q, k, v


def _causal_weights(q: Tensor, k: Tensor) -> Tensor:
    """Return the softmax of query-key products over a token and those before it, (B, H, T, T) of (B, H, T, W)."""
    scale = math.sqrt(q.shape[-1])
    scores = (q @ k.mT) / scale  # (B, H, T, T)
    seen = scores.masked_fill(_future(scores), -torch.inf)
    return seen.softmax(-1)


class _Feedforward(nn.Module):
    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.c_fc = Conv1D(size.width, 4 * size.width)
        self.c_proj = Conv1D(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.c_fc(x)  # (B, T, 4 D)
        return self.c_proj(F.gelu(inner, approximate="tanh"))


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
        attended = self.attn(self.ln_1(x), dropout)  # (B, T, D)
        if dropout:
            attended = dropout(attended)
        x = x + attended

        fed = self.mlp(self.ln_2(x))  # (B, T, D)
        if dropout:
            fed = dropout(fed)
        return x + fed


class GPT2(Body):
    """Embeddings (B, T, D) to final hidden states (B, T, D); `dropout=None` is evaluation mode."""

    position_table = "wpe.weight"

    def __init__(self, size: ModelSize, num_tokens: int = 0) -> None:
        super().__init__()
        self.size = size
        num_positions = max(size.positions, num_tokens)
        table = torch.empty(num_positions, size.width)
        self.wpe = nn.Embedding.from_pretrained(table, freeze=False)
        self.h = nn.ModuleList(Block(size, layer) for layer in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)

    def forward(self, embeddings: Tensor, dropout: Dropout | None = None) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        num_tokens = embeddings.shape[1]
        x = embeddings + self.wpe.weight[:num_tokens]  # (B, T, D)
        if dropout:
            x = dropout(x)
        for block in self.h:
            x = block(x, dropout)
        return self.ln_f(x)  # (B, T, D)

    def multiply_queries(self, factor: float) -> None:
        """Have every block's attention multiply its queries (`parametrization.query_factor`)."""
        for block in self.h:
            block.attn.query_factor = factor  # type: ignore[union-attr]

    def parts(self) -> Parts:
        """Return the modules of each part."""
        blocks: list[Any] = list(self.h)
        attentions = [block.attn for block in blocks]
        layer_norms = [norm for block in blocks for norm in (block.ln_1, block.ln_2)]
        return {
            "positions": [self.wpe],
            "layer_norms": [*layer_norms, self.ln_f],
            "attention": attentions,
            "feedforward": [block.mlp for block in blocks],
            "last_attention": attentions[-1:],
        }

    def draw(self, protocol: Protocol, generator: torch.Generator) -> None:
        """Draw every parameter by `Protocol.random_init`; biases are 0 and layer norms (1, 0) as built."""
        for name, module in self.named_modules():
            if isinstance(module, Conv1D):
                std = WEIGHT_STD
                if protocol.random_init == "library" and name.endswith("c_proj"):
                    std /= math.sqrt(2 * self.size.layers)
                std /= math.sqrt(width_ratio(protocol, self.size.width))
                module.weight.normal_(0.0, std, generator=generator)
            elif isinstance(module, nn.Embedding):
                own_rows = module.weight[: self.size.positions]
                further_rows = module.weight[self.size.positions :]
                own_rows.normal_(0.0, WEIGHT_STD, generator=generator)
                further_rows.normal_(0.0, protocol.position_std, generator=generator)


build = GPT2
config_mistakes = CONFIG.mistakes


def body_tensors(tensors: Mapping[str, Tensor]) -> Tensors:
    """Return the body's tensors; files of a language model have a prefix and a token table."""
    return tensors_of(tensors, "transformer.", ("wpe", "h", "ln_f"))
