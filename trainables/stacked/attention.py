"""Attention of R runs where dropout's masks are given: torch's fused attention draws its own.

Products of tiny matrices cost far more than what they compute. Of few tokens, a CPU therefore reads a few examples as
one sequence, in which a mask keeps them apart: the weights between them are exactly 0.

Shape legend: `R` runs, `K` distinct batches among them, `B` batch, `J` examples read as one sequence, `S` = R B / J,
`D` width, `H` heads, `M` positions of an example that attend (T, or the one that is read), `T` tokens.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from lr_sweep.trainables.numerics import product_dtype

from .layers import ALIGNED, aligned, product

JOINED_TOKENS = 16
"""Examples are joined to sequences of up to so many tokens; twice as many cost as much as they save."""


def num_joined(batch: int, tokens: int, device: torch.device) -> int:
    """Return J, which divides `batch`: a sequence is of one run."""
    if device.type != "cpu":
        return 1
    most = max(1, JOINED_TOKENS // tokens)
    return max(number for number in range(1, most + 1) if batch % number == 0)


def joined_masks(keep: Tensor, joined: int) -> Tensor:
    """Turn masks (K, B, H, M, T) into those of joined examples, (K, B / J, H, J M, J T)."""
    if joined == 1:
        return keep
    distinct, batch, heads, attending, tokens = keep.shape
    sequences = batch // joined
    masks = keep.new_zeros(distinct, sequences, heads, joined, attending, joined, tokens)
    examples = keep.view(distinct, sequences, joined, heads, attending, tokens)
    own_masks = masks.diagonal(0, 3, 5)  # (K, B / J, H, M, T, J)
    own_masks.copy_(examples.permute(0, 1, 3, 4, 5, 2))
    return masks.view(distinct, sequences, heads, joined * attending, joined * tokens)


class _Product(Function):
    """a (S, H, ., .) times b (S, H, ., .) of R runs.

    Where S is 1, `a @ b` would multiply transposed matrices, which MKL rounds otherwise on some CPUs (an AMD EPYC).
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, num_runs: int) -> Tensor:
        dtype = product_dtype(a)
        a = a.to(dtype).contiguous()
        b = b.to(dtype).contiguous()
        ctx.num_runs = num_runs
        ctx.save_for_backward(a, b)
        flat = _flat_product(a, b, num_runs)
        shape = (*a.shape[:3], b.shape[3])
        return torch.ops.aten._unsafe_view(flat, shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        grad = grad.contiguous()
        of_a = _flat_product(grad, b.mT, ctx.num_runs)
        of_b = _flat_product(a.mT, grad, ctx.num_runs)
        return of_a.view(a.shape), of_b.view(b.shape), None


def _flat_product(a: Tensor, b: Tensor, num_runs: int) -> Tensor:
    return product(a.flatten(0, 1), b.flatten(0, 1), num_runs=num_runs)


def _product(a: Tensor, b: Tensor, num_runs: int) -> Tensor:
    if a.device.type != "cpu":
        return a @ b
    if len(a) > 1 and aligned(a, b, num_runs):
        return a @ b  # which does the same here, in less time
    return _Product.apply(a, b, num_runs)


def attend(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, keep: Tensor | None, *, num_runs: int
) -> Tensor:
    """Mix values v (S, H, J T, D / H), as k, by softmax(q k^T / sqrt(D / H)) into the shape of q, (S, H, J M, D / H).

    `hidden`: bool, what positions do not see, in a shape that spreads to (S, H, J M, J T); None: they see all. `keep`
    (S, H, J M, J T): dropout's masks; None: evaluation mode.
    """
    scaled = q / math.sqrt(q.shape[-1])
    scores = _product(scaled, k.mT, num_runs)  # (S, H, J M, J T)
    if hidden is not None:
        scores.masked_fill_(hidden, -torch.inf)
    weights = scores.softmax(-1)
    if keep is not None:
        weights = weights * keep
    return _product(weights, v, num_runs)


def attend_causally(
    q: Tensor, k: Tensor, v: Tensor, joined: int, keep: Tensor | None, *, num_runs: int
) -> Tensor:
    """Do `attend` of all positions (M = T), each to those of its example so far."""
    is_fused = keep is None and q.shape[3] % ALIGNED == 0
    if is_fused and joined == 1:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    tokens = q.shape[2] // joined
    seen = same_example(joined, tokens, tokens, q.device).tril()  # (J T, J T)
    if is_fused:
        return F.scaled_dot_product_attention(q, k, v, seen)
    return attend(q, k, v, ~seen, keep, num_runs=num_runs)


def same_example(joined: int, attending: int, tokens: int, device: torch.device) -> Tensor:
    """Return which positions of joined examples are of one, bool (J M, J T)."""
    same = torch.eye(joined, dtype=torch.bool, device=device)
    return same.repeat_interleave(attending, 0).repeat_interleave(tokens, 1)
