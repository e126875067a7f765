"""Causal attention by torch's fused kernels, which draw dropout's masks themselves: memory linear in tokens on a GPU.

A kernel draws from the device's global generator, which is keyed before each call. Its masks follow from (seed, step,
layer) on one kind of device; another kind, another kernel or another version of torch may have others.

Shape legend: `R` runs, `B` batch, `H` heads, `T` tokens, `W` width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lr_sweep.trainables.blocked_attention import AttentionNoise
from lr_sweep.trainables.randomness import global_generator_keyed


def attend_fused(q: Tensor, k: Tensor, v: Tensor, noise: AttentionNoise) -> Tensor:
    """Mix values v by dropout(softmax(q k^T / sqrt(W))), each position those so far; all are (R B, H, T, W).

    Runs follow one another, so that each has the masks that it has alone: at such lengths one run fills a GPU.
    """
    key_of = {run: key for key, readers in zip(noise.keys, noise.readers, strict=True) for run in readers}
    of_runs = [x.unflatten(0, (len(key_of), -1)).unbind() for x in (q, k, v)]
    mixed = []
    for run, operands in enumerate(zip(*of_runs, strict=True)):
        queries, keys, values = (x.clone(memory_format=torch.contiguous_format) for x in operands)  # (B, H, T, W)
        with global_generator_keyed(key_of[run], f"attention {noise.layer}", q.device):
            own = F.scaled_dot_product_attention(queries, keys, values, dropout_p=noise.probability, is_causal=True)
        mixed.append(own)
    return torch.cat(mixed)  # (R B, H, T, W)
