"""Remote homology of TAPE (Rao et al. 2019): the fold of a protein from its amino acids, 1195 classes.

The test split is TAPE's fold holdout, of superfamilies that are not in training. Lu et al. 2021, section 2.1, leave out
sequences of 1024 amino acids and more. Their public code tested on the validation split, put a start and an end token
around sequences, left out every batch with a long sequence, and multiplied accuracies by 0.9739 to correct for that.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.request import urlretrieve

import numpy as np

from lr_sweep.datasets import files

from .task import DataError, Split, TaskData, TaskShape, always, check_limits

Records = list[tuple[str, int]]
"""Sequences with their folds."""

LETTERS = "ABCDEFGHIKLMNOPQRSTUVWXYZ"
"""TAPE's letters for 20 common and 5 uncommon amino acids; a letter's id is its index plus 1, and 0 is padding."""
NUM_FOLDS = 1195
CHECKSUM = "3be32fb3c5eabab98a92428aa009c055cf81fd829cc2f8265776b1ac7bbc3652"
"""sha256 of the sha256 of each file, as run ids have it."""
COMMIT = "ac7ab322701ddb41c707662f4ed9a9cfd29def12"
URL = f"https://raw.githubusercontent.com/technion-cs-nlp/BiologicalTokenizers/{COMMIT}/data"
"""Folder of a copy of TAPE's sequences as CSV (columns seq, label)."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of remote homology."""

    max_length: int = 1024
    """The longest sequence, in amino acids; also the length that sequences are padded to (Lu et al. 2021, section
    2.1)."""
    longer: Literal["drop", "cut"] = "drop"
    """What becomes of longer sequences: left out (Lu et al. 2021, section 2.1), or cut at their end."""

    def __post_init__(self) -> None:
        check_limits(self, ("max_length",), 1, 10_000)


def _download(folder: Path) -> None:
    for name in FILES.md5s:
        urlretrieve(f"{URL}/{name.replace('homology_', 'homology/')}", folder / name)


FILES = files.RemoteFiles(
    task="remote-homology",
    md5s={
        "remote_homology_train.csv": "76e1d2f5ad719b3858de0458e3c42886",
        "remote_homology_valid.csv": "f1a5f62c6527527c80b6bb17b9667f7c",
        "remote_homology_test.csv": "51927e3b6962a89b66823bb76c2638ff",
    },
    download=_download,
    by_hand=f"get train.csv, valid.csv and test.csv from {URL}/remote_homology and save them under these names.",
)


def shape(options: Options) -> TaskShape:
    """Return 1024 tokens out of 26, 1195 classes."""
    return TaskShape(
        num_tokens=options.max_length, num_classes=NUM_FOLDS, num_token_ids=1 + len(LETTERS)
    )


num_train = always(12_312)  # `longer: drop` leaves some out, by default 7
num_held_out = always(736 + 718)
checksum = always(CHECKSUM)  # `fetch` accepts no other content
origin = always("TAPE (CSV)")


def fetch(options: Options, data_dir: Path) -> None:
    """Verify the files, or download them; see `files.fetch`."""
    files.fetch(FILES, data_dir)


def load(options: Options, data_dir: Path) -> TaskData:
    """Read remote homology; inputs are (N, T) uint8 token ids, padded on the right."""
    root = files.fetch(FILES, data_dir)
    train, validation, test = (
        _to_split(_shorten(_read(root / name), options), options.max_length) for name in FILES.md5s
    )
    return TaskData(shape=shape(options), train=train, validation=validation, test=test)


def _read(path: Path) -> Records:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["seq"], int(row["label"])) for row in csv.DictReader(file)]


def _shorten(records: Records, options: Options) -> Records:
    if options.longer == "cut":
        return [(sequence[: options.max_length], fold) for sequence, fold in records]
    kept = [(sequence, fold) for sequence, fold in records if len(sequence) <= options.max_length]
    if not kept:
        raise DataError(
            f"remote-homology: all sequences of a split have more than {options.max_length} amino acids: "
            "remove the files, and fetch them with `lr-sweep data remote-homology`."
        )
    return kept


def _to_split(records: Records, width: int) -> Split:
    """Return inputs (N, width) and labels (N,)."""
    import torch

    ids = np.zeros(128, dtype=np.uint8)
    ids[list(LETTERS.encode())] = np.arange(1, 1 + len(LETTERS))
    inputs = np.zeros((len(records), width), dtype=np.uint8)
    for row, (sequence, _) in zip(inputs, records, strict=True):
        row[: len(sequence)] = ids[list(sequence.encode())]
    return Split(
        inputs=torch.from_numpy(inputs),
        labels=torch.tensor([fold for _, fold in records]),
        lengths=torch.tensor([len(sequence) for sequence, _ in records]),
    )
