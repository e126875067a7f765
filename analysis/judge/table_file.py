"""Reads a CSV or Parquet file as columns of text, with the line of each row."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lr_sweep.common.errors import UserError, beside, did_you_mean, reason
from lr_sweep.common.files import Fields, read_plain

MOST_BYTES = 100_000_000
MOST_ROWS = 1_000_000
MOST_FIELDS = 20_000_000
"""Fields of a Parquet file, which holds equal rows in next to no space."""
DELIMITERS = ",;\t|"
SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
"""The first line that a spreadsheet may write."""
MOST_HEAD = 100_000
"""Characters in which the line of names begins."""
PARQUET, GZIP, ZIP = b"PAR1", b"\x1f\x8b", b"PK\x03\x04"
"""How these files begin."""
MOST_NAME = 200
"""Characters of a name; longer ones make lines of a report, and figures, without end."""
MAX_FIELD = 10_000_000
"""Characters of one field: exports hold whole notebooks in their tags."""
ADVICE = "correct them, or leave rows out, as with --where STATE!=failed"
MOST_MISTAKES = 5
"""Mistakes that are listed; the rest are counted."""
_MARKDOWN = re.compile(r"^.*\|.*\n(?=.*--)[ \t:-]*\|[ \t:|-]*\r?$(?:\n.*\|.*)*", re.MULTILINE)
"""A table in Markdown, which may stand within a text."""
FORMAT = "want a CSV file in UTF-8 with a line of names, or a Parquet file"


class Line(NamedTuple):
    """Where a row is."""

    path: Path
    number: int
    """Number of the row's last line in the file; in Parquet and in folders of other tools number of the row, from 1."""

    what: str = ""
    """Unit that the number counts, where the file has no lines: `row `."""

    def __str__(self) -> str:
        return f"{self.path}:{self.what}{self.number}"


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """Content of one file or of several, before any of it is understood."""

    path: Path
    sha256: str
    columns: dict[str, list[str]]
    """Fields by the name of their column, in the file's order; empty text: nothing."""
    lines: list[Line]
    """The number of each row."""
    decimal_comma: bool
    """Whether `0,5` is a number: fields are separated by something else than a comma."""
    reader: str = ""
    """What it is, where it is no file of CSV or Parquet."""
    unfinished: bool = False
    """Whether the last line has no end: the file may have been cut there."""

    @property
    def rows(self) -> list[Fields]:
        """Each row's fields by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]

    @property
    def name(self) -> str:
        """The file's name as reports write it."""
        return printable(self.path.name)

    @property
    def stem(self) -> str:
        """The name without its ending, which names a task or a report."""
        return stem_of(self.path)


def stem_of(path: Path) -> str:
    """Return a file's name without its ending, as reports write it."""
    name = printable(path.stem)
    return name if name.strip(".") else "all"


def joined(tables: Sequence[TableFile]) -> TableFile:
    """Make one table of several, with the columns of all: a field that a file has no column of is empty."""
    first, *others = tables
    if not others:
        return first
    columns: dict[str, list[str]] = {name: [] for table in tables for name in table.columns}
    for table in tables:
        empty = [""] * len(table.lines)
        for name, texts in columns.items():
            texts += table.columns.get(name, empty)
    return replace(
        first,
        path=first.path.with_name(f"{first.path.name} and {len(others)} more"),
        columns=columns,
        lines=[line for table in tables for line in table.lines],
        decimal_comma=any(table.decimal_comma for table in tables),
    )


def read_content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if they are gzipped; raises UserError."""
    try:
        content = read_plain(path, MOST_BYTES)
    except FileNotFoundError as error:
        hint = did_you_mean(path.name, beside(path)) or ":"
        raise UserError(f"no file {path}{hint} name a CSV or Parquet file") from error
    except OSError as error:
        what = "it is a folder" if path.is_dir() else error.strerror or reason(error)
        raise UserError(f"{path} cannot be read ({what}): name a CSV or Parquet file") from error
    return _unpacked(path, content) if content.startswith(GZIP) else content


def _unpacked(path: Path, content: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=31)  # gzip's header and checksum
    try:
        found = unpacking.decompress(content, MOST_BYTES)
    except zlib.error as error:
        raise UserError(f"{path} cannot be decompressed ({error}): write it again") from error
    if not unpacking.eof:
        raise UserError(f"{path} is cut, or has more than {MOST_BYTES:,} bytes: write it again, with fewer columns")
    return found


def table_of(path: Path, content: bytes) -> TableFile:
    """Read the content of a file; raises UserError."""
    if not content.strip():
        raise UserError(f"{path} is empty: {FORMAT}, with a row for each run or evaluation")
    found = _parquet(path, content) if content.startswith(PARQUET) else _csv(path, content)
    if not found.lines:
        raise UserError(f"{path} has no rows below its names: write one for each run or evaluation")
    if len(found.lines) > MOST_ROWS:
        raise UserError(f"{path} has {len(found.lines):,} rows, want at most {MOST_ROWS:,}: leave out evaluations")
    return found


def printable(text: str) -> str:
    """Return text without control characters and bytes that are no text, which reports cannot show."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", text).strip()


