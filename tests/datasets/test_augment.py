"""Crop, flip and rotation against images worked out by hand, and against torchvision."""

import math

import pytest
import torch
from torchvision.transforms.functional import rotate as torchvision_rotate

from lr_sweep.datasets.cifar10 import CropFlipRotate, _draw, crop, flip, rotate
from lr_sweep.datasets.images import to_patches

BLACK = torch.tensor([-7.0])


def square(*rows: list[float]) -> torch.Tensor:
    """One image of one channel, (1, H, H, 1)."""
    return torch.tensor(rows, dtype=torch.float32).view(1, len(rows), len(rows), 1)


def test_crop_by_hand() -> None:
    """Padded by 4, an image begins at (4, 4); a crop from (3, 6) begins one row above it, in its third column."""
    images = square([1, 2, 3], [4, 5, 6], [7, 8, 9]).repeat(2, 1, 1, 1)
    whole, part = crop(images, torch.tensor([[4, 4], [3, 6]]), BLACK).split(1)
    assert torch.equal(whole, images[:1])
    assert torch.equal(part, square([-7, -7, -7], [3, -7, -7], [6, -7, -7]))


def test_flip_by_hand() -> None:
    images = square([1, 2], [3, 4]).repeat(2, 1, 1, 1)
    got = flip(images, torch.tensor([True, False]))
    assert torch.equal(got, torch.cat([square([2, 1], [4, 3]), square([1, 2], [3, 4])]))


@pytest.mark.parametrize("degrees", [-20.0, -7.3, 0.4, 11.1, 19.7])
def test_rotation_equals_torchvision(degrees: float) -> None:
    image = torch.rand(32, 32, 3, generator=torch.Generator().manual_seed(0))
    want = torchvision_rotate(image.permute(2, 0, 1), degrees).permute(1, 2, 0)
    got = rotate(image.unsqueeze(0), torch.tensor([math.radians(degrees)], dtype=torch.float64), torch.zeros(3))[0]
    assert torch.equal(got, want)


def augmentation(black: tuple[float, ...] = (0.0, 0.0, 0.0)) -> CropFlipRotate:
    return CropFlipRotate(patch_size=4, black=black)


def test_same_generator_same_result_and_no_global_randomness() -> None:
    tokens = torch.rand(5, 64, 48)
    state = torch.get_rng_state()
    first, again, other = (augmentation()(tokens, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == tokens.shape
    assert torch.equal(torch.get_rng_state(), state)


def test_padding_is_raw_black_exactly() -> None:
    """Augmenting normalised tokens gives what normalising augmented raw images gives, to the bit."""
    raw = torch.randint(1, 256, (6, 64, 48), generator=torch.Generator().manual_seed(0)).float()
    scale, black = torch.tensor([0.02, 0.03, 0.04]).repeat(16), torch.tensor([-2.4, -2.3, -2.2])
    want = augmentation()(raw, torch.Generator().manual_seed(3)) * scale + black.repeat(16)
    tokens = raw * scale + black.repeat(16)
    got = augmentation(tuple(black.tolist()))(tokens, torch.Generator().manual_seed(3))
    assert torch.equal(got, want)
    assert (got == black.repeat(16)).any()


def test_patches_are_put_together_before_and_cut_again_after() -> None:
    images = torch.rand(2, 32, 32, 3)
    whole = CropFlipRotate(patch_size=1, black=(0.0, 0.0, 0.0))
    got = augmentation()(to_patches(images, 4), torch.Generator().manual_seed(0))
    moved = whole(to_patches(images, 1), torch.Generator().manual_seed(0)).view(2, 32, 32, 3)
    assert torch.equal(got, to_patches(moved, 4))


def test_ranges_of_what_is_drawn() -> None:
    offsets, flips, angles = _draw(4000, torch.Generator().manual_seed(0))
    assert offsets.unique().tolist() == list(range(9))
    assert 0.45 < flips.double().mean() < 0.55
    assert math.radians(19) < angles.max() <= math.radians(20)
    assert -math.radians(20) <= angles.min() < -math.radians(19)
