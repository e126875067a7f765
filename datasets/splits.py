"""Stratified splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def check_split_seed(seed: int) -> None:
    """Raise ValueError for a seed that `RandomState` does not take."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"split_seed is {seed}, wanted 0 to 2**32 - 1")


def draw_per_class(labels: Tensor, num_per_class: int, random: np.random.RandomState) -> tuple[Tensor, Tensor]:
    """Draw so many random examples of each class.

    Takes a `RandomState` because numpy froze its stream: a seed gives the same split in every version, which
    `np.random.Generator` does not promise.

    Args:
        labels: (N,) int64.
        num_per_class: examples drawn of each class.
        random: source of randomness.

    Returns:
        Indices drawn and indices left, both (M,) int64 and ascending.

    Raises:
        ValueError: a class has fewer examples than `num_per_class`.
    """
    import torch

    fewest = int(labels.bincount().min())
    if num_per_class > fewest:
        raise ValueError(f"{num_per_class} examples of each class wanted, but the smallest class has {fewest}")
    classes = [torch.nonzero(labels == label).flatten().numpy() for label in range(int(labels.max()) + 1)]
    drawn = np.concatenate([random.permutation(indices)[:num_per_class] for indices in classes])
    is_drawn = torch.zeros(len(labels), dtype=torch.bool)  # (N,)
    is_drawn[torch.from_numpy(drawn)] = True
    return torch.nonzero(is_drawn).flatten(), torch.nonzero(~is_drawn).flatten()
