"""Files of any kind: packed ones, databases, events, Parquet, spreadsheets, logs, JSON, YAML and separated fields."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from lr_sweep.analysis.judge.table_file import (
    MOST_BYTES,
    TableFile,
    check_size,
    damage_named,
    read_bounded,
    table_of_rows,
    unpacked,
)
from lr_sweep.common.errors import UserError, file_like
from lr_sweep.common.files import open_plain

from .databases import read_database
from .events import EVENTS, event_table
from .nested import read_json, yaml_content
from .texts import (
    FORMAT,
    Rows,
    check_names,
    log_table,
    read_delimited,
    table_of_fields,
)

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
        return table_of_content(path, read_bounded(path), path.name)


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
    file = pq.ParquetFile(io.BytesIO(content))
    check_names(path, file.schema_arrow.names)
    check_size(path, file.metadata.num_rows, file.metadata.num_columns)
    return table_of_rows(path, file.read().to_pylist())


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
    """Read the first sheet that has rows; a cell with an error is NaN."""
    sheets = pd.read_excel(
        io.BytesIO(content), sheet_name=None, header=None, dtype=str, keep_default_na=False
    )
    rows = Rows()
    for sheet in sheets.values():
        cells = sheet.fillna("nan").to_numpy().tolist()
        rows = rows or {number: row for number, row in enumerate(cells, 1) if any(row)}
    return table_of_fields(path, rows)


def _decoded(path: Path, content: bytes) -> str:
    """Return the text of a file; raises UserError if it is none."""
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in content:
            raise UserError(f"{path} is no text in UTF-8 (byte {error.start}): {FORMAT}") from error
        return content.decode("cp1252", "replace")  # names alone depend on it
