"""Files of any kind: packed ones, databases, events, Parquet, spreadsheets, logs, JSON, YAML and separated fields."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO

import pandas as pd
import pyarrow.parquet as pq

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.names import is_metric, is_rate
from lr_sweep.analysis.judge.readers.nested import read_json, yaml_content
from lr_sweep.analysis.judge.readers.texts import FORMAT, check_names, log_rows, read_delimited, table_of_fields
from lr_sweep.analysis.judge.readers.tools import EVENTS, WANDB, event_rows, read_database, wandb_rows
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile, as_field, check_size, damage_named, table_of_rows
from lr_sweep.common.errors import UserError, file_like
from lr_sweep.common.files import open_plain, read_plain

SQLITE, PARQUET, GZIP, ZIP = b"SQLite format 3\0", b"PAR1", b"\x1f\x8b", b"PK\x03\x04"  # at the beginning


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
        content = read_plain(path, MOST_BYTES)
    return replace(table_of_content(path, content, path.name), sha256=hashlib.sha256(content).hexdigest())


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
            table = pq.ParquetFile(io.BytesIO(content))
            check_names(path, table.schema_arrow.names)
            check_size(path, table.metadata.num_rows, len(table.schema_arrow.names))
            return table_of_rows(path, table.read().to_pylist(), "")
        if content.startswith(WANDB):
            return table_of_rows(path, wandb_rows(path.stem, content), "a run of W&B")
        if EVENTS in name:
            return table_of_rows(path, event_rows([content]), "events of TensorBoard")
        text = _decoded(path, content)
        if kind in (".log", ".out", ".err", ".txt") and (found := log_rows(text)):
            return table_of_rows(path, [*found.values()], "a log", [*found])
        if kind in (".yaml", ".yml"):
            text = json.dumps(yaml_content(text))
        read = read_json if text.lstrip()[:1] in ("{", "[") else read_delimited
        return read(path, text)


def unpacked(path: Path, file: IO[bytes] | gzip.GzipFile) -> bytes:
    """Read a file that may have no end, or only one after more than memory holds; raises UserError."""
    if len(content := file.read(MOST_BYTES + 1)) > MOST_BYTES:
        raise UserError(f"{path} has more than {MOST_BYTES:,} bytes: write it again, with fewer columns")
    return content


def _read_archive(path: Path, content: bytes) -> TableFile:
    """Read the first sheet of a spreadsheet that has rows, or the only file of an archive."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    names = [each for each in archive.infolist() if not each.is_dir() and not each.filename.startswith("__MACOSX")]
    if any(each.filename == "[Content_Types].xml" for each in names):
        sheets = pd.read_excel(io.BytesIO(content), sheet_name=None, header=None, dtype=object, keep_default_na=False)
        first = next((sheet for sheet in sheets.values() if len(sheet)), pd.DataFrame())
        others = f", the first of {len(sheets)} sheets" if len(sheets) > 1 else ""
        texts = enumerate(([as_field(cell) for cell in row] for row in first.to_numpy().tolist()), 1)
        rows, within = _table_in_sheet({number: row for number, row in texts if any(row)})
        return table_of_fields(path, rows, f"a spreadsheet{others}{within}")
    if len(names) != 1:
        raise UserError(f"{path} is an archive of {len(names)} files: unpack it, and name a file or the folder")
    return table_of_content(path, unpacked(path, archive.open(names[0])), names[0].filename)


def _table_in_sheet(rows: dict[int, list[str]]) -> tuple[dict[int, list[str]], str]:
    """Return the rows from the first names of a metric or rate on, up to an empty column, and what that left out.

    Names are those of the first row, or below an empty one.
    """
    names = [at for at, row in rows.items() if at - 1 not in rows and not any(map(is_number, row))]
    start = next((at for at in names if any(is_rate(cell) or is_metric(cell) for cell in rows[at])), 0)
    found = {at: row for at, row in rows.items() if at >= start}
    filled = [any(cells) for cells in zip(*found.values(), strict=True)]
    first = [*filled, True].index(True)
    end = [*filled, False].index(False, first)
    above = f", from row {start}" if len(found) < len(rows) else ""
    right = ", without what is beside an empty column" if any(filled[end:]) else ""
    return {at: row[first:end] for at, row in found.items()}, above + right


def _decoded(path: Path, content: bytes) -> str:
    """Return the text of a file; raises UserError if it is none."""
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in content:
            raise UserError(f"{path} is no text in UTF-8 (byte {error.start}): {FORMAT}") from error
        return content.decode("cp1252", "replace")  # names alone depend on it: numbers are ASCII in both
