"""Sources of tables: a file, standard input, an address, several files by a pattern, or a folder of runs."""

from __future__ import annotations

import glob
import io
import json
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lr_sweep.analysis.judge.names import is_rate
from lr_sweep.analysis.judge.readers.databases import (
    SQLITE,
    is_journal,
    read_database,
    read_journal,
    read_mlflow_server,
)
from lr_sweep.analysis.judge.readers.events import EVENTS, event_rows
from lr_sweep.analysis.judge.readers.folders import read_folder, yaml_content
from lr_sweep.analysis.judge.readers.labels import labels_of
from lr_sweep.analysis.judge.readers.logs import log_rows
from lr_sweep.analysis.judge.readers.tables import read_json, table_of_rows, without_chart
from lr_sweep.analysis.judge.readers.wandb import MAGIC, wandb_rows
from lr_sweep.analysis.judge.table_file import MOST_BYTES, ZIP, TableFile, read_content, table_of
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import open_plain
from lr_sweep.common.network import shown_uri

STDIN = "-"
LOGS = {".log", ".out", ".err", ".txt"}
"""Endings of files that may be logs."""
SHEET = "[Content_Types].xml"
"""File within the archive that a spreadsheet is."""


def read_sources(sources: Sequence[str | Path]) -> list[TableFile]:
    """Read every source; raises UserError with what is wrong with the first that cannot be read."""
    tables = [_read(each) for source in sources for each in expanded(str(source))]
    return tables if len(tables) == 1 else [_with_name(table) for table in tables]


def _with_name(table: TableFile) -> TableFile:
    """Add the settings in a file's name, as `lr=0.1,seed=1.csv`, to a table without learning rates; or a folder's."""
    if table.path.is_dir() and "folder" not in table.columns:
        above = {"folder": [table.path.name] * len(table.lines)}
        runs = {"run": [f"{table.path.name}/{run}" for run in table.columns.get("run", [])]}
        table = replace(table, columns=above | table.columns | (runs if "run" in table.columns else {}))
    labels = labels_of(table.path.stem)
    if any(map(is_rate, table.columns)) or not any(map(is_rate, labels)):
        return table
    columns = {f"config.{name}": [value] * len(table.lines) for name, value in labels.items()}
    return replace(table, columns=columns | table.columns)


def expanded(source: str) -> list[str]:
    """Return the files that a pattern names, as a shell would."""
    if not glob.has_magic(source) or source == STDIN or Path(source).exists():
        return [source]
    if found := sorted(glob.glob(source, recursive=True)):  # noqa: PTH207 - pathlib's takes no whole path
        return found
    raise UserError(f"no file fits {source}: name a table, or a folder")


def _read(source: str) -> TableFile:
    if source == STDIN:
        return _read_stdin()
    if source.startswith(("http://", "https://")):
        return read_mlflow_server(source, shown_uri(source))
    path = Path(source.removeprefix("sqlite:///"))
    return read_folder(path, read_file) if path.is_dir() else read_file(path)


def read_file(path: Path) -> TableFile:
    """Read a file of any kind; raises UserError."""
    head = _head(path)
    if EVENTS in path.name:
        labels = {f"config.{name}": value for name, value in labels_of(path.parent.name).items()}
        rows = [{"run": path.parent.name, **labels, **row} for row in event_rows([path])]
        return table_of_rows(path, rows, "events of TensorBoard")
    if head == SQLITE:
        return read_database(path)
    if head.startswith(MAGIC):
        return _read_wandb(path)
    if head[:1] == b"{" and is_journal(path):
        return read_journal(path)
    return _of_content(path, read_content(path))


def _read_wandb(path: Path) -> TableFile:
    try:
        return table_of_rows(path, wandb_rows(path), "a run of W&B")
    except (OSError, ValueError, IndexError) as error:
        raise UserError(f"{path} cannot be read as a run of W&B ({reason(error)})") from error


def _of_content(path: Path, content: bytes) -> TableFile:
    """Read the content of a file: an archive of one file, a log, JSON, or a table."""
    if content.startswith(ZIP):
        return _unzipped(path, content)
    if path.suffix in LOGS and (found := log_rows(content.decode("utf-8", "replace"))):
        numbers, rows = zip(*found, strict=True)
        return table_of_rows(path, rows, "a log", numbers, is_text=True)
    if content.lstrip()[:1] in (b"{", b"["):
        return read_json(path, content)
    if path.suffix in (".yaml", ".yml"):
        return read_json(path, json.dumps(yaml_content(path), default=str).encode())
    return without_chart(table_of(path, content))


def _unzipped(path: Path, content: bytes) -> TableFile:
    """Read a spreadsheet, or the only file of an archive."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        names = [each for each in archive.infolist() if not each.is_dir() and not each.filename.startswith("__MACOSX")]
        if any(each.filename == SHEET for each in names):
            return _read_sheet(path, content)
        if len(names) != 1 or names[0].file_size > MOST_BYTES:
            raise UserError(f"{path} is an archive of {len(names)} files: unpack it, and name a file or the folder")
        found = _of_content(path.with_name(names[0].filename.rpartition("/")[2]), archive.read(names[0]))
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:  # the last two: of passwords
        raise UserError(f"{path} cannot be unpacked ({reason(error)}): write it again") from error
    return replace(found, path=path, lines=[each._replace(path=path) for each in found.lines])


def _read_sheet(path: Path, content: bytes) -> TableFile:
    """Read the first sheet of a spreadsheet that has rows."""
    try:
        from openpyxl import load_workbook  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise UserError(f"{path} is a spreadsheet: `pip install openpyxl` to read it, or save it as CSV") from error
    try:
        sheets = load_workbook(io.BytesIO(content), read_only=True, data_only=True).worksheets
        head, *rows = next(filter(None, ([*sheet.iter_rows(values_only=True)] for sheet in sheets)), [()])
        others = f", the first of {len(sheets)} sheets" if len(sheets) > 1 else ""
    except Exception as error:  # of openpyxl, which has many
        raise UserError(f"{path} cannot be read as a spreadsheet ({reason(error)}): save it as CSV") from error
    names = [str(name or "") for name in head]
    filled = [dict(zip(names, row, strict=True)) for row in rows if any(cell is not None for cell in row)]
    return table_of_rows(path, filled, f"a spreadsheet{others}")


def _head(path: Path) -> bytes:
    """Return how a file begins; nothing where it cannot be read, which its reader says."""
    try:
        with open_plain(path) as file:
            return file.read(len(SQLITE))
    except OSError:
        return b""


def _read_stdin() -> TableFile:
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(f"standard input has more than {MOST_BYTES:,} bytes: write a file")
    return _of_content(Path("stdin"), content)
