"""How a model is pretrained here, where published weights are too large or out of reach."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from trainables.corpus import describe_corpus
from trainables.run import ModelSize

NUM_BYTES = 256
"""The vocabulary: one token a byte."""


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


def pretrained_folder(root: Path, size: ModelSize, recipe: PretrainRecipe, corpus: bytes) -> Path:
    """Return the folder a recipe's weights are saved in, named after everything that goes into them."""
    content = {"size": asdict(size), "recipe": asdict(recipe) | {"text": hashlib.sha256(corpus).hexdigest()}}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    return root / f"gpt2-{size.layers}x{size.width}-{digest}"


def pretraining_checkpoints(folder: Path) -> Path:
    """Return where checkpoints are while the weights of a folder are trained."""
    return folder.with_name(f".{folder.name}.checkpoints")


def describe_pretraining(size: ModelSize, recipe: PretrainRecipe) -> str:
    """Return what a table says its "pretrained" was."""
    tokens = recipe.num_steps * recipe.batch_size * recipe.num_tokens
    return (
        f"byte-level GPT-2 of {size.layers} layers x width {size.width}, trained for {recipe.num_steps} steps "
        f"({tokens / 1e6:.1f} MB) on {describe_corpus(recipe.text)}"
    )
