"""Reader of the Long Range Arena's ListOps files: `basic_train.tsv`, `basic_val.tsv`, `basic_test.tsv`.

Columns Source and Target. Source is an expression with tokens between spaces and binary brackets in round parentheses,
`( ( ( [MAX 2 ) 9 ) ] )`; the parentheses say nothing more and are dropped.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from datasets import files
from datasets.listops_tokens import CLOSER, FIRST_OPERATOR, VOCABULARY, Examples
from datasets.task import DataError

NAMES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
"""Training, validation and test file."""
FOLDERS = ("listops", "listops/listops-1000")
"""Where the files may lie below the data directory; the second is how the release unpacks."""

_OPERATOR_LETTERS = b"IAES"
"""Tell `[MIN`, `[MAX`, `[MED` and `[SM` apart; with the other letters deleted, each token is one byte of the text, and
`bytes.translate` makes ids of 600 MB in seconds."""
_DELETED = b"[MNXD() "
_UNKNOWN = 255


def find(data_dir: Path) -> Path | None:
    """Return the folder with all three files, or None if there is none of them.

    Raises:
        DataError: some of the three are there, but not all.
    """
    for folder in (data_dir / name for name in FOLDERS):
        missing = [name for name in NAMES if not (folder / name).is_file()]
        if not missing:
            return folder
        if len(missing) < len(NAMES):
            raise DataError(f"listops: {folder} has part of the release, but not {', '.join(missing)}. Add or remove.")
    return None


def checksum(folder: Path) -> str:
    """sha256 over the sha256 of each file."""
    hashes = [files.hash_file(folder / name) for name in NAMES]
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def read(path: Path, max_tree_length: int) -> Examples:
    """Read one file; inputs are (N, max_tree_length) uint8.

    Raises:
        DataError: a line is not as described above, or not shorter than `max_tree_length`; says which.
    """
    with path.open("rb") as file:
        source, target = _find_columns(path, file.readline())
        expressions: list[bytes] = []
        labels: list[int] = []
        for number, line in enumerate(file, start=2):
            cells = line.rstrip(b"\r\n").split(b"\t")
            if len(cells) <= max(source, target):
                raise DataError(f"{path}, line {number}: {len(cells)} columns, fewer than line 1")
            try:
                expressions.append(_encode(cells[source], max_tree_length))
                labels.append(_parse_label(cells[target]))
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}") from error
    if not labels:
        raise DataError(f"{path} holds no examples, only a header")
    inputs = np.zeros((len(labels), max_tree_length), dtype=np.uint8)  # (N, T)
    for row, ids in enumerate(expressions):
        inputs[row, : len(ids)] = np.frombuffer(ids, dtype=np.uint8)
    lengths = np.array([len(ids) for ids in expressions], dtype=np.int16)
    return Examples(inputs=inputs, labels=np.array(labels, dtype=np.uint8), lengths=lengths)


def _find_columns(path: Path, header: bytes) -> tuple[int, int]:
    names = header.rstrip(b"\r\n").split(b"\t")
    if b"Source" not in names or b"Target" not in names:
        raise DataError(f"{path}, line 1: got columns {header.decode(errors='replace').split()}, wanted Source, Target")
    return names.index(b"Source"), names.index(b"Target")


def _make_table() -> bytes:
    """Make the table that maps a byte to a token id."""
    table = bytearray([_UNKNOWN]) * 256
    for token_id, token in enumerate(VOCABULARY):
        if len(token) == 1:
            table[ord(token)] = token_id
    for index, letter in enumerate(_OPERATOR_LETTERS):
        table[letter] = FIRST_OPERATOR + index
    return bytes(table)


_TABLE = _make_table()


def _encode(expression: bytes, max_tree_length: int) -> bytes:
    """Turn an expression into token ids, a byte each; raises ValueError."""
    ids = expression.translate(_TABLE, delete=_DELETED)
    if not ids or _UNKNOWN in ids or ids.count(CLOSER) != expression.count(b"["):
        raise ValueError(f"Source is not a ListOps expression: {expression[:60]!r}")
    if len(ids) >= max_tree_length:
        raise ValueError(f"{len(ids)} tokens, wanted fewer than {max_tree_length}")
    return ids


def _parse_label(cell: bytes) -> int:
    if len(cell) != 1 or not cell.isdigit():
        raise ValueError(f"Target is {cell!r}, wanted a digit")
    return int(cell)
