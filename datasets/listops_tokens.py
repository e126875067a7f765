"""ListOps token ids and tokenisations (Nangia and Bowman 2018; Long Range Arena, Tay et al. 2020, section 2.2.1).

Shape legend: `N` examples, `T` tokens an example.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Tokenisation = Literal["lra", "lu2021"]

VOCABULARY = ("<pad>", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
"""A token's id is its index. The closer is last, so that dropping it leaves ids 0 to 14."""
PAD, FIRST_DIGIT, FIRST_OPERATOR, CLOSER = 0, 1, 11, 15
LU2021_NUM_TOKENS = 512

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Tokenised expressions with their values."""

    inputs: np.ndarray
    """(N, T) uint8 token ids, padded on the right."""
    labels: np.ndarray
    """(N,) uint8, values 0 to 9."""
    lengths: np.ndarray
    """(N,) int16, tokens of each example."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: slice) -> Examples:
        return Examples(inputs=self.inputs[chosen], labels=self.labels[chosen], lengths=self.lengths[chosen])


def num_tokens(tokenisation: Tokenisation, max_tree_length: int) -> int:
    """Tokens an example is padded to. `lra`: the exclusive bound on its length, so the last one is always padding."""
    return max_tree_length if tokenisation == "lra" else min(LU2021_NUM_TOKENS, max_tree_length)


def num_token_ids(tokenisation: Tokenisation) -> int:
    """Size of the vocabulary, padding included: 16, or 15 without the closer."""
    return len(VOCABULARY) if tokenisation == "lra" else len(VOCABULARY) - 1


def to_lu2021(examples: Examples) -> Examples:
    """Drop the closers and cut at 512 tokens, as Lu et al.'s public code did; such examples can't be solved."""
    width = num_tokens("lu2021", examples.inputs.shape[1])
    inputs = np.zeros((len(examples), width), dtype=np.uint8)  # (N, T)
    lengths = np.zeros(len(examples), dtype=np.int16)  # (N,)
    for start in range(0, len(examples), _ROWS_AT_ONCE):
        chosen = slice(start, start + _ROWS_AT_ONCE)
        inputs[chosen], lengths[chosen] = _drop_closers(examples.inputs[chosen], width)
    return Examples(inputs=inputs, labels=examples.labels, lengths=lengths)


def _drop_closers(inputs: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Move the other tokens of (N, T) together; returns (N, width) uint8 and (N,) lengths."""
    is_kept = (inputs != CLOSER) & (inputs != PAD)  # (N, T)
    positions = is_kept.cumsum(axis=1, dtype=np.int16) - 1  # (N, T)
    rows, columns = np.nonzero(is_kept & (positions < width))
    moved = np.zeros((len(inputs), width), dtype=np.uint8)
    moved[rows, positions[rows, columns]] = inputs[rows, columns]
    return moved, np.minimum(is_kept.sum(axis=1), width)
