"""Causal attention with dropout in memory linear in the number of tokens: in blocks, or by torch's fused kernels.

In blocks of queries, the backward pass computes each block's weights and masks again (Rabe and Staats 2021; Dao et al.
2022). A block's masks are a function of (seed, step, layer, block) alone. A fused kernel draws masks from the device's
global generator, which is keyed by (seed, step, layer) before each call. They may differ on another kind of device or
with another torch. Runs follow one another, so that each has the bits that it has alone.

Shape legend: `R` runs, `K` distinct (seed, step) among them, `B` batch, `H` heads, `T` tokens, `M` positions read,
`W` width of a head, `Q` queries of a block, `P` keys that it sees: its own positions and those before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from lr_sweep.trainables.precision import product_dtype, wide_dtype, widened
from lr_sweep.trainables.randomness import global_generator_keyed, rekey
from lr_sweep.trainables.run import QUERY_BLOCK, Attention


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
        """Draw the masks of the queries from `start` on, (B, H, Q, P); `like`: (B, H, ., .), of the same device.

        0, or what scales the rest up, in fp32 where `like` is of fewer bits.
        """
        stop = min(start + QUERY_BLOCK, num_tokens)
        generator = rekey(torch.Generator(like.device), key, f"attention {self.layer}", start // QUERY_BLOCK)
        mask = torch.empty(*like.shape[:2], stop - start, stop, device=like.device, dtype=wide_dtype(like))
        return mask.bernoulli_(1.0 - self.probability, generator=generator).div_(1.0 - self.probability)

    def rows(self, positions: Tensor, like: Tensor, num_tokens: int) -> Tensor:
        """Return the masks of the queries at some positions (K, B, M): (K, B, H, M, T), 0 for keys after their blocks.

        `like`: (B, H, ., .), of the same device.
        """
        found = like.new_zeros(len(self.keys), *like.shape[:2], positions.shape[2], num_tokens, dtype=wide_dtype(like))
        for key, its, out in zip(self.keys, positions, found, strict=True):
            for start in range(0, num_tokens, QUERY_BLOCK):
                mask = self.mask(key, start, like, num_tokens)  # (B, H, Q, P)
                row = (its - start)[:, None, :, None]  # (B, 1, M, 1)
                index = row.clamp(0, mask.shape[2] - 1).expand(*out.shape[:3], mask.shape[3])
                inside = (row >= 0) & (row < mask.shape[2])
                seen = out[..., : mask.shape[3]]
                seen.copy_(torch.where(inside, mask.gather(2, index), seen))
        return found


def attend_long(kind: Attention | None, q: Tensor, k: Tensor, v: Tensor, noise: AttentionNoise) -> Tensor:
    """Mix values v by dropout(softmax(q k^T / sqrt(W))), each position those so far; all are (R B, H, T, W)."""
    return _Blocked.apply(q, k, v, noise) if kind == "blocked" else _attend_fused(q, k, v, noise)


def _attend_fused(q: Tensor, k: Tensor, v: Tensor, noise: AttentionNoise) -> Tensor:
    """Do `attend_long` by torch's kernels, one run after the other: at such lengths one run fills a GPU."""
    key_of = {run: key for key, readers in zip(noise.keys, noise.readers, strict=True) for run in readers}
    of_runs = [x.unflatten(0, (len(key_of), -1)).unbind() for x in (q, k, v)]
    mixed = []
    for run, operands in enumerate(zip(*of_runs, strict=True)):
        queries, keys, values = (x.clone(memory_format=torch.contiguous_format) for x in operands)  # (B, H, T, W)
        with global_generator_keyed(key_of[run], f"attention {noise.layer}", q.device):
            own = F.scaled_dot_product_attention(queries, keys, values, dropout_p=noise.probability, is_causal=True)
        mixed.append(own)
    return torch.cat(mixed)  # (R B, H, T, W)


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
        of_q, of_k, of_v = (torch.zeros(q.shape, dtype=wide_dtype(q), device=q.device) for _ in range(3))
        for runs, start, mask in _blocks(ctx.noise, q):
            queries, keys, values = _operands(runs, start, mask, q, k, v)
            stop = mask.shape[3]
            of_mixed = grad[runs, :, start:stop].clone(memory_format=torch.contiguous_format)  # (B, H, Q, W)
            weights = _weights(queries, keys, start)  # (B, H, Q, P)
            of_v[runs, :, :stop] += (weights * mask).to(q.dtype).mT @ of_mixed
            of_scores = widened(of_mixed @ values.mT).mul(mask).mul_(weights)  # of the weights, times the weights
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


def _operands(runs: slice, start: int, mask: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Sequence[Tensor]:
    """Return a run's queries (B, H, Q, W) of a block over sqrt(W), and keys and values (B, H, P, W) that they see.

    Copies: a product's last bits may follow where in memory its operands start, which differs between cohorts.
    """
    stop = mask.shape[3]
    parts = (q[runs, :, start:stop] / math.sqrt(q.shape[3]), k[runs, :, :stop], v[runs, :, :stop])
    return [part.clone(memory_format=torch.contiguous_format) for part in parts]


def _weights(queries: Tensor, keys: Tensor, start: int) -> Tensor:
    """Return the softmax of products over what each query sees, (B, H, Q, P); at least fp32."""
    shape = queries.shape[2], keys.shape[2]
    future = torch.ones(shape, dtype=torch.bool, device=keys.device).triu(start + 1)  # (Q, P)
    return widened(queries @ keys.mT).masked_fill_(future, -torch.inf).softmax(-1)
