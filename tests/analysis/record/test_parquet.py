"""No damage to a file changes what is read from it, and the index of rows answers as their files do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.record.columns import CURVES, RUNS, Columns, table
from lr_sweep.analysis.record.paths import Paths, RecordError
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.sweep.results.directory import write_parquet
from lr_sweep.tests.support.records import SyntheticRecord

FLIPS = 1500


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Columns, list[dict[str, Any]]]:
    """A small file as the program writes it, its columns and its rows."""
    path = Paths(tmp_path).run(SyntheticRecord(tmp_path).add(1e-3, 0, [(300, 0.5, 0.25)]))
    rows = read_rows(path, RUNS)
    assert rows
    write_parquet(path, rows, RUNS)
    return path, RUNS, rows


def read_or_refuse(path: Path, columns: Columns) -> list[dict[str, Any]] | None:
    try:
        return read_rows(path, columns)
    except RecordError:
        return None


def test_a_flipped_bit_is_reported_or_changes_nothing(written: tuple[Path, Columns, list[dict[str, Any]]]) -> None:
    path, columns, rows = written
    content = path.read_bytes()
    assert read_rows(path, columns) == rows
    num_reported = 0
    for bit in random.Random(0).sample(range(8 * len(content)), FLIPS):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        got = read_or_refuse(path, columns)
        assert got in (None, rows), f"bit {bit}"
        num_reported += got is None
    assert num_reported > 0.98 * FLIPS  # the rest: the mark by which the checksum is found


def test_a_truncated_file_is_reported(written: tuple[Path, Columns, list[dict[str, Any]]]) -> None:
    path, columns, _ = written
    content = path.read_bytes()
    for length in [0, *random.Random(0).sample(range(len(content)), 300)]:
        path.write_bytes(content[:length])
        with pytest.raises(RecordError, match=r"delete it.* and run the study again"):
            read_rows(path, columns)


def test_other_readers_see_the_same_table(written: tuple[Path, Columns, list[dict[str, Any]]]) -> None:
    path, columns, rows = written
    assert pq.read_table(path, page_checksum_verification=True).equals(table(rows, columns))


def test_a_file_of_an_earlier_version_has_no_checksum_and_is_read(
    written: tuple[Path, Columns, list[dict[str, Any]]],
) -> None:
    path, columns, rows = written
    pq.write_table(table(rows, columns), path)
    assert read_rows(path, columns) == rows


def test_text_that_looks_like_a_checksum_is_text(tmp_path: Path) -> None:
    record = SyntheticRecord(tmp_path)
    path = Paths(tmp_path).run(record.add(1e-3, 0, [(300, 0.5, 0.5)]))
    rows = read_rows(path, RUNS)
    assert rows
    rows[0] |= {"status": "failed", "failure": "lr-sweep file sha256: " + 64 * "f"}
    write_parquet(path, rows, RUNS)
    assert read_rows(path, RUNS) == rows
    path.write_bytes(path.read_bytes().replace(b"failed", b"failen"))
    with pytest.raises(RecordError, match="its checksum is not that of its content"):
        read_rows(path, RUNS)


def test_a_damaged_curve_is_to_be_deleted_with_its_row(tmp_path: Path) -> None:
    """A row without its curve would count as done."""
    record = SyntheticRecord(tmp_path)
    run_id = record.add(1e-3, 0, [(300, 0.5, 0.5)])
    path, row = Paths(tmp_path).curve(run_id), Paths(tmp_path).run(run_id)
    path.write_bytes(b"not a table")
    with pytest.raises(RecordError) as caught:
        read_rows(path, CURVES)
    assert f"delete it, and {row} if there is one, and run the study again" in str(caught.value)
