"""Bit XOR (Lu et al. 2021, section 2.1): two strings of random bits, and their XOR.

The model is shown 5 bits and 5 more, one a token. At the position of each bit of the second string it answers its XOR
with the same bit of the first. Tokens are 0 and 1, as in Lu et al.'s public code. Two strings of 5 bits make only 1024
different examples, so held-out sets overlap with training batches; with 20 bits or more they are new.
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
    """Options of bit XOR. Defaults: Lu et al. 2021, section 2.1."""

    num_bits: int = 5
    """Bits of each of the two strings, 2 to 256 (the longest strings in Lu et al. 2021, section 3.1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self, ("num_bits",), 2, 256)


def shape(options: Options) -> TaskShape:
    """Return 10 tokens of one bit, 5 answers of 2 classes at the last 5 positions."""
    return TaskShape(
        num_tokens=2 * options.num_bits,
        num_classes=2,
        token_dim=1,
        num_answers=options.num_bits,
        num_read=options.num_bits,
    )


checksum = bits.version_checksum("bit-xor", GENERATOR_VERSION)


def load(options: Options, data_dir: Path) -> TaskData:
    """Make the fixed sets; inputs are (N, T, 1) int8 of 0 and 1, labels (N, Q)."""
    return bits.data_of("bit-xor", shape(options), options, partial(_make, options))


def _make(options: Options, num_examples: int, uniform: bits.Uniform) -> Split:
    return lay_out(uniform(num_examples, 2, options.num_bits) < 0.5)


def lay_out(is_one: Tensor) -> Split:
    """Write pairs of strings, (N, 2, Q) bool, as tokens and answers."""
    import torch

    first, second = is_one.unbind(1)  # (N, Q) each
    return Split(
        inputs=is_one.flatten(1).unsqueeze(-1).to(torch.int8), labels=(first ^ second).long()
    )
