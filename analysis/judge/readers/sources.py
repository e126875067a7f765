"""Sources of tables: files, standard input, a DataFrame, a pattern of files, a folder of runs."""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.judge.table_file import TableFile, damage_named, unpacked
from lr_sweep.common.errors import UserError

from .files import read_file, table_of_content
from .folders import read_folder, with_places

STDIN = "-"
Source = str | Path | pd.DataFrame
FRAME = Path("DataFrame")


def read_sources(sources: Sequence[Source]) -> list[TableFile]:
    """Read every source; raises UserError with what is wrong with the first that cannot be read."""
    tables = [table for source in sources for table in _tables_of(source)]
    tables = _told_apart(tables) if len(tables) > 1 else tables
    return [table if table.sha256 else _with_checksum(table) for table in tables]


def _with_checksum(table: TableFile) -> TableFile:
    content = json.dumps(table.columns).encode()
    return replace(table, sha256=sha256(content).hexdigest())


def _told_apart(tables: Sequence[TableFile]) -> list[TableFile]:
    """Add the names of several files or folders."""
    paths = [Path(os.path.normpath(table.path.absolute())) for table in tables]
    top = Path(os.path.commonpath([path.parent for path in paths]))
    column = "folder" if all(map(Path.is_dir, paths)) else "file"
    return with_places(zip(paths, tables, strict=True), top, column)


def _tables_of(source: Source) -> list[TableFile]:
    if isinstance(source, str | Path):
        return list(map(_read, expanded(str(source))))
    if not isinstance(source, pd.DataFrame):
        raise UserError(
            f"got a {type(source).__name__} as a table, want a path or a pandas DataFrame"
        )
    with damage_named(FRAME, advice="write it to a CSV file, and look at that"):
        has_names = any(source.index.names)  # an index without names numbers the rows
        return [table_of_content(FRAME, source.to_parquet(index=has_names), "")]


def expanded(source: str) -> list[str]:
    """Return the files that a pattern names, as a shell would; raises UserError if there are none."""
    if not glob.has_magic(source) or source == STDIN or Path(source).exists():
        return [source]
    paths = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - pathlib's takes no whole path
    if not paths:
        raise UserError(f"no file fits {source}: name a table, or a folder")
    return paths


def _read(source: str) -> TableFile:
    if source == STDIN:
        stdin = Path("stdin")
        return table_of_content(stdin, unpacked(stdin, sys.stdin.buffer), "stdin")
    path = Path(source.removeprefix("sqlite:///"))
    return read_folder(path) if path.is_dir() else read_file(path)
