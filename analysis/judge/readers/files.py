"""Files of any kind: packed ones, databases, events, Parquet, spreadsheets, logs, JSON, YAML and separated fields."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lr_sweep.analysis.judge.limits import (
    BATCH,
    MOST_BYTES,
    MOST_UNPACKED,
    check_size,
    read_bounded,
    unpacked,
)
from lr_sweep.analysis.judge.readers.databases import read_database
from lr_sweep.analysis.judge.readers.events import EVENTS, WANDB, event_table, wandb_table
from lr_sweep.analysis.judge.readers.nested import read_json, yaml_content
from lr_sweep.analysis.judge.readers.texts import (
    FORMAT,
    Rows,
    check_names,
    log_table,
    read_delimited,
    table_of_fields,
)
from lr_sweep.analysis.judge.table_file import TableFile, as_field, damage_named, table_of_rows
from lr_sweep.common.errors import UserError, file_like
from lr_sweep.common.files import Fields, open_plain
from lr_sweep.common.text import counted

SQLITE, PARQUET = b"SQLite format 3\0", b"PAR1"  # at the beginning
GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
LOGS = (".log", ".out", ".err", ".txt")
_JSON = re.compile(r'\s*(?:\{\s*"|\[\s*\{)')  # begins a text that is no line of a log


def read_file(path: Path) -> TableFile:
    """Read a file of any kind; raises UserError."""
    with damage_named(path, advice="name a CSV or Parquet file"):
        if not path.exists():
            raise UserError(f"no file {path}{file_like(path) or ':'} name a CSV or Parquet file")
        with open_plain(path) as file:
            head = file.read(200)
        is_journal = head.startswith(b"{") and b'"op_code"' in head  # of Optuna
        if is_journal or head.startswith(SQLITE):
            return read_database(path, is_journal=is_journal)
        content = read_bounded(path)
    return replace(table_of_content(path, content, path.name), sha256=sha256(content).hexdigest())


def table_of_content(path: Path, content: bytes, name: str) -> TableFile:
    """Read the content of a file, or of what a packed file has within it, whose name it is; raises UserError."""
    with damage_named(path):
        if content.startswith(GZIP):
            inner = unpacked(path, gzip.GzipFile(fileobj=io.BytesIO(content)))
            return table_of_content(path, inner, name.removesuffix(".gz"))
        if content.startswith(ZIP):
            return _read_archive(path, content)
        if content.startswith(PARQUET):
            return _read_parquet(path, content)
        if content.startswith(WANDB):
            return wandb_table(path, content)
        if EVENTS in name:
            return event_table([path], [content])
        return _table_of_text(path, _decoded(path, content), Path(name).suffix)


def _table_of_text(path: Path, text: str, kind: str) -> TableFile:
    if kind in (".yaml", ".yml"):
        text = json.dumps(yaml_content(text))
    log = log_table(path, text) if kind in LOGS and not _JSON.match(text) else None
    if not log and text.lstrip()[:1] in ("{", "["):
        return read_json(path, text)
    table = log or read_delimited(path, text)
    cut = f"{table.name}: no line end after the last row; was the file cut?"
    return replace(table, remarks=() if text.endswith(("\n", "\r")) else (cut,))


def _read_parquet(path: Path, content: bytes) -> TableFile:
    """Read rows, a few at a time: a text that is equal in all stands once in the file."""
    file = pq.ParquetFile(io.BytesIO(content))
    check_names(path, file.schema_arrow.names)
    num_rows = file.metadata.num_rows
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    num_fields = sum(column.num_values for column in columns)
    check_size(path, num_rows, -(-num_fields // max(1, num_rows)))
    rows, num_characters = list[Fields](), 0
    for batch in file.iter_batches(BATCH):
        below = batch.to_pylist()
        num_characters += len(str(below))
        if num_characters > MOST_UNPACKED:
            most = f"more than {MOST_UNPACKED:,} bytes unpacked"
            raise UserError(f"{path} has {most}: leave out columns of text")
        rows += below
    return table_of_rows(path, rows, "")


def _read_archive(path: Path, content: bytes) -> TableFile:
    """Read the first sheet of a spreadsheet that has rows, or the only file of an archive."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    files = [file for file in archive.infolist() if not file.is_dir()]
    sizes = {file.filename: file.file_size for file in files if "__MACOSX" not in file.filename}
    if "[Content_Types].xml" in sizes:
        if sum(sizes.values()) > MOST_BYTES:
            most = f"more than {MOST_BYTES:,} bytes unpacked"
            raise UserError(f"{path} has {most}: write it as a CSV file")
        return _read_spreadsheet(path, content)
    if len(sizes) != 1:
        advice = "unpack it, and name a file or the folder"
        raise UserError(f"{path} is an archive of {len(sizes)} files: {advice}")
    (name,) = sizes
    return table_of_content(path, unpacked(path, archive.open(name)), name)


def _read_spreadsheet(path: Path, content: bytes) -> TableFile:
    """Read the first sheet that has rows."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise UserError(f"{path} is a spreadsheet: write it as a CSV file") from error
    sheets = load_workbook(io.BytesIO(content), read_only=True, data_only=True).worksheets
    rows = next(filter(None, (_rows_of_sheet(path, sheet) for sheet in sheets)), Rows())
    return table_of_fields(path, rows, f"a spreadsheet of {counted(len(sheets), 'sheet')}")


def _rows_of_sheet(path: Path, sheet: Any) -> Rows:
    """Return the rows that are not empty, of one length, by their numbers."""
    sheet.reset_dimensions()  # a file may say any
    rows, width = Rows(), 0
    for number, cells in enumerate(sheet.iter_rows(), 1):
        texts = ["nan" if cell.data_type == "e" else as_field(cell.value) for cell in cells]
        if any(texts):
            rows[number], width = texts, max(width, len(texts))
        check_size(path, number, width)
    return {number: texts + [""] * (width - len(texts)) for number, texts in rows.items()}


def _decoded(path: Path, content: bytes) -> str:
    """Return the text of a file; raises UserError if it is none."""
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in content:
            raise UserError(f"{path} is no text in UTF-8 (byte {error.start}): {FORMAT}") from error
        return content.decode("cp1252", "replace")  # names alone depend on it
