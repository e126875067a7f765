"""Attention of R runs where dropout's masks are given: torch's fused attention draws its own.

Products of tiny matrices cost far more than what they compute. Where there are few tokens, a CPU therefore reads a few
examples as one sequence, in which a mask keeps them apart: the weights between them are exactly 0.

Shape legend: `R` runs, `K` distinct batches among them, `B` batch, `J` examples read as one sequence, `S` = R B / J,
`D` width, `H` heads, `M` positions of an example that attend (T, or the one that is read), `T` tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

JOINED_TOKENS = 16
"""Examples are joined to sequences of up to so many tokens; twice as many cost as much as they save."""


def num_joined(batch: int, tokens: int, device: torch.device) -> int:
    """Return J, which divides `batch`: a sequence is of one run."""
    most = max(1, JOINED_TOKENS // tokens) if device.type == "cpu" else 1
    return max(number for number in range(1, most + 1) if batch % number == 0)


def joined_masks(keep: Tensor, joined: int) -> Tensor:
    """Turn masks (K, B, H, M, T) into those of joined examples, (K, B / J, H, J M, J T)."""
    if joined == 1:
        return keep
    distinct, batch, heads, attending, tokens = keep.shape
    masks = keep.new_zeros(distinct, batch // joined, heads, joined, attending, joined, tokens)
    apart = keep.view(distinct, -1, joined, heads, attending, tokens).permute(0, 1, 3, 4, 5, 2)
    masks.diagonal(0, 3, 5).copy_(apart)  # (K, B / J, H, M, T, J)
    return masks.view(distinct, -1, heads, joined * attending, joined * tokens)


def attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, keep: Tensor | None) -> Tensor:
    """Mix values by softmax(q k^T / sqrt(D / H)).

    Args:
        q: (S, H, J M, D / H).
        k: (S, H, J T, D / H).
        v: (S, H, J T, D / H).
        hidden: bool, what positions do not see, in a shape that spreads to (S, H, J M, J T); None: they see all.
        keep: (S, H, J M, J T), dropout's masks; None: evaluation mode.

    Returns:
        (S, H, J M, D / H).
    """
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT  # (S, H, J M, J T)
    if hidden is not None:
        scores.masked_fill_(hidden, -torch.inf)
    weights = scores.softmax(-1)
    return (weights if keep is None else weights * keep) @ v


def attend_causally(q: Tensor, k: Tensor, v: Tensor, joined: int, keep: Tensor | None) -> Tensor:
    """Do `attend` of all positions (M = T), each to those of its example so far."""
    if keep is None and joined == 1:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    tokens = q.shape[2] // joined
    seen = same_example(joined, tokens, tokens, q.device).tril()  # (J T, J T)
    if keep is None:
        return F.scaled_dot_product_attention(q, k, v, seen)
    return attend(q, k, v, ~seen, keep)


def same_example(joined: int, attending: int, tokens: int, device: torch.device) -> Tensor:
    """Return which positions of joined examples are of one, bool (J M, J T)."""
    same = torch.eye(joined, dtype=torch.bool, device=device)
    return same.repeat_interleave(attending, 0).repeat_interleave(tokens, 1)
