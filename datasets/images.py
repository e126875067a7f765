"""What image tasks share: patches as tokens, and stratified splits.

Shape legend: `N` images, `H` rows, `W` columns, `C` channels, `P` patch size, `T = H/P * W/P` tokens, `D = P*P*C`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def check_patches(image_size: int, patch_size: int) -> None:
    """Raise ValueError if square patches do not cover a square image of so many rows."""
    if patch_size < 1 or image_size % patch_size:
        fitting = [size for size in range(1, image_size + 1) if image_size % size == 0]
        raise ValueError(
            f"patch_size is {patch_size}, wanted a divisor of {image_size}: {', '.join(map(str, fitting))}"
        )


def to_patches(images: Tensor, patch_size: int) -> Tensor:
    """Cut images (N, H, W, C) into tokens (N, T, D) of the same dtype, both in raster order, channel fastest."""
    n, height, width, channels = images.shape
    assert height % patch_size == width % patch_size == 0, (
        f"{height}x{width} into patches of {patch_size}"
    )
    rows, columns = height // patch_size, width // patch_size
    grid = images.reshape(n, rows, patch_size, columns, patch_size, channels)
    return grid.transpose(2, 3).reshape(n, rows * columns, patch_size**2 * channels)  # (N, T, D)


def draw_per_class(
    labels: Tensor, num_per_class: int, random: np.random.RandomState
) -> tuple[Tensor, Tensor]:
    """Draw random examples of each class by their labels (N,) int64; return indices drawn and left, both ascending.

    A `RandomState` gives the same split in every version of numpy, which `np.random.Generator` does not promise.
    """
    import torch

    classes = [
        torch.nonzero(labels == label).flatten().numpy() for label in range(int(labels.max()) + 1)
    ]
    drawn = np.concatenate([random.permutation(indices)[:num_per_class] for indices in classes])
    left = np.setdiff1d(np.arange(len(labels)), drawn)
    return torch.from_numpy(np.sort(drawn)), torch.from_numpy(left)
