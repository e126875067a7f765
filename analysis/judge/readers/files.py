"""Files of any kind: packed ones, databases, events, Parquet, spreadsheets, logs, JSON, YAML and separated fields."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lr_sweep.analysis.judge.limits import (
    BATCH,
    MOST_BYTES,
    MOST_UNPACKED,
    check_size,
    read_bounded,
    unpacked,
)
from lr_sweep.analysis.judge.readers.nested import read_json, yaml_content
from lr_sweep.analysis.judge.readers.texts import (
    FORMAT,
    check_names,
    log_rows,
    read_delimited,
    table_of_fields,
)
from lr_sweep.analysis.judge.readers.tools import (
    EVENTS,
    WANDB,
    event_table,
    read_database,
    wandb_table,
)
from lr_sweep.analysis.judge.table_file import TableFile, as_field, damage_named, table_of_rows
from lr_sweep.common.errors import UserError, file_like, translated
from lr_sweep.common.files import Fields, open_plain

SQLITE, PARQUET, GZIP, ZIP = (
    b"SQLite format 3\0",
    b"PAR1",
    b"\x1f\x8b",
    b"PK\x03\x04",
)  # at the beginning


def read_file(path: Path) -> TableFile:
    """Read a file of any kind; raises UserError."""
    with damage_named(path, advice="name a CSV or Parquet file"):
        if not path.exists():
            hint = file_like(path) or ":"
            raise UserError(f"no file {path}{hint} name a CSV or Parquet file")
        with open_plain(path) as file:
            head = file.read(200)
        is_journal = head.startswith(b"{") and b'"op_code"' in head  # of Optuna
        if is_journal or head.startswith(SQLITE):
            return read_database(path, is_journal=is_journal)
        content = read_bounded(path)
    return replace(
        table_of_content(path, content, path.name), sha256=hashlib.sha256(content).hexdigest()
    )


def table_of_content(path: Path, content: bytes, name: str) -> TableFile:
    """Read the content of a file, or of what a packed file has within it, whose name it is; raises UserError."""
    kind = Path(name).suffix
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
        text = _decoded(path, content)
        if kind in (".log", ".out", ".err", ".txt") and (found := log_rows(path, text)):
            return table_of_rows(path, [*found.values()], "a log", [*found])
        if kind in (".yaml", ".yml"):
            text = json.dumps(yaml_content(text))
        read = read_json if text.lstrip()[:1] in ("{", "[") else read_delimited
        return read(path, text)


def _read_parquet(path: Path, content: bytes) -> TableFile:
    """Read rows, a few at a time: a text that is equal in all stands once in the file."""
    file = pq.ParquetFile(io.BytesIO(content))
    check_names(path, file.schema_arrow.names)
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    num_fields = sum(
        group.column(place).num_values for group in groups for place in range(group.num_columns)
    )
    check_size(path, file.metadata.num_rows, -(-num_fields // max(1, file.metadata.num_rows)))
    rows, num_bytes = list[Fields](), 0
    for batch in file.iter_batches(BATCH):
        plain = [
            part.dictionary_decode() if pa.types.is_dictionary(part.type) else part
            for part in batch.columns
        ]
        num_bytes += sum(part.nbytes for part in plain)
        if num_bytes > MOST_UNPACKED:
            raise UserError(
                f"{path} has more than {MOST_UNPACKED:,} bytes unpacked: leave out columns of text"
            )
        rows += batch.to_pylist()
    return table_of_rows(path, rows, "")


def _read_archive(path: Path, content: bytes) -> TableFile:
    """Read the first sheet of a spreadsheet that has rows, or the only file of an archive."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    names = [
        each
        for each in archive.infolist()
        if not each.is_dir() and not each.filename.startswith("__MACOSX")
    ]
    if any(each.filename == "[Content_Types].xml" for each in names):
        if sum(each.file_size for each in names) > MOST_BYTES:
            raise UserError(
                f"{path} has more than {MOST_BYTES:,} bytes unpacked: write it as a CSV file"
            )
        return _read_spreadsheet(path, content)
    if len(names) != 1:
        raise UserError(
            f"{path} is an archive of {len(names)} files: unpack it, and name a file or the folder"
        )
    return table_of_content(path, unpacked(path, archive.open(names[0])), names[0].filename)


def _read_spreadsheet(path: Path, content: bytes) -> TableFile:
    """Read the first sheet that has rows."""
    with translated(
        (ImportError,), lambda _: UserError(f"{path} is a spreadsheet: write it as a CSV file")
    ):
        from openpyxl import load_workbook

    sheets = load_workbook(io.BytesIO(content), read_only=True, data_only=True).worksheets
    rows = next(filter(None, (_rows_of_sheet(path, sheet) for sheet in sheets)), {})
    others = f", the first of {len(sheets)} sheets" if len(sheets) > 1 else ""
    return table_of_fields(path, rows, f"a spreadsheet{others}")


def _rows_of_sheet(path: Path, sheet: Any) -> dict[int, list[str]]:
    """Return the rows that are not empty, of one length, by their numbers."""
    sheet.reset_dimensions()  # a file may say any
    rows, width = dict[int, list[str]](), 0
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
        return content.decode(
            "cp1252", "replace"
        )  # names alone depend on it: numbers are ASCII in both