def raise_mistakes(mistakes: list[str]) -> None:
    """Raise UserError with all mistakes, if there are any; very many are counted."""
    if mistakes:
        more = len(mistakes) - MOST_MISTAKES
        listed = mistakes[:MOST_MISTAKES] + ([f"and {more} more like these: {ADVICE}"] if more > 0 else [])
        raise UserError("\n".join(listed))


def _parquet(path: Path, content: bytes) -> TableFile:
    try:
        file = pq.ParquetFile(io.BytesIO(content))
        number, names = file.metadata.num_rows, file.schema_arrow.names
        _check_names(path, names)
        if number * len(names) > MOST_FIELDS:
            raise UserError(f"{path} has {number:,} rows of {len(names)} columns, want at most {MOST_FIELDS:,} fields")
        found = file.read().to_pydict()
        columns = {name: ["" if value is None else str(value) for value in found[name]] for name in names}
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise UserError(f"{path}: cannot be read as Parquet ({reason(error)}): write it again") from error
    lines = [Line(path, row, "row ") for row in range(1, number + 1)]
    return TableFile(path=path, sha256=_digest(content), columns=columns, lines=lines, decimal_comma=False)


def _csv(path: Path, content: bytes) -> TableFile:
    text = _decoded(path, content)
    start, skipped = _start(text)
    end = len(text)
    if found := max(_MARKDOWN.finditer(text), key=lambda match: len(match[0]), default=None):
        start, end, skipped = found.start(), found.end(), text.count("\n", 0, found.start())
    body = _without_bars(re.sub(r"^#[ \t]*", "", text[start:end]))
    delimiter = _delimiter(text, body)
    csv.field_size_limit(MAX_FIELD)
    try:
        numbered = [(line + skipped, row) for line, row in _rows(body, delimiter)]
    except csv.Error as error:
        raise UserError(f"{path}: {error}: {FORMAT}") from error
    if not numbered:
        raise UserError(f"{path} has no columns: {FORMAT}")
    (first, names), *rows = numbered
    names = [name.strip() or f"#{place}" for place, name in enumerate(names, 1)]
    rows = [(line, row) for line, row in rows if not (row[0].lstrip().startswith("#") and len(row) != len(names))]
    _check_names(path, names, first)
    wrong = [(line, len(row)) for line, row in rows if len(row) != len(names)]
    if len(wrong) > len(rows) / 2 and len(wrong) > MOST_MISTAKES:
        raise UserError(f"{path} is no table: most lines have other fields than the first: {FORMAT}")
    raise_mistakes([f"{path}:{line}: got {number} fields, want {len(names)}" for line, number in wrong])
    columns = dict(zip(names, map(list, zip(*(row for _, row in rows), strict=True)), strict=False))
    return TableFile(
        path=path,
        sha256=_digest(content),
        columns=columns,
        lines=[Line(path, line) for line, _ in rows],
        decimal_comma=delimiter != ",",
        unfinished=not found and not text.endswith(("\n", "\r")),
    )


def _start(text: str) -> tuple[int, int]:
    """Return where the line of names begins, and how many lines come before it: comments, and a spreadsheet's `sep=;`.

    The last comment is the line of names if numbers follow it.
    """
    starts = [0, *(found.end() for found in re.finditer("\n", text[:MOST_HEAD]))]
    for number, start in enumerate(starts):
        line = text[start:].partition("\n")[0].strip(" \r")
        if line.startswith("#"):
            below = text[start:].partition("\n")[2].lstrip().partition("\n")[0]
            if re.fullmatch(r"[\d.eE+\-,;|\s]*\d", below.strip()):
                return start, number
        elif line.strip() and not SEPARATOR.fullmatch(line):
            return start, number
    return 0, 0


def _delimiter(text: str, body: str) -> str:
    if found := SEPARATOR.fullmatch(text[:MOST_HEAD].lstrip().partition("\n")[0].strip(" \r")):
        return found[1]
    head = body.partition("\n")[0]
    found_mark = max(DELIMITERS, key=head.count)
    return " " if found_mark not in head and len(head.split()) > 1 else found_mark


def _without_bars(body: str) -> str:
    """Return a table in Markdown without bars around its lines, bold type, and the line below its names."""
    lines = body.split("\n")
    if "|" not in lines[0] or len(lines) < 2 or not re.fullmatch(r"[|\s:-]+", lines[1].strip() or "x"):
        return body
    plain = (re.sub(r"(\*\*|__)([^|]+?)\1", r"\2", line) for line in lines[2:])
    return "\n".join(line.strip().strip("|") for line in [lines[0], "", *plain])


def _check_names(path: Path, names: list[str], line: int = 1) -> None:
    twice = [name for name, number in Counter(names).items() if number > 1]
    raise_mistakes([f"{path}:{line}: two columns are named {name[:MOST_NAME]!r}" for name in twice])


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    blanks = delimiter == " "
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=blanks)
    for row in reader:
        if any(field.strip() for field in row):
            yield reader.line_num, row[:-1] if blanks and not row[-1] else row


def _decoded(path: Path, content: bytes) -> str:
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        with suppress(UnicodeDecodeError):
            if b"\0" not in content:  # names alone depend on it: numbers are ASCII in both
                return content.decode("cp1252")
        raise UserError(f"{path} is no text in UTF-8 (byte {error.start}): {FORMAT}") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
