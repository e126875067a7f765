"""muP beside the standard parametrization: factors by width (Yang et al. 2022, Tensor Programs V, table 8), for Adam.

All are 1 at the width of a base, `Protocol.base_width`, where both parametrizations are the same. With `m` = width over
the base's: hidden matrices start with a deviation over sqrt(m) and have a learning rate over m, the output layer starts
as the base's and reads states over m, and attention divides by the width of a head instead of its root. All other
parameters start and learn as the base's. A decoupled weight decay of hidden matrices is multiplied by m, so that its
product with their rate stays (Wang and Aitchison 2024). Plain numbers, no torch.
"""

from __future__ import annotations

import math

from lr_sweep.trainables.run import Protocol, Run, gpt2_size


def width_ratio(protocol: Protocol, width: int) -> float:
    """Return `m`, a width over the base's; 1 in the standard parametrization."""
    return width / protocol.base_width if protocol.parametrization == "mup" else 1.0


def matrix_rate_factor(protocol: Protocol, width: int) -> float:
    """Return the learning rate of the trained matrices of attention and feedforward, over that of all else."""
    return protocol.muon_rate_ratio if protocol.optimizer == "muon" else 1.0 / width_ratio(protocol, width)


def query_factor(run: Run) -> float:
    """Return what multiplies queries, so that products over sqrt(K), the width of a head, become K^-1 sqrt(base's K).

    1 for a body that starts from pretrained weights, or like them: they were trained with sqrt(K).
    """
    if run.protocol.parametrization == "standard" or run.initialisation != "random":
        return 1.0
    size = gpt2_size(run)
    heads = run.protocol.base_heads or size.heads
    return math.sqrt(run.protocol.base_width / heads * size.heads / size.width)
