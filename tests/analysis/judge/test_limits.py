"""Small files that stand for very much are refused in seconds, with the limit; so is what has no end."""

from __future__ import annotations

import gzip
import json
import os
import resource
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.common.errors import UserError

MOST_MEMORY, MOST_CPU_S = 6_000_000_000, 60
ALIASES = "a: &a [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'a' AS run_uuid, i AS key, i AS value"


def database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.executescript(
            "CREATE TABLE experiments (experiment_id, name, lifecycle_stage);"
            "CREATE TABLE runs (run_uuid, experiment_id, status, start_time, lifecycle_stage);"
            f"CREATE TABLE latest_metrics (run_uuid, key, value, is_nan); CREATE VIEW params AS {ENDLESS} FROM n"
        )


def spreadsheet(path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    for row in (["lr", "val_acc"], [0.1, 0.5], [0.2, 0.6]):
        book.active.append(row)
    book.active["XFD1048576"] = 1
    book.save(path)


def archive(path: Path, name: str = "results.csv") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made, made.open(name, "w") as file:
        for _ in range(101):
            file.write(b"0.1,0.5\n" * 125_000)


def parquet(**columns: object) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.table(columns), path)


def equal_texts() -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(11_000, np.int32)), pa.array(["x" * 100_000]))


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def sparse(path: Path, head: bytes = b"") -> None:
    path.write_bytes(head)
    os.truncate(path, 10_000_000_000)


def rows_below(settings: int, rows: int) -> str:
    return json.dumps({f"s{number}": 1 for number in range(settings)} | {"rows": [{"val_acc": 0.1}] * rows})


BOMBS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "aliases": ("r.yaml", text(ALIASES), "aliases .* make more than 1,000,000 values"),
    "long YAML": ("r.yaml", text("a: 1\n" * 300_000), "more than 1,000,000 characters"),
    "a view": ("mlflow.db", database, "not authorized.*views"),
    "a large database": ("x.db", lambda path: sparse(path, b"SQLite format 3\0"), "2,000,000,000 bytes"),
    "a packed table": ("results.csv.zip", archive, "more than 100,000,000 bytes"),
    "a packed sheet": ("sheet.xlsx", lambda path: archive(path, "[Content_Types].xml"), "more than 100,000,000 bytes"),
    "a cell at the end of a sheet": ("sheet.xlsx", spreadsheet, "1,000,001 rows"),
    "gzip": ("r.csv.gz", lambda path: path.write_bytes(gzip.compress(bytes(100_000_001), 1)), "100,000,000 bytes"),
    "rows of Parquet": ("r.parquet", parquet(lr=np.zeros(1_000_001)), "1,000,001 rows"),
    "lists of Parquet": ("r.parquet", parquet(lr=[[0] * 200_000]), "1 rows of 200,000 columns"),
    "texts of Parquet": ("r.parquet", parquet(note=equal_texts()), "1,000,000,000 bytes unpacked"),
    "deep JSON": ("r.json", text("[" * 1_000_000), "maximum recursion depth"),
    "settings of rows": ("r.json", text(rows_below(1_000, 21_000)), "21,000 rows of 1,000"),
    "a large log": ("train.log", sparse, "more than 100,000,000 bytes"),
    "a pipe": ("r.csv", os.mkfifo, "no plain file"),
    "many columns": ("r.csv", text("," * 5_000_000), "5,000,001 columns"),
}


@pytest.fixture
def bounded() -> Iterator[None]:
    """Allow this process little more memory and time than it has used: an endless read fails, and stops no machine."""
    limits = {resource.RLIMIT_AS: MOST_MEMORY, resource.RLIMIT_CPU: MOST_CPU_S}
    used = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime) + 1
    kept = {which: resource.getrlimit(which) for which in limits}
    for which, most in limits.items():
        more = used if which == resource.RLIMIT_CPU else address_space()
        resource.setrlimit(which, (most + more, kept[which][1]))
    yield
    for which, limit in kept.items():
        resource.setrlimit(which, limit)


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


SLOW = ("settings of rows", "texts of Parquet", "a packed table", "a cell at the end of a sheet")
CASES = [pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, case in BOMBS.items()]


@pytest.mark.parametrize(("name", "write", "message"), CASES)
@pytest.mark.usefixtures("bounded")
def test_what_would_fill_the_memory_is_refused(
    tmp_path: Path, name: str, write: Callable[[Path], object], message: str
) -> None:
    write(tmp_path / name)
    with pytest.raises(UserError, match=message):
        read_sources([tmp_path / name])
