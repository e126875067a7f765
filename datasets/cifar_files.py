"""Reading CIFAR-10 (Krizhevsky 2009), for every task made of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from datasets import files

if TYPE_CHECKING:
    from torch import Tensor

BatchNumber = Literal[1, 2, 3, 4, 5]
IMAGES_PER_BATCH = 10_000


@dataclass(frozen=True, kw_only=True)
class Images:
    """Labelled images."""

    pixels: Tensor
    """(N, 32, 32, 3) uint8, RGB."""
    labels: Tensor
    """(N,) int64."""


def _download(folder: Path) -> None:
    from torchvision.datasets import CIFAR10

    CIFAR10(folder, download=True)


FILES = files.RemoteFiles(
    task="cifar10",
    folder="cifar10",
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


def read(data_dir: Path, validation_batch: BatchNumber) -> tuple[Images, Images, Images]:
    """Read 40k training, 10k validation and 10k test images.

    Args:
        data_dir: the data directory.
        validation_batch: which of the five training files becomes the validation split.

    Raises:
        DataError: missing and not to be had, or corrupted.
    """
    import torch
    from torchvision.datasets import CIFAR10

    # The files are pickles: `files.fetch` has checked that they are the published ones before any is opened.
    root = files.fetch(FILES, data_dir)
    train, test = CIFAR10(root, train=True), CIFAR10(root, train=False)
    batch_numbers = torch.arange(len(train.data)) // IMAGES_PER_BATCH + 1  # (N,)
    pixels, labels = torch.from_numpy(train.data), torch.tensor(train.targets)
    held_out = batch_numbers == validation_batch
    return (
        Images(pixels=pixels[~held_out], labels=labels[~held_out]),
        Images(pixels=pixels[held_out], labels=labels[held_out]),
        Images(pixels=torch.from_numpy(test.data), labels=torch.tensor(test.targets)),
    )
