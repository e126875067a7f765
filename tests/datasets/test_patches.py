"""Images to patches and back, and stratified splits."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.datasets.images import draw_per_class, from_patches, to_patches


def test_patch_order_by_hand() -> None:
    # One 2x4 image of two channels: pixel (row, column) holds (10 * row + column, the same + 100).
    image = torch.tensor([[[[0, 100], [1, 101], [2, 102], [3, 103]], [[10, 110], [11, 111], [12, 112], [13, 113]]]])
    assert to_patches(image, patch_size=2).tolist() == [
        [[0, 100, 1, 101, 10, 110, 11, 111], [2, 102, 3, 103, 12, 112, 13, 113]]
    ]


def test_patches_come_in_raster_order() -> None:
    image = torch.arange(16).view(1, 4, 4, 1)
    assert to_patches(image, patch_size=2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]


@given(
    n=st.integers(0, 3), rows=st.integers(1, 4), columns=st.integers(1, 4), patch=st.integers(1, 4), c=st.integers(1, 3)
)
def test_round_trip(n: int, rows: int, columns: int, patch: int, c: int) -> None:
    images = torch.arange(n * rows * patch * columns * patch * c).view(n, rows * patch, columns * patch, c)
    tokens = to_patches(images, patch)
    assert tokens.shape == (n, rows * columns, patch * patch * c)
    assert torch.equal(from_patches(tokens, patch, height=rows * patch), images)


def test_draw_per_class_partitions() -> None:
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0])
    drawn, left = draw_per_class(labels, 2, np.random.RandomState(0))
    assert labels[drawn].bincount().tolist() == [2, 2]
    assert sorted(drawn.tolist() + left.tolist()) == list(range(7))
    assert drawn.tolist() == sorted(drawn.tolist())
