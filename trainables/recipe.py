"""How a model is pretrained here, where published weights are too large or out of reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class PretrainRecipe:
    """Next-token pretraining on text. Everything in it can change the weights; the defaults take minutes on a CPU."""

    text: Literal["python-stdlib"] | tuple[Path, ...] = "python-stdlib"
    """`python-stdlib`: the sources of Python's standard library, on every machine; or text files, in this order."""
    num_steps: int = 600
    """Gradient steps."""
    batch_size: int = 16
    """Sequences a gradient step."""
    num_tokens: int = 128
    """Tokens a sequence (context), one a byte of text; at most the model's `positions`."""
    learning_rate: float = 1e-3
    """Of AdamW at its peak, between a linear warm-up and a cosine."""
    seed: int = 0
    """Of the initial weights and the order of the text; not the seed of a run."""
