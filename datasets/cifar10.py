"""CIFAR-10 as 4x4 patches (Lu et al. 2021, section 2.1; Rothermel et al. 2021, section 3).

Both papers write a token dimension of 16; a 4x4 RGB patch has 48 numbers, and Lu et al.'s public code used 48.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets import cifar_files, files
from datasets.patches import to_patches
from datasets.task import Split, TaskData, TaskShape

PATCH_SIZE = 4
IMAGE_SIZE = 32
MEAN = (0.4914, 0.4822, 0.4465)
"""Subtracted from R, G, B in [0, 1] (Lu et al.'s public code)."""
STD = (0.2023, 0.1994, 0.2010)
"""Then divided by (Lu et al.'s public code)."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What can be chosen about CIFAR-10."""

    validation_batch: cifar_files.BatchNumber = 5
    """Which of the five training files is held out for validation (Rothermel et al. 2021, section 3)."""
    augment: bool = False
    """Random crop, flip and rotation of training images. On in Lu et al.'s public code, in neither paper."""


def shape(options: Options) -> TaskShape:
    """64 tokens of 48 numbers, 10 classes."""
    return TaskShape(num_tokens=(IMAGE_SIZE // PATCH_SIZE) ** 2, num_classes=10, token_dim=3 * PATCH_SIZE**2)


def num_train(options: Options) -> int:
    """Four of the five training files."""
    return 4 * cifar_files.IMAGES_PER_BATCH


def checksum(options: Options, data_dir: Path) -> str:
    """sha256 of the file list; `fetch` accepts no other content."""
    return cifar_files.FILES.checksum


def origin(options: Options, data_dir: Path) -> str:
    """The library that reads the images."""
    return "torchvision"


def fetch(options: Options, data_dir: Path) -> None:
    """Verify the files, or download them; see `files.fetch`."""
    files.fetch(cifar_files.FILES, data_dir)


def load(options: Options, data_dir: Path) -> TaskData:
    """Read CIFAR-10; inputs are (N, 64, 48) uint8.

    Raises:
        DataError: missing and not to be had, or corrupted.
    """
    import torch

    from datasets.augment import CropFlipRotate

    train, validation, test = (_split(images) for images in cifar_files.read(data_dir, options.validation_batch))
    mean, std = torch.tensor(MEAN), torch.tensor(STD)  # (3,)
    black = -mean / std  # (3,)
    augment = CropFlipRotate(patch_size=PATCH_SIZE, image_size=IMAGE_SIZE, black=tuple(black.tolist()))
    return TaskData(
        shape=shape(options),
        train=train,
        validation=validation,
        test=test,
        origin=origin(options, data_dir),
        scale=(1 / (255 * std)).repeat(PATCH_SIZE**2),  # (48,): channel is fastest in a token
        shift=black.repeat(PATCH_SIZE**2),
        augment=augment if options.augment else None,
    )


def _split(images: cifar_files.Images) -> Split:
    return Split(inputs=to_patches(images.pixels, PATCH_SIZE), labels=images.labels)  # (N, 64, 48)
