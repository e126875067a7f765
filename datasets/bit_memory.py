"""Bit memory (Lu et al. 2021, section 2.1): some patterns of random bits, then one of them with bits missing.

The model is shown 5 patterns of 1000 bits, -1 or +1, and again one of them, each bit of which is masked, 0, with
probability 0.5: 120 tokens of 50 bits. The answer is that pattern whole: each of the last 20 positions answers the 50
bits of its own token, class 1 for +1. Lu et al.'s text names no numbers for bits; these are their public code's. A
constant answer is right for half of the bits, a copy of the masked pattern for 75%; 100% is possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lr_sweep.datasets import bits

from .bits import fetch, num_held_out, num_train, origin
from .task import Split, TaskData, TaskShape, check_limits

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Options", "checksum", "fetch", "load", "num_held_out", "num_train", "origin", "shape"]

GENERATOR_VERSION = 1
"""Part of the data's checksum; raise it when the same seed gives other examples."""


@dataclass(frozen=True, kw_only=True)
class Options(bits.HeldOutOptions):
    """Options of bit memory. Defaults: Lu et al. 2021, section 2.1."""

    num_patterns: int = 5
    """Patterns shown before the masked one."""
    num_bits: int = 1000
    """Bits of a pattern; a multiple of `bits_per_token`."""
    bits_per_token: int = 50
    """Bits of a token."""
    mask_probability: float = 0.5
    """Probability of masking each bit of the last pattern."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self, ("num_patterns",), 1, 1000)
        check_limits(self, ("num_bits",), 2, 100_000)
        check_limits(self, ("bits_per_token",), 1, self.num_bits)
        if self.num_bits % self.bits_per_token:
            raise ValueError(
                f"num_bits is {self.num_bits}, wanted a multiple of bits_per_token {self.bits_per_token}"
            )
        if not 0 <= self.mask_probability <= 1:
            raise ValueError(f"mask_probability is {self.mask_probability}, wanted 0 to 1")


def shape(options: Options) -> TaskShape:
    """Return 120 tokens of 50 bits, 1000 answers of 2 classes at the last 20 positions."""
    tokens_per_pattern = options.num_bits // options.bits_per_token
    return TaskShape(
        num_tokens=(options.num_patterns + 1) * tokens_per_pattern,
        num_classes=2,
        token_dim=options.bits_per_token,
        num_answers=options.num_bits,
        num_read=tokens_per_pattern,
    )


checksum = bits.version_checksum("bit-memory", GENERATOR_VERSION)


def load(options: Options, data_dir: Path) -> TaskData:
    """Make the fixed sets; inputs are (N, T, D) int8 of -1, 0 and 1, labels (N, Q)."""
    return bits.data_of("bit-memory", shape(options), options, partial(_make, options))


def _make(options: Options, num_examples: int, uniform: bits.Uniform) -> Split:
    is_one = uniform(num_examples, options.num_patterns, options.num_bits) < 0.5  # (N, patterns, Q)
    shown = uniform(num_examples, options.num_patterns).argmax(1)  # (N,): each pattern is as likely
    is_masked = uniform(num_examples, options.num_bits) < options.mask_probability  # (N, Q)
    return lay_out(is_one, shown, is_masked, options.bits_per_token)


def lay_out(is_one: Tensor, shown: Tensor, is_masked: Tensor, bits_per_token: int) -> Split:
    """Write examples as tokens.

    Bits `is_one` are (N, patterns, Q) bool; pattern `shown` (N,) comes again, without the bits `is_masked` (N, Q).
    """
    import torch

    answers = is_one[torch.arange(len(shown), device=shown.device), shown]  # (N, Q)
    ones = torch.cat([is_one, answers.unsqueeze(1)], dim=1)  # (N, patterns + 1, Q)
    patterns = ones.to(torch.int8) * 2 - 1
    patterns[:, -1].masked_fill_(is_masked, 0)
    return Split(inputs=patterns.reshape(len(shown), -1, bits_per_token), labels=answers.long())
