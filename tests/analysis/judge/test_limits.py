"""Small files that stand for very much are refused in seconds, with the limit; so is what has no end."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.common.errors import UserError

ALIASES = "a: &a [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def archive(path: Path, name: str = "results.csv") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made, made.open(name, "w") as file:
        for _ in range(101):
            file.write(b"0.1,0.5\n" * 125_000)


def parquet(**columns: object) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.table(columns), path)


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
    "a large database": ("x.db", lambda path: sparse(path, b"SQLite format 3\0"), "2,000,000,000 bytes"),
    "a packed table": ("results.csv.zip", archive, "more than 100,000,000 bytes"),
    "a packed sheet": ("sheet.xlsx", lambda path: archive(path, "[Content_Types].xml"), "more than 100,000,000 bytes"),
    "gzip": ("r.csv.gz", lambda path: path.write_bytes(gzip.compress(bytes(100_000_001), 1)), "100,000,000 bytes"),
    "rows of Parquet": ("r.parquet", parquet(lr=np.zeros(1_000_001)), "1,000,001 rows"),
    "deep JSON": ("r.json", text("[" * 1_000_000), "maximum recursion depth"),
    "settings of rows": ("r.json", text(rows_below(1_000, 21_000)), "21,000 rows of 1,000"),
    "a large log": ("train.log", sparse, "more than 100,000,000 bytes"),
    "a pipe": ("r.csv", os.mkfifo, "no plain file"),
    "many columns": ("r.csv", text("," * 5_000_000), "5,000,001 columns"),
}


SLOW = ("settings of rows", "a packed table")
CASES = [pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, case in BOMBS.items()]


@pytest.mark.parametrize(("name", "write", "message"), CASES)
def test_what_would_fill_the_memory_is_refused(
    tmp_path: Path, name: str, write: Callable[[Path], object], message: str
) -> None:
    write(tmp_path / name)
    with pytest.raises(UserError, match=message):
        read_sources([tmp_path / name])
