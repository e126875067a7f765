"""Texts of separated fields, tables of Markdown among them, and Parquet as columns of text."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lr_sweep.analysis.judge.table_file import (
    MOST_BYTES,
    MOST_MISTAKES,
    MOST_NAME,
    Line,
    TableFile,
    check_size,
    raise_mistakes,
    table_of_columns,
)
from lr_sweep.common.errors import UserError, beside, did_you_mean, reason, translated
from lr_sweep.common.files import read_plain

DELIMITERS = ",;\t|"
SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
"""The first line that a spreadsheet may write."""
MOST_HEAD = 100_000
"""Characters in which the line of names begins."""
PARQUET, GZIP = b"PAR1", b"\x1f\x8b"
"""How these files begin."""
MAX_FIELD = 10_000_000
"""Characters of one field: exports hold whole notebooks in their tags."""
_MARKDOWN = re.compile(r"^.*\|.*\n(?=.*--)[ \t:-]*\|[ \t:|-]*\r?$(?:\n.*\|.*)*", re.MULTILINE)
"""A table in Markdown, which may stand within a text."""
_NUMBERS = re.compile(r"[\d.eE+\-,;|\s]*\d")
"""A line of numbers alone."""
FORMAT = "want a CSV file in UTF-8 with a line of names, or a Parquet file"


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
    with translated((zlib.error,), lambda e: UserError(f"{path} cannot be decompressed ({e}): write it again")):
        found = unpacking.decompress(content, MOST_BYTES)
    if not unpacking.eof:
        raise UserError(f"{path} is cut, or has more than {MOST_BYTES:,} bytes: write it again, with fewer columns")
    return found


def read_delimited(path: Path, content: bytes) -> TableFile:
    """Read the content of a file; raises UserError."""
    if not content.strip():
        raise UserError(f"{path} is empty: {FORMAT}, with a row for each run or evaluation")
    found = _parquet(path, content) if content.startswith(PARQUET) else _text(path, content)
    if not found.lines:
        raise UserError(f"{path} has no rows below its names: write one for each run or evaluation")
    check_size(path, len(found.lines), 1)
    return replace(found, sha256=hashlib.sha256(content).hexdigest())


def _parquet(path: Path, content: bytes) -> TableFile:
    damage = (pa.ArrowException, OSError, ValueError, OverflowError)
    with translated(damage, lambda e: UserError(f"{path}: cannot be read as Parquet ({reason(e)}): write it again")):
        file = pq.ParquetFile(io.BytesIO(content))
        _check_names(path, file.schema_arrow.names)
        check_size(path, file.metadata.num_rows, len(file.schema_arrow.names))
        return table_of_columns(path, file.read().to_pydict(), "")


def _text(path: Path, content: bytes) -> TableFile:
    text = _decoded(path, content)
    start, end = _start(text), len(text)
    tables = _MARKDOWN.finditer(text) if "|" in text else ()
    if found := max(tables, key=lambda match: len(match[0]), default=None):
        start, end = found.span()
    body = _without_bars(re.sub(r"^#[ \t]*", "", text[start:end]))
    delimiter = _delimiter(text, body)
    with translated((csv.Error,), lambda error: UserError(f"{path}: {error}: {FORMAT}")):
        numbers, rows = _rows(body, delimiter, text.count("\n", 0, start))
    if not rows:
        raise UserError(f"{path} has no columns: {FORMAT}")
    names = [name.strip() or f"#{place}" for place, name in enumerate(rows[0], 1)]
    _check_names(path, names, numbers[0])
    odd = [place for place, row in enumerate(rows) if len(row) != len(names)]
    wrong = [place for place in odd if not rows[place][0].lstrip().startswith("#")]  # no comment
    if len(wrong) > max(len(rows) - len(odd), MOST_MISTAKES):
        raise UserError(f"{path} is no table: most lines have other fields than the first: {FORMAT}")
    raise_mistakes([f"{path}:{numbers[at]}: got {len(rows[at])} fields, want {len(names)}" for at in wrong])
    for place in reversed(odd):
        del numbers[place], rows[place]
    columns = dict(zip(names, map(list, zip(*rows[1:], strict=True)), strict=False))
    lines = [Line(path, number) for number in numbers[1:]]
    cut = not found and not text.endswith(("\n", "\r"))
    return TableFile(path=path, sha256="", columns=columns, lines=lines, decimal_comma=delimiter != ",", unfinished=cut)


def _start(text: str) -> int:
    """Return where the line of names begins, behind comments, and a spreadsheet's `sep=;`.

    The last comment is the line of names if numbers follow it.
    """
    for start in [0, *(found.end() for found in re.finditer("\n", text[:MOST_HEAD]))]:
        line, _, below = text[start:].partition("\n")
        if line.strip(" \r").startswith("#"):
            if _NUMBERS.fullmatch(below.lstrip().partition("\n")[0].strip()):
                return start
        elif line.strip() and not SEPARATOR.fullmatch(line.strip(" \r")):
            return start
    return 0


def _delimiter(text: str, body: str) -> str:
    if found := SEPARATOR.fullmatch(text[:MOST_HEAD].lstrip().partition("\n")[0].strip(" \r")):
        return found[1]
    head = body.partition("\n")[0]
    mark = max(DELIMITERS, key=head.count)
    return " " if mark not in head and len(head.split()) > 1 else mark


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


def _rows(text: str, delimiter: str, skipped: int) -> tuple[list[int], list[list[str]]]:
    """Return the rows that have a field, with the line of each behind lines that are skipped."""
    csv.field_size_limit(MAX_FIELD)
    blanks = delimiter == " "
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=blanks)
    numbers, rows = [], []
    for row in reader:
        if any(map(str.strip, row)):
            numbers.append(reader.line_num + skipped)
            rows.append(row[:-1] if blanks and not row[-1] else row)
    return numbers, rows


def _decoded(path: Path, content: bytes) -> str:
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        with suppress(UnicodeDecodeError):
            if b"\0" not in content:  # names alone depend on it: numbers are ASCII in both
                return content.decode("cp1252")
        raise UserError(f"{path} is no text in UTF-8 (byte {error.start}): {FORMAT}") from error
