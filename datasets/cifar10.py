"""CIFAR-10 (Krizhevsky 2009) as patches (Lu et al. 2021, section 2.1; Rothermel et al. 2021, section 3).

Both papers write a token dimension of 16; a 4x4 RGB patch has 48 numbers, and Lu et al.'s public code used 48.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Interval

from lr_sweep.datasets import files

from .images import check_patches, to_patches
from .task import Split, TaskData, TaskShape, always, check_limits

if TYPE_CHECKING:
    from torch import Tensor

IMAGE_SIZE = 32
IMAGES_PER_BATCH = 10_000
MEAN = (0.4914, 0.4822, 0.4465)
"""Means of R, G, B in [0, 1], which are subtracted (Lu et al.'s public code)."""
STD = (0.2023, 0.1994, 0.2010)
"""Standard deviations of R, G, B, by which the rest is divided (Lu et al.'s public code)."""


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Options of CIFAR-10 that do not depend on its tokens."""

    validation_batch: Annotated[int, Interval(ge=1, le=5)] = 5
    """Training file held out for validation (Rothermel et al. 2021, section 3)."""
    augment: Literal[False] = False
    """Always false: no training images are cropped, flipped or rotated, as in both papers. It is a part of run ids."""


@dataclass(frozen=True, kw_only=True)
class Options(SplitOptions):
    """Options of CIFAR-10."""

    later: ClassVar[tuple[str, ...]] = ("patch_size", "num_validation", "num_train")
    patch_size: int = 4
    """Rows and columns of a token's pixels; divides 32. 8: 16 tokens of 192 numbers."""
    num_validation: int = IMAGES_PER_BATCH
    """First images of the held-out file; evaluations of fewer are faster."""
    num_train: int = 4 * IMAGES_PER_BATCH
    """First images of the other four files; with fewer, training converges sooner."""

    def __post_init__(self) -> None:
        check_patches(IMAGE_SIZE, self.patch_size)
        check_limits(self, ("num_validation",), 1, IMAGES_PER_BATCH)
        check_limits(self, ("num_train",), 1, 4 * IMAGES_PER_BATCH)


def _download(folder: Path) -> None:
    from torchvision.datasets import CIFAR10

    CIFAR10(folder, download=True)


FILES = files.RemoteFiles(
    task="cifar10",
    md5s={
        "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
        "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
        "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        "cifar-10-batches-py/batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    download=_download,
    by_hand="get https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz and unpack it: "
    "tar -xzf cifar-10-python.tar.gz -C {folder}",
)


def shape(options: Options) -> TaskShape:
    """Return 64 tokens of 48 numbers, or as the patches have it; 10 classes."""
    patch_size = options.patch_size
    return TaskShape(
        num_tokens=(IMAGE_SIZE // patch_size) ** 2, num_classes=10, token_dim=3 * patch_size**2
    )


def num_train(options: SplitOptions) -> int:
    """Return the number of images, of four of the five training files."""
    return int(getattr(options, "num_train", 4 * IMAGES_PER_BATCH))


def num_held_out(options: SplitOptions) -> int:
    """Return the validation images, of the fifth training file, and CIFAR-10's 10,000 test images."""
    return int(getattr(options, "num_validation", IMAGES_PER_BATCH)) + IMAGES_PER_BATCH


checksum = always(FILES.checksum)  # of the file list: `fetch` accepts no other content
origin = always("torchvision")


def fetch(options: SplitOptions, data_dir: Path) -> None:
    """Verify the files, or download them; see `files.fetch`."""
    files.fetch(FILES, data_dir)


def load(options: Options, data_dir: Path) -> TaskData:
    """Read CIFAR-10; inputs are (N, T, D) uint8."""
    import torch

    patch_size = options.patch_size
    train, validation, test = read_splits(
        options, data_dir, lambda images: to_patches(images, patch_size)
    )
    mean, std = torch.tensor(MEAN), torch.tensor(STD)  # (3,)
    return TaskData(
        shape=shape(options),
        train=train[: options.num_train],
        validation=validation[: options.num_validation],
        test=test,
        scale=(1 / (255 * std)).repeat(patch_size**2),  # (D,): channel is fastest in a token
        shift=(-mean / std).repeat(patch_size**2),
    )


def read_splits(
    options: SplitOptions, data_dir: Path, to_tokens: Callable[[Tensor], Tensor]
) -> tuple[Split, Split, Split]:
    """Read 40k training, 10k validation and 10k test images; `to_tokens` maps (N, 32, 32, 3) uint8 to (N, T, D)."""
    import torch
    from torchvision.datasets import CIFAR10

    # The files are pickles: `files.fetch` has checked that they are the published ones before any is opened.
    root = files.fetch(FILES, data_dir)
    parts = CIFAR10(root, train=True), CIFAR10(root, train=False)
    train, test = (
        Split(inputs=to_tokens(torch.from_numpy(part.data)), labels=torch.tensor(part.targets))
        for part in parts
    )
    held_out = torch.arange(len(train)) // IMAGES_PER_BATCH + 1 == options.validation_batch  # (N,)
    return train[~held_out], train[held_out], test
