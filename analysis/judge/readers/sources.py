"""Sources of tables: a file, standard input, an address, several files by a pattern, or a folder of runs."""

from __future__ import annotations

import glob
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lr_sweep.analysis.judge.names import is_rate
from lr_sweep.analysis.judge.readers.databases import read_mlflow_server
from lr_sweep.analysis.judge.readers.files import read_file, table_of_content
from lr_sweep.analysis.judge.readers.folders import read_folder
from lr_sweep.analysis.judge.readers.labels import settings_in
from lr_sweep.analysis.judge.readers.protobuf import EVENTS
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile
from lr_sweep.common.errors import UserError
from lr_sweep.common.network import shown_uri

STDIN = "-"


def read_sources(sources: Sequence[str | Path]) -> list[TableFile]:
    """Read every source; raises UserError with what is wrong with the first that cannot be read."""
    tables = [_read(each) for source in sources for each in expanded(str(source))]
    tables = tables if len(tables) == 1 else list(map(_told_apart, tables))
    return [table if table.sha256 else replace(table, sha256=_digest(table)) for table in tables]


def _told_apart(table: TableFile) -> TableFile:
    """Add what a file's name says, as `lr=0.1,seed=1.csv`, if it says the learning rate; and the name of a folder."""
    if table.path.is_dir() and "folder" not in table.columns:
        runs = {"run": [f"{table.path.name}/{run}" for run in table.columns.get("run", ())]}
        table = replace(table, columns=table.columns | (runs if runs["run"] else {}))
        return table.beside({"folder": table.path.name})
    found = settings_in(table.path.parent.name if EVENTS in table.path.name else table.path.stem)
    return table.beside(found) if any(map(is_rate, found)) and not any(map(is_rate, table.columns)) else table


def _digest(table: TableFile) -> str:
    return hashlib.sha256(json.dumps(table.columns).encode()).hexdigest()


def expanded(source: str) -> list[str]:
    """Return the files that a pattern names, as a shell would."""
    if not glob.has_magic(source) or source == STDIN or Path(source).exists():
        return [source]
    if found := sorted(glob.glob(source, recursive=True)):  # noqa: PTH207 - pathlib's takes no whole path
        return found
    raise UserError(f"no file fits {source}: name a table, or a folder")


def _read(source: str) -> TableFile:
    if source == STDIN:
        content = sys.stdin.buffer.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UserError(f"standard input has more than {MOST_BYTES:,} bytes: write a file")
        return table_of_content(Path("stdin"), content, "stdin")
    if source.startswith(("http://", "https://")):
        return read_mlflow_server(source, shown_uri(source))
    path = Path(source.removeprefix("sqlite:///"))
    return read_folder(path) if path.is_dir() else read_file(path)
