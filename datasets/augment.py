"""Crop, flip and rotation of image batches, as in the public code of Lu et al. (in neither paper).

Each image draws its own crop, flip and angle, in that order, with pixels moved and never blended (torchvision's
`RandomCrop(32, padding=4)`, `RandomHorizontalFlip()`, `RandomRotation(20)` at their defaults).

Shape legend: `B` images, `H` rows and columns, `C` channels, `T` tokens, `D` numbers a token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lr_sweep.datasets.images import from_patches, to_patches

PADDING = 4
"""Black pixels added on each side before a crop back to the image's size."""
MAX_ANGLE = math.radians(20)


@dataclass(frozen=True, kw_only=True)
class CropFlipRotate:
    """Augments model-ready tokens (B, T, D) on their device, with the randomness of the generator passed."""

    patch_size: int
    image_size: int
    """Rows and columns H."""
    black: tuple[float, ...]
    """A black pixel's C numbers after normalisation: what comes in at the borders."""

    def __call__(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        """Augment (B, T, D); a generator on the CPU gives the same augmentation on every device."""
        images = from_patches(tokens, self.patch_size, self.image_size)  # (B, H, H, C)
        offsets, flips, angles = _draw(len(images), generator)
        offsets, flips, angles = offsets.to(images.device), flips.to(images.device), angles.to(images.device)
        black = torch.tensor(self.black, dtype=images.dtype, device=images.device)  # (C,)
        images = rotate(flip(crop(images, offsets, black), flips), angles, black)
        return to_patches(images, self.patch_size)


def crop(images: Tensor, offsets: Tensor, black: Tensor) -> Tensor:
    """Pad images (B, H, H, C) with `black` (C,) and cut them at rows and columns `offsets` (B, 2) int64."""
    size = images.shape[1]
    steps = torch.arange(size, device=images.device)  # (H,)
    rows, columns = (offsets.unsqueeze(-1) - PADDING + steps).unbind(1)  # (B, H) each
    return _take(images, rows.unsqueeze(2), columns.unsqueeze(1), black)


def flip(images: Tensor, flips: Tensor) -> Tensor:
    """Mirror left and right those images (B, H, H, C) whose flag in `flips` (B,) bool is set."""
    return torch.where(flips.view(-1, 1, 1, 1), images.flip(2), images)


def rotate(images: Tensor, angles: Tensor, black: Tensor) -> Tensor:
    """Turn images (B, H, H, C) anticlockwise about their centre by `angles` (B,) in radians, to the nearest pixel."""
    centre = (images.shape[1] - 1) / 2
    steps = torch.arange(images.shape[1], device=images.device, dtype=angles.dtype) - centre  # (H,)
    y, x = steps.view(1, -1, 1), steps.view(1, 1, -1)
    sine, cosine = angles.sin().view(-1, 1, 1), angles.cos().view(-1, 1, 1)
    rows = (sine * x + cosine * y + centre).round().long()  # (B, H, H)
    columns = (cosine * x - sine * y + centre).round().long()  # (B, H, H)
    return _take(images, rows, columns, black)


def _draw(num_images: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw crop offsets (B, 2) int64, flips (B,) bool and angles (B,) float64 in radians."""
    device = generator.device
    offsets = torch.randint(0, 2 * PADDING + 1, (num_images, 2), generator=generator, device=device)
    flips = torch.rand(num_images, generator=generator, device=device) < 0.5
    angles = torch.rand(num_images, generator=generator, device=device, dtype=torch.float64)
    return offsets, flips, (2 * angles - 1) * MAX_ANGLE


def _take(images: Tensor, rows: Tensor, columns: Tensor, black: Tensor) -> Tensor:
    """Read pixels (B, H, H, C) at rows and columns that broadcast to (B, H, H); outside the image all is `black`."""
    last = images.shape[1] - 1
    inside = (rows >= 0) & (rows <= last) & (columns >= 0) & (columns <= last)  # (B, H, H)
    batch = torch.arange(len(images), device=images.device).view(-1, 1, 1)
    pixels = images[batch, rows.clamp(0, last), columns.clamp(0, last)]  # (B, H, H, C)
    return torch.where(inside.unsqueeze(-1), pixels, black)
