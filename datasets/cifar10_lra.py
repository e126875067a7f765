"""CIFAR-10 as in the Long Range Arena, one gray pixel a token (Tay et al. 2020, section 2.2.4).

Lu et al. and Rothermel et al. read real-valued pixels in [-1, 1]; the Long Range Arena itself reads pixel ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets import cifar_files, files
from datasets.patches import to_patches
from datasets.task import Split, TaskData, TaskShape

IMAGE_SIZE = 32
GRAY = (0.2989, 0.587, 0.114)
"""Weights of R, G, B (torchvision's `Grayscale`, used by Lu et al.'s public code)."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What can be chosen about CIFAR-10 LRA."""

    validation_batch: cifar_files.BatchNumber = 5
    """Which of the five training files is held out for validation (Rothermel et al. 2021, section 3)."""
    augment: bool = False
    """Random crop, flip and rotation of training images. On in Lu et al.'s public code, in neither paper."""


def shape(options: Options) -> TaskShape:
    """1024 tokens of one number, 10 classes."""
    return TaskShape(num_tokens=IMAGE_SIZE**2, num_classes=10, token_dim=1)


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
    """Read CIFAR-10 in gray; inputs are (N, 1024, 1) float32, 0 black and 255 white.

    Raises:
        DataError: missing and not to be had, or corrupted.
    """
    import torch

    from datasets.augment import CropFlipRotate

    train, validation, test = (_split(images) for images in cifar_files.read(data_dir, options.validation_batch))
    return TaskData(
        shape=shape(options),
        train=train,
        validation=validation,
        test=test,
        origin=origin(options, data_dir),
        scale=torch.tensor([2 / 255]),
        shift=torch.tensor([-1.0]),
        augment=CropFlipRotate(patch_size=1, image_size=IMAGE_SIZE, black=(-1.0,)) if options.augment else None,
    )


def _split(images: cifar_files.Images) -> Split:
    red, green, blue = images.pixels.unbind(-1)  # (N, 32, 32) each
    gray = GRAY[0] * red + GRAY[1] * green + GRAY[2] * blue  # (N, 32, 32) float32
    return Split(inputs=to_patches(gray.unsqueeze(-1), patch_size=1), labels=images.labels)  # (N, 1024, 1)
