"""CIFAR-10 as in the Long Range Arena, one gray pixel a token (Tay et al. 2020, section 2.2.4).

Lu et al. and Rothermel et al. read real-valued pixels in [-1, 1]; the Long Range Arena itself reads pixel ids.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .cifar10 import (
    IMAGE_SIZE,
    checksum,
    fetch,
    num_held_out,
    num_train,
    origin,
    read_splits,
)
from .cifar10 import SplitOptions as Options
from .images import to_patches
from .task import TaskData, TaskShape

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Options", "checksum", "fetch", "load", "num_held_out", "num_train", "origin", "shape"]

GRAY = (0.2989, 0.587, 0.114)
"""Weights of R, G, B (torchvision's `Grayscale`, used by Lu et al.'s public code)."""


def shape(options: Options) -> TaskShape:
    """Return 1024 tokens of one number, 10 classes."""
    return TaskShape(num_tokens=IMAGE_SIZE**2, num_classes=10, token_dim=1)


def load(options: Options, data_dir: Path) -> TaskData:
    """Read CIFAR-10 in gray; inputs are (N, 1024, 1) float32, 0 black and 255 white."""
    import torch

    train, validation, test = read_splits(options, data_dir, _to_gray_tokens)
    return TaskData(
        shape=shape(options),
        train=train,
        validation=validation,
        test=test,
        scale=torch.tensor([2 / 255]),
        shift=torch.tensor([-1.0]),
    )


def _to_gray_tokens(images: Tensor) -> Tensor:
    red, green, blue = images.unbind(-1)  # (N, 32, 32) each
    gray = GRAY[0] * red + GRAY[1] * green + GRAY[2] * blue  # (N, 32, 32) float32
    return to_patches(gray.unsqueeze(-1), patch_size=1)  # (N, 1024, 1)
