"""8x8 handwritten digits that come with scikit-learn: real data that needs no download, for tests and first steps.

Not in either paper. 1197 training, 300 validation and 300 test images, 30 of each class in the latter two.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import distribution, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .images import draw_per_class, to_patches
from .task import (
    LARGEST_SEED,
    DataError,
    Split,
    TaskData,
    TaskShape,
    always,
    check_limits,
)

if TYPE_CHECKING:
    from torch import Tensor

PATCH_SIZE = 4
IMAGE_SIZE = 8
NUM_IMAGES = 1797
HELD_OUT_PER_CLASS = 30
CHECKSUM = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
"""sha256 of the pixels (1797, 8, 8) and the labels (1797,), both as uint8."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of digits."""

    split_seed: int = 0
    """Picks the validation and test images; has nothing to do with a run's seed."""

    def __post_init__(self) -> None:
        check_limits(self, ("split_seed",), 0, LARGEST_SEED)


def shape(options: Options) -> TaskShape:
    """Return 4 tokens of 16 pixels, 10 classes."""
    return TaskShape(
        num_tokens=(IMAGE_SIZE // PATCH_SIZE) ** 2, num_classes=10, token_dim=PATCH_SIZE**2
    )


num_held_out = always(2 * 10 * HELD_OUT_PER_CLASS)
num_train = always(NUM_IMAGES - 2 * 10 * HELD_OUT_PER_CLASS)
checksum = always(CHECKSUM)  # `fetch` accepts no other content
origin = always("scikit-learn")


def fetch(options: Options, data_dir: Path) -> None:
    """Verify that the images in scikit-learn are the known ones."""
    _read()


def load(options: Options, data_dir: Path) -> TaskData:
    """Read digits; inputs are (N, 4, 16) uint8 of 0 to 16."""
    import torch

    inputs, labels = _read()
    random = np.random.RandomState(options.split_seed)
    validation, rest = draw_per_class(labels, HELD_OUT_PER_CLASS, random)
    drawn, left = draw_per_class(labels[rest], HELD_OUT_PER_CLASS, random)
    test, train = rest[drawn], rest[left]
    return TaskData(
        shape=shape(options),
        train=Split(inputs=inputs[train], labels=labels[train]),
        validation=Split(inputs=inputs[validation], labels=labels[validation]),
        test=Split(inputs=inputs[test], labels=labels[test]),
        scale=torch.full((PATCH_SIZE**2,), 1 / 16),
        shift=torch.zeros(PATCH_SIZE**2),
    )


def _read() -> tuple[Tensor, Tensor]:
    """Read and verify tokens (1797, 4, 16) uint8 and labels (1797,) int64."""
    import torch

    # scikit-learn is not imported: that takes a second, in each process that trains.
    path = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = np.loadtxt(str(path), dtype=np.uint8, delimiter=",")
    images = np.ascontiguousarray(table[:, :-1]).reshape(-1, IMAGE_SIZE, IMAGE_SIZE)
    labels = table[:, -1].copy()
    if (got := hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()) != CHECKSUM:
        raise DataError(
            f"digits: scikit-learn {version('scikit-learn')} comes with other images than expected: their sha256 is "
            f"{got}, wanted {CHECKSUM}. Reinstall scikit-learn (pip install --force-reinstall scikit-learn)."
        )
    tokens = to_patches(torch.from_numpy(images).unsqueeze(-1), PATCH_SIZE)
    return tokens, torch.from_numpy(labels).long()
