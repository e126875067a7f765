"""ListOps examples: token ids, tokenisations, and the folder that keeps them on disk.

Vocabulary of Nangia and Bowman 2018; Long Range Arena, Tay et al. 2020, section 2.2.1.

Shape legend: `N` examples, `T` tokens an example.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from filelock import FileLock

from lr_sweep.common.files import whole_folder, write_json
from lr_sweep.datasets import files
from lr_sweep.datasets.task import DataError

Tokenisation = Literal["lra", "lu2021"]

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
VOCABULARY = ("<pad>", *"0123456789", *OPERATORS, "]")
"""A token's id is its index. The closer is last, so that dropping it leaves ids 0 to 14."""
PAD, FIRST_DIGIT, FIRST_OPERATOR, CLOSER = 0, 1, 11, 15
LU2021_NUM_TOKENS = 512

_ARRAYS = ("inputs", "labels", "lengths")
_MANIFEST = "sha256.json"
_log = logging.getLogger(__name__)


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
    """Return the number of tokens T that examples are padded to; `lra`: the last one is always padding."""
    return max_tree_length if tokenisation == "lra" else min(LU2021_NUM_TOKENS, max_tree_length)


def to_lu2021(examples: Examples) -> Examples:
    """Drop the closers and cut at 512 tokens, as Lu et al.'s public code did; such examples can't be solved."""
    width = num_tokens("lu2021", examples.inputs.shape[1])
    inputs = np.zeros((len(examples), width), dtype=np.uint8)  # (N, T)
    for row, ids in zip(inputs, examples.inputs, strict=True):
        kept = ids[(ids != CLOSER) & (ids != PAD)][:width]
        row[: len(kept)] = kept
    lengths = np.count_nonzero(inputs != PAD, axis=1).astype(np.int16)  # (N,)
    return Examples(inputs=inputs, labels=examples.labels, lengths=lengths)


def read_or_make(data_dir: Path, name: str, make: Callable[[], Examples]) -> Examples:
    """Read the examples that a folder keeps; make and keep them first if it is not there, once, under a lock.

    The folder is in the data directory, or where that can't be written, in the user's cache (`files.cache_dir`). Where
    neither can be written, examples are made at each call.

    Raises:
        DataError: the data directory does not exist, a file of the folder is corrupted, or `make` fails.
    """
    files.require_folder(data_dir)
    roots = data_dir, files.cache_dir()
    for root in roots:
        if (folder := root / "listops" / name).exists():
            return _read(folder)
    for root in roots:
        files.require_folder(root)
        if files.is_writable(root):
            folder = root / "listops" / name
            with FileLock(root / ".listops.lock"):
                if not folder.exists():
                    _log.info("making ListOps examples in %s", folder)
                    _write(folder, make())
            return _read(folder)
    _log.warning("listops: neither %s nor %s can be written; examples are made each time", *roots)
    return make()


def _write(folder: Path, examples: Examples) -> None:
    folder.parent.mkdir(exist_ok=True)
    with whole_folder(folder) as partial:
        for name in _ARRAYS:
            np.save(partial / f"{name}.npy", getattr(examples, name), allow_pickle=False)
        write_json(partial / _MANIFEST, {name: files.hash_file(partial / f"{name}.npy") for name in _ARRAYS})


def _read(folder: Path) -> Examples:
    path = folder / _MANIFEST
    try:
        manifest = json.loads(path.read_text())
        for name in _ARRAYS:
            path = folder / f"{name}.npy"
            if files.hash_file(path) != manifest[name]:
                raise ValueError("another sha256")
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"listops: {path} is missing or corrupted: it is not as it was written. Delete the folder {folder} "
            "and run again: the same examples will be made."
        ) from error
    return Examples(**{name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in _ARRAYS})
