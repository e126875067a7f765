"""Factors of a run's learning rate by step and by width, and of its start by width. Plain numbers, no torch.

muP (Yang et al. 2022, Tensor Programs V, table 8, for Adam) is described in docs/protocol.md. With `m` = width over the
base's, all its factors are 1 at m = 1. A decoupled weight decay of hidden matrices is multiplied by m, so that its
product with their rate stays (Wang and Aitchison 2024).
"""

from __future__ import annotations

import math

from .run import Protocol, Run


def depends_on_budget(protocol: Protocol) -> bool:
    """Return whether the learning rate at a step depends on how many steps there are."""
    return protocol.schedule != "constant"


def learning_rate_at(run: Run, step: int) -> float:
    """Return the learning rate of gradient step `step`, counted from 1."""
    return run.learning_rate * rate_factor(run.protocol, step, run.schedule_steps)


def rate_factor(protocol: Protocol, step: int, num_steps: int | None) -> float:
    """Return the factor, from 0 to 1, that step `step` of `num_steps` multiplies the learning rate by.

    It rises by 1/warmup_steps a step to 1. Then it stays (`constant`), falls as half a cosine (`cosine`, Loshchilov and
    Hutter 2017), or stays and falls linearly at the end (`warmup-stable-decay`, Hu et al. 2024), to 0 after the last.
    """
    if step <= protocol.warmup_steps:
        return step / protocol.warmup_steps
    if protocol.schedule == "constant":
        return 1.0
    assert num_steps is not None, "of a run whose schedule depends on its budget"
    left = max(0, num_steps - step + 1)  # this step and those after it
    if protocol.schedule == "cosine":
        return 0.5 - 0.5 * math.cos(math.pi * min(1.0, left / (num_steps - protocol.warmup_steps)))
    return min(1.0, left / max(1, round(protocol.decay_fraction * num_steps)))


def width_ratio(protocol: Protocol, width: int) -> float:
    """Return `m`, a width over the base's; 1 in the standard parametrization."""
    return width / protocol.base_width if protocol.parametrization == "mup" else 1.0


def matrix_rate_factor(protocol: Protocol, width: int) -> float:
    """Return the learning rate of the trained matrices of attention and feedforward, over that of all else."""
    return 1.0 / width_ratio(protocol, width)


def query_factor(run: Run) -> float:
    """Return what multiplies queries, so that products over sqrt(K), the width of a head, become K^-1 sqrt(base's K).

    1 for a body that starts from pretrained weights, or like them: they were trained with sqrt(K).
    """
    if run.protocol.parametrization == "standard" or run.initialisation != "random":
        return 1.0
    return math.sqrt(run.protocol.base_width / run.model.width)
