"""Reader of the Long Range Arena's ListOps files: `basic_train.tsv`, `basic_val.tsv`, `basic_test.tsv`.

Columns Source and Target: an expression as `listops_text` describes it, and its value. Every line is evaluated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from datasets import files
from datasets.listops_text import explain, parse
from datasets.listops_tokens import Examples
from datasets.task import DataError

NAMES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
"""Training, validation and test file."""
FOLDERS = ("listops", "listops/listops-1000")
"""Where the files may lie below the data directory; the second is how the release unpacks."""
READER_VERSION = 1
"""Raise it when the reader makes other examples of a file, or refuses more: what was read before is then read again."""

_LINES_AT_ONCE = 1024
_MAX_SHOWN = 3


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
        DataError: lines are not as described above, or not shorter than `max_tree_length`; describes the first.
    """
    lines = list(_lines(path, max_tree_length))
    if not lines:
        raise DataError(f"{path} holds no examples, only a header")
    inputs = np.zeros((len(lines), max_tree_length), dtype=np.uint8)  # (N, T)
    for row, (ids, _) in enumerate(lines):
        inputs[row, : len(ids)] = np.frombuffer(ids, dtype=np.uint8)
    lengths = np.array([len(ids) for ids, _ in lines], dtype=np.int16)
    return Examples(inputs=inputs, labels=np.array([value for _, value in lines], dtype=np.uint8), lengths=lengths)


def _lines(path: Path, max_tree_length: int) -> Iterator[tuple[bytes, int]]:
    """Yield token ids and value of each line; raise DataError at the end if any line was bad."""
    number, num_bad = 1, 0
    shown: list[str] = []
    with path.open("rb") as file:
        columns = _find_columns(path, file.readline())
        while lines := list(islice(file, _LINES_AT_ONCE)):
            cells = [_cells(line, columns) for line in lines]
            parsed = parse([source for source, _ in cells])
            for (source, target), ids, value in zip(cells, parsed.tokens, parsed.values.tolist(), strict=True):
                number += 1
                if not 0 < len(ids) < max_tree_length or target != b"%d" % value:
                    num_bad += 1
                    if len(shown) < _MAX_SHOWN:
                        shown.append(f"line {number}: {_problem(source, target, ids, value, max_tree_length)}")
                yield ids, value
    if num_bad:
        raise DataError(_bad_lines(path, shown, num_bad, number - 1))


def _cells(line: bytes, columns: tuple[int, int]) -> tuple[bytes, bytes]:
    """Return Source and Target; what a line does not have is empty."""
    cells = line.rstrip(b"\r\n").split(b"\t")
    source, target = (cells[index] if index < len(cells) else b"" for index in columns)
    return source, target


def _problem(source: bytes, target: bytes, ids: bytes, value: int, max_tree_length: int) -> str:
    """Return what is wrong with a bad line."""
    if not ids:
        return f"Source: {explain(source)}"
    if len(ids) >= max_tree_length:
        return f"Source: got {len(ids)} tokens, want fewer than {max_tree_length}"
    return f"Target: got {target[:20].decode(errors='replace')!r}, want '{value}', the value of Source"


def _bad_lines(path: Path, shown: list[str], num_bad: int, num_lines: int) -> str:
    more = [f"and {num_bad - len(shown)} more"] if num_bad > len(shown) else []
    return (
        f"listops: {num_bad} of {num_lines} examples in {path} are not the Long Range Arena's:\n  "
        + "\n  ".join([*shown, *more])
        + "\nUnpack its lra_release.gz again, or set `source: generated`."
    )


def _find_columns(path: Path, header: bytes) -> tuple[int, int]:
    names = header.rstrip(b"\r\n").split(b"\t")
    if b"Source" not in names or b"Target" not in names:
        raise DataError(f"{path}, line 1: got columns {header.decode(errors='replace').split()}, wanted Source, Target")
    return names.index(b"Source"), names.index(b"Target")
