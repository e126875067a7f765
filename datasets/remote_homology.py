"""Remote homology of TAPE (Rao et al. 2019): the fold of a protein from its amino acids, 1195 classes.

12,312 training, 736 validation and 718 test sequences; the test is TAPE's fold holdout, of superfamilies that are not
in training. Lu et al. 2021, section 2.1, leave out sequences of 1024 amino acids and more. Seven in training and two in
validation are longer, and none has 1024: 12,305, 734 and 718 remain.

Lu et al.'s public code differs from their text. It tested on the validation split, and put a start and an end token
around sequences. It left out every batch with a long sequence, and multiplied accuracies by 0.9739 to correct for that.

Two forms of the files are read: TAPE's JSON, and a CSV copy (columns seq, label; from the repository
technion-cs-nlp/BiologicalTokenizers), which is preferred where both are there. TAPE's LMDB files hold pickles, which
are never loaded.

Shape legend: `N` examples, `T` tokens an example.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from lr_sweep.datasets import files
from lr_sweep.datasets.task import DataError, Split, TaskData, TaskShape, always, check_limits

Records = list[tuple[str, int]]
"""Sequences with their folds."""

LETTERS = "ABCDEFGHIKLMNOPQRSTUVWXYZ"
"""20 common amino acids and 5 uncommon ones, B, O, U, X and Z (TAPE's own; the files have the common ones alone). A
letter's id is its index plus 1; 0 is padding."""
NUM_FOLDS = 1195
SIZES = (12_312, 736, 718)
"""Sequences in the training, validation and test file (Rao et al. 2019)."""
CSV_FILES = {
    "remote_homology_train.csv": "cb0e6e96a6aa49a9914fda4896a6fb2531088ce40921db65e0a836375b14f168",
    "remote_homology_valid.csv": "6299347789438348cbecb0b08f2b2d180d216f3a7cc2c7ebf47490229422b73a",
    "remote_homology_test.csv": "231a73a0b82a91b706a850ee21090f7f956ac29fa759f116eae4597fe2a7502c",
}
"""Training, validation and test file -> sha256."""
JSON_FILES = ("remote_homology_train.json", "remote_homology_valid.json", "remote_homology_test_fold_holdout.json")
"""Training, validation and test file."""
FOLDER = "remote_homology"
URL = "http://s3.amazonaws.com/songlabdata/proteindata/data_raw_pytorch/remote_homology.tar.gz"


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


def shape(options: Options) -> TaskShape:
    """Return 1024 tokens out of 26, 1195 classes."""
    return TaskShape(num_tokens=options.max_length, num_classes=NUM_FOLDS, num_token_ids=1 + len(LETTERS))


num_train = always(SIZES[0])  # `longer: drop` leaves some out, by default 7
num_held_out = always(SIZES[1] + SIZES[2])


def checksum(options: Options, data_dir: Path) -> str:
    """Return the sha256 over the sha256 of each file; where there are none, of the CSV files, which are known."""
    found = _find(data_dir)
    hashes = map(files.hash_file, found) if _are_json(found) else CSV_FILES.values()
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def origin(options: Options, data_dir: Path) -> str:
    """Return which files are read: `TAPE (JSON)`, or `TAPE (CSV)`."""
    return "TAPE (JSON)" if _are_json(_find(data_dir)) else "TAPE (CSV)"


def fetch(options: Options, data_dir: Path) -> None:
    """Read and check the three files; they are not downloaded.

    Raises:
        DataError: they are not there, not the published ones, or have no sequence that is short enough.
    """
    load(options, data_dir)


def load(options: Options, data_dir: Path) -> TaskData:
    """Read remote homology; inputs are (N, T) uint8 token ids, padded on the right."""
    found = _find(data_dir)
    if not found:
        files.require_folder(data_dir)
        raise DataError(_missing_message(data_dir / FOLDER))
    read = _read_json if _are_json(found) else _read_csv
    train, validation, test = (
        _to_split(_shorten(path, read(path, size), options), options.max_length)
        for path, size in zip(found, SIZES, strict=True)
    )
    return TaskData(shape=shape(options), train=train, validation=validation, test=test)


def _find(data_dir: Path) -> list[Path]:
    """Return the training, validation and test file; none unless all three of a kind are there."""
    for names in (CSV_FILES, JSON_FILES):
        paths = [data_dir / FOLDER / name for name in names]
        if all(path.is_file() for path in paths):
            return paths
    return []


def _are_json(paths: Iterable[Path]) -> bool:
    return any(path.suffix == ".json" for path in paths)


def _missing_message(folder: Path) -> str:
    found = sorted(path.name for path in folder.glob("remote_homology_*.*"))
    lmdb = any(name.endswith(".lmdb") for name in found)
    return (
        f"remote-homology: got {', '.join(found) or 'no files'} in {folder}, want {', '.join(JSON_FILES)}. "
        + ("TAPE's LMDB files hold pickles, which are never loaded. " if lmdb else "")
        + f"Get {URL} (JSON), unpack it, and put these three there."
    )


def _read_csv(path: Path, size: int) -> Records:
    if (got := files.hash_file(path)) != (wanted := CSV_FILES[path.name]):
        raise DataError(
            f"remote-homology: {path} is not the known file: its sha256 is {got}, wanted {wanted}. Get it again, or "
            f"remove it and use {', '.join(JSON_FILES)} of {URL}."
        )
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["seq"], int(row["label"])) for row in csv.DictReader(file)]


def _read_json(path: Path, size: int) -> Records:
    """Return a file's sequences and folds; raises DataError unless there are `size` sound ones."""
    try:
        records = [(each["primary"], each["fold_label"]) for each in json.loads(path.read_text(encoding="utf-8"))]
        if len(records) != size:
            raise ValueError(f"{len(records)} sequences, want {size}")
        for number, (sequence, fold) in enumerate(records, start=1):
            if not isinstance(sequence, str) or not sequence or set(sequence) - set(LETTERS):
                raise ValueError(f"sequence {number}: {str(sequence)[:50]!r}, want letters out of {LETTERS}")
            if type(fold) is not int or not 0 <= fold < NUM_FOLDS:
                raise ValueError(f"sequence {number}: the fold {fold!r}, want 0 to {NUM_FOLDS - 1}")
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"remote-homology: {path} is not TAPE's: got {type(error).__name__} ({error}). It is to be a list of "
            f"{size} objects with `primary` and `fold_label`. Unpack {URL} again."
        ) from error
    return records


def _shorten(path: Path, records: Records, options: Options) -> Records:
    if options.longer == "cut":
        return [(sequence[: options.max_length], fold) for sequence, fold in records]
    kept = [(sequence, fold) for sequence, fold in records if len(sequence) <= options.max_length]
    if not kept:
        raise DataError(
            f"remote-homology: all sequences of {path} have more than {options.max_length} amino acids. Raise "
            "max_length, or set `longer: cut`."
        )
    return kept


def _to_split(records: Records, width: int) -> Split:
    import torch

    ids = np.zeros(128, dtype=np.uint8)
    ids[list(LETTERS.encode())] = np.arange(1, 1 + len(LETTERS))
    inputs = np.zeros((len(records), width), dtype=np.uint8)  # (N, T)
    for row, (sequence, _) in zip(inputs, records, strict=True):
        row[: len(sequence)] = ids[list(sequence.encode())]
    return Split(
        inputs=torch.from_numpy(inputs),
        labels=torch.tensor([fold for _, fold in records]),
        lengths=torch.tensor([len(sequence) for sequence, _ in records]),
    )
