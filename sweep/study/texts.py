"""The text of a recipe for pretraining: where it is, its bytes, and what to do where it is missing."""

from __future__ import annotations

import os
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.datasets.files import default_data_dir
from lr_sweep.sweep.study.model import Recipe
from lr_sweep.trainables.pretraining.recipe import (
    VALIDATION_SHARE,
    TaskRecipe,
    describe_corpus,
    fewest_bytes,
    read_corpus,
    text_files,
)

GIVE_TEXT = (
    "Put a text file there, or name yours in a copy of the study (`text: [FILE]`); other text gives other weights, and "
    "so other runs"
)
"""What to do where the text of a recipe is missing."""


def missing_text(recipe: Recipe, data_dir: Path | None) -> Path | None:
    """Return the first file of a recipe's text that does not exist; `data_dir` None: the default one."""
    paths = [] if isinstance(recipe, TaskRecipe) else text_files(recipe, data_dir or default_data_dir())
    return next((path for path in paths if not os.path.lexists(path)), None)


def corpus_of(recipe: Recipe, data_dir: Path | None) -> bytes:
    """Return the text of a recipe, empty for a task; `data_dir` None: the default one.

    Raises:
        UserError: it cannot be read, or is too short to train on.
    """
    if isinstance(recipe, TaskRecipe):
        return b""
    try:
        corpus = read_corpus(recipe, data_dir or default_data_dir())
    except OSError as error:
        fix = f". {GIVE_TEXT}" if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"cannot read the text to pretrain on: {error.filename}: {error.strerror}{fix}") from error
    fewest = fewest_bytes(recipe.num_tokens)
    if len(corpus) < fewest:
        raise UserError(
            f"the text to pretrain on ({describe_corpus(recipe)}) has {len(corpus)} bytes, want at least {fewest}: "
            f"{VALIDATION_SHARE:.0%} is held out, and a sequence has num_tokens = {recipe.num_tokens}. Give more "
            f"text, or lower `num_tokens`."
        )
    return corpus
