"""Reads a CSV or Parquet file as columns of text, with the line of each row."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lr_sweep.datasets.storage.problems import UserError, reason

DELIMITERS = ",;\t|"
PARQUET = b"PAR1"
MAX_FIELD = 10_000_000
"""Characters of one field: exports hold whole notebooks in their tags."""
MOST_MISTAKES = 20
"""Mistakes that are listed; the rest are counted."""
FORMAT = "want a CSV file in UTF-8 with a line of names, or a Parquet file"


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """What a file holds, before any of it is understood."""

    path: Path
    sha256: str
    columns: dict[str, list[str]]
    """By name, in the file's order; empty text: nothing."""
    lines: list[int]
    """Of each row: its line in the file (a row of several lines: its last); of Parquet its number, from 1."""
    decimal_comma: bool
    """Whether `0,5` is a number: fields are separated by something else than a comma."""


def read_table_file(path: Path) -> TableFile:
    """Read a file; raises UserError if it cannot be read, is no table, or has no rows."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"no file {path}: name a CSV or Parquet file") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder: name a CSV or Parquet file in it") from error
    if not content.strip():
        raise UserError(f"{path} is empty: {FORMAT}, with a row for each run or evaluation")
    found = _parquet(path, content) if content.startswith(PARQUET) else _csv(path, content)
    if not found.lines:
        raise UserError(f"{path} has no rows below its names: write one for each run or evaluation")
    return found


def raise_mistakes(mistakes: list[str]) -> None:
    """Raise UserError with all mistakes, if there are any; very many are counted."""
    if mistakes:
        more = len(mistakes) - MOST_MISTAKES
        listed = mistakes[:MOST_MISTAKES] + ([f"and {more} more like these"] if more > 0 else [])
        raise UserError("\n".join(listed))


def _parquet(path: Path, content: bytes) -> TableFile:
    try:
        found = pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read as Parquet ({reason(error)}): write it again") from error
    columns = {name: [_text(value) for value in found[name].to_pylist()] for name in found.column_names}
    lines = list(range(1, found.num_rows + 1))
    return TableFile(path=path, sha256=_digest(content), columns=columns, lines=lines, decimal_comma=False)


def _csv(path: Path, content: bytes) -> TableFile:
    text = _decoded(path, content)
    head = text.lstrip().split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=head.count)
    csv.field_size_limit(MAX_FIELD)
    try:
        numbered = list(_rows(text, delimiter))
    except csv.Error as error:
        raise UserError(f"{path}: {error}: {FORMAT}") from error
    if not numbered:
        raise UserError(f"{path} has no columns: {FORMAT}")
    (_, names), *rows = numbered
    names = [name.strip() for name in names]
    mistakes = [f"{path}:1: two columns are named {name!r}" for name in dict.fromkeys(names) if names.count(name) > 1]
    mistakes += [
        f"{path}:{line}: got {len(row)} fields, want {len(names)}" for line, row in rows if len(row) != len(names)
    ]
    raise_mistakes(mistakes)
    columns = dict(zip(names, map(list, zip(*(row for _, row in rows), strict=True)), strict=False))
    lines = [line for line, _ in rows]
    comma = delimiter != ","
    return TableFile(path=path, sha256=_digest(content), columns=columns, lines=lines, decimal_comma=comma)


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the number of its last line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    for row in reader:
        if any(field.strip() for field in row):
            yield reader.line_num, row


def _decoded(path: Path, content: bytes) -> str:
    """Decode UTF-8, with a mark at its start or without, or UTF-16 as spreadsheets write it."""
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8 (byte {error.start}): {FORMAT}") from error


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
