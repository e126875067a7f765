"""MNIST as patches (Lu et al. 2021, section 2.1; Rothermel et al. 2021, section 3).

50k training, 10k validation and 10k test images. Pixels in [0, 1].
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from lr_sweep.datasets import files

from .images import check_patches, draw_per_class, to_patches
from .task import LARGEST_SEED, Split, TaskData, TaskShape, always, check_limits

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of MNIST."""

    later: ClassVar[tuple[str, ...]] = ("patch_size",)
    image_size: Literal[32, 28] = 32
    """Rows and columns. 32: two black pixels a side, 64 tokens (both papers). 28: 49 tokens (Lu et al.'s code)."""
    validation_per_class: int = 1000
    """Validation images of each class (Rothermel et al. 2021, section 3)."""
    split_seed: int = 0
    """Picks the validation images; has nothing to do with a run's seed."""
    patch_size: int = 4
    """Rows and columns of a token's pixels; divides `image_size`. 7 with an `image_size` of 28: 16 tokens."""

    @property
    def num_tokens(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    def __post_init__(self) -> None:
        check_patches(self.image_size, self.patch_size)
        # The rarest digit has 5421 training images.
        check_limits(self, ("validation_per_class",), 1, 5000)
        check_limits(self, ("split_seed",), 0, LARGEST_SEED)


def _download(folder: Path) -> None:
    from torchvision.datasets import MNIST

    MNIST(folder, download=True)


FILES = files.RemoteFiles(
    task="mnist",
    md5s={
        "MNIST/raw/train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "MNIST/raw/train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "MNIST/raw/t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "MNIST/raw/t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    download=_download,
    by_hand="get the .gz files from https://ossci-datasets.s3.amazonaws.com/mnist/ and put them in {folder}/MNIST/raw.",
)


def shape(options: Options) -> TaskShape:
    """Return 64 tokens of 16 pixels, or as the options have it; 10 classes."""
    return TaskShape(num_tokens=options.num_tokens, num_classes=10, token_dim=options.patch_size**2)


def num_train(options: Options) -> int:
    """Return MNIST's 60,000 training images less the validation split."""
    return 60_000 - 10 * options.validation_per_class


def num_held_out(options: Options) -> int:
    """Return the validation images and MNIST's 10,000 test images."""
    return 10 * options.validation_per_class + 10_000


checksum = always(FILES.checksum)  # of the file list: `fetch` accepts no other content
origin = always("torchvision")


def fetch(options: Options, data_dir: Path) -> None:
    """Verify the four files, or download them; see `files.fetch`."""
    files.fetch(FILES, data_dir)


def load(options: Options, data_dir: Path) -> TaskData:
    """Read MNIST; inputs are (N, T, D) uint8."""
    import torch

    root = files.fetch(FILES, data_dir)
    # The format is a header of 4 bytes and 4 more for each axis, then the numbers.
    images, test_images = (
        _read(root / name, 16).view(-1, 28, 28) for name in FILES.md5s if "images" in name
    )
    labels, test_labels = (_read(root / name, 8).long() for name in FILES.md5s if "labels" in name)
    drawn, left = draw_per_class(
        labels, options.validation_per_class, np.random.RandomState(options.split_seed)
    )
    return TaskData(
        shape=shape(options),
        train=_split(images[left], labels[left], options),
        validation=_split(images[drawn], labels[drawn], options),
        test=_split(test_images, test_labels, options),
        scale=torch.full((options.patch_size**2,), 1 / 255),
        shift=torch.zeros(options.patch_size**2),
    )


def _read(path: Path, header_bytes: int) -> Tensor:
    """Return the numbers of a file that `files.fetch` has verified, (M,) uint8."""
    import torch

    content = bytearray(gzip.decompress(path.read_bytes()))
    return torch.frombuffer(content, dtype=torch.uint8, offset=header_bytes)


def _split(images: Tensor, labels: Tensor, options: Options) -> Split:
    from torch.nn.functional import pad

    margin = (options.image_size - images.shape[-1]) // 2
    padded = pad(images, (margin, margin, margin, margin))  # (N, H, W)
    tokens = to_patches(padded.unsqueeze(-1), options.patch_size)  # (N, T, D)
    return Split(inputs=tokens, labels=labels)
