"""No damage to a file changes what is read from it, and the index of rows answers as their files do."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lr_sweep.analysis.record import parquet
from lr_sweep.analysis.record.columns import CURVES, RUNS, Columns, table
from lr_sweep.analysis.record.parquet import new_index, parquet_bytes, read_index, row_stamps
from lr_sweep.analysis.record.paths import Paths, RecordError
from lr_sweep.analysis.record.read import read_rows, read_run_rows, read_runs
from lr_sweep.sweep.inspection.merge import merge_results
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.tests.support.records import SyntheticRecord, Trained, add, add_study, new_results, rows_not_indexed

NAMES = ("run_id", "status", "num_steps", "failure", "seed")
LATER_NS = 60_000_000_000
NUM_ROWS = 300


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write an index from 10 rows on, write it again for 3 new ones, use it from 2 on."""
    for name, value in {"INDEX_FROM": 10, "INDEX_BEHIND": 3, "FEW": 2}.items():
        monkeypatch.setattr(parquet, name, value)


def record_of(folder: Path, number: int) -> SyntheticRecord:
    record = SyntheticRecord(folder)
    for seed in range(number):
        record.add(1e-3, seed, [])
    record.write()
    return record


def write(results: Path, now_ns: int | None = None) -> bool:
    """Write the index as a writer does; return whether there was anything to write."""
    content = new_index(results, time.time_ns() + LATER_NS if now_ns is None else now_ns)
    if content is not None:
        Paths(results).index.write_bytes(parquet_bytes(content))
    return content is not None


@pytest.fixture
def results(tmp_path: Path) -> Path:
    record = record_of(tmp_path, 20)
    assert write(record.results)
    return record.results


def ids(results: Path) -> list[str]:
    return sorted(path.stem for path in (results / "runs").iterdir())


def read_paths(monkeypatch: pytest.MonkeyPatch, results: Path) -> list[str]:
    """The files that are read when all rows are asked for."""
    seen: list[str] = []
    read = parquet.read_plain
    with monkeypatch.context() as patched:
        patched.setattr(parquet, "read_plain", lambda path, most: seen.append(path.stem) or read(path, most))
        read_run_rows(results, None, NAMES)
    return sorted(seen)


def change(results: Path, run_id: str, **changed: object) -> None:
    """Write a row anew, as a run does that was trained further."""
    (row,) = read_run_rows(results, [run_id], [column.name for column in RUNS])
    path = Paths(results).run(run_id)
    path.with_suffix(".partial").write_bytes(parquet_bytes(table([row | changed], RUNS)))
    path.with_suffix(".partial").replace(path)


def test_rows_that_did_not_change_are_not_read_from_their_files(monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    assert read_paths(monkeypatch, results) == ["index"]
    one, two, three = ids(results)[:3]
    change(results, one, num_steps=600)
    Paths(results).run(two).unlink()
    shutil.copy2(Paths(results).run(three), Paths(results).run("z"))  # a copy that keeps its time
    assert read_paths(monkeypatch, results) == sorted(["index", one, "z"])
    found = [(row["run_id"], row["num_steps"]) for row in read_run_rows(results, None, NAMES)]
    assert found == [(run_id, 600 if run_id == one else 300) for run_id in [*ids(results)[:-1], three]]


def test_a_change_that_keeps_size_and_time_is_seen(results: Path) -> None:
    one = ids(results)[0]
    change(results, one, num_steps=302)
    Paths(results).index.unlink()
    assert write(results)
    before = Paths(results).run(one).stat()
    change(results, one, num_steps=301)
    assert Paths(results).run(one).stat().st_size == before.st_size
    os.utime(Paths(results).run(one), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert next(row["num_steps"] for row in read_run_rows(results, ids(results), NAMES)) == 301


def test_a_file_that_changed_a_moment_ago_is_not_indexed(tmp_path: Path) -> None:
    record = record_of(tmp_path, 20)
    assert not write(record.results, now_ns=time.time_ns())
    late = ids(record.results)[-1]
    os.utime(Paths(record.results).run(late), ns=(0, time.time_ns() + LATER_NS))
    assert write(record.results, now_ns=time.time_ns() + LATER_NS)
    assert rows_not_indexed(record.results) == 1


def test_an_index_is_written_for_many_rows_and_again_when_it_is_behind(tmp_path: Path) -> None:
    record = record_of(tmp_path, 9)
    assert not write(record.results)
    record.add(1e-2, 0, [(300, 0.5, 0.4)])
    assert write(record.results)
    assert not write(record.results)
    for seed in (1, 2):
        record.add(1e-2, seed, [(300, 0.5, 0.4)])
        assert not write(record.results)
    record.add(1e-2, 3, [(300, 0.5, 0.4)])
    assert write(record.results)
    assert rows_not_indexed(record.results) == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
        lambda content: parquet_bytes(pa.table({"run_id": ["a"]})),
        lambda content: parquet_bytes(pa.table({"stamp": [1], **{column.name: [None] for column in RUNS}})),
    ],
    ids=["empty", "cut", "flipped", "other-columns", "other-types"],
)
def test_a_damaged_index_is_not_used_and_written_again(results: Path, damage: Callable[[bytes], bytes]) -> None:
    want = read_run_rows(results, None, NAMES)
    Paths(results).index.write_bytes(damage(Paths(results).index.read_bytes()))
    assert read_index(results, RUNS) is None
    assert read_run_rows(results, None, NAMES) == want
    assert write(results)
    assert rows_not_indexed(results) == 0


def test_a_damaged_row_is_reported_and_does_not_keep_the_others_from_the_index(results: Path) -> None:
    one = ids(results)[0]
    Paths(results).run(one).write_bytes(b"torn")
    Paths(results).index.unlink()
    assert write(results)
    assert rows_not_indexed(results) == 1
    with pytest.raises(RecordError, match=one):
        read_run_rows(results, None, NAMES)


def test_a_writer_leaves_an_index_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "SETTLED_NS", -LATER_NS)
    record = record_of(tmp_path, 20)
    with Results(tmp_path).writing("small"):
        pass
    assert rows_not_indexed(record.results) == 0


def test_merge_adds_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = new_results(tmp_path / "carried")
    for seed in range(12):
        add(carried, seed, Trained(evaluations=2))
    add_study(carried, "small", dict.fromkeys(range(12), 20))
    assert write(carried.root)
    monkeypatch.setattr(parquet, "SETTLED_NS", -LATER_NS)
    other = new_results(tmp_path / "other")
    merge_results(str(carried.root), other)
    assert Paths(other.root).index.exists()
    assert rows_not_indexed(other.root) == 0
    assert read_run_rows(other.root, None, NAMES) == read_run_rows(carried.root, None, NAMES)


EDIT = st.tuples(st.sampled_from(["change", "remove", "add", "tear", "index", "utime"]), st.integers(0, NUM_ROWS - 1))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    record = record_of(tmp_path_factory.mktemp("large"), NUM_ROWS)
    return record.results


def answer(results: Path, run_ids: list[str] | None) -> object:
    try:
        return read_run_rows(results, run_ids, NAMES)
    except RecordError as error:
        return str(error)


@settings(max_examples=20, deadline=None)
@given(edits=st.lists(EDIT, max_size=8), asked=st.none() | st.lists(st.integers(0, NUM_ROWS + 50), max_size=9))
def test_the_index_answers_as_the_files_do(large: Path, edits: list[tuple[str, int]], asked: list[int] | None) -> None:
    """Edits stay for the next example, but what is torn is removed: so there is an answer that is no error."""
    if not Paths(large).index.exists():
        write(large)
    known = ids(large)
    torn = []
    for kind, number in edits:
        run_id = known[number % len(known)]
        path = Paths(large).run(run_id)
        if kind == "index":
            write(large)
        elif kind == "add":
            SyntheticRecord(large).add(1e-2, number, [])
        elif path.exists() and run_id not in torn:
            if kind == "change":
                change(large, run_id, num_steps=number)
            elif kind == "remove":
                path.unlink()
            elif kind == "tear":
                path.write_bytes(path.read_bytes()[:-1])
                torn.append(run_id)
            else:
                os.utime(path, ns=(0, 0))
    run_ids = None if asked is None else [(known * 2)[number] for number in asked]
    by_index = answer(large, run_ids)
    aside = Paths(large).index.rename(large / "aside")
    assert answer(large, run_ids) == by_index
    aside.rename(Paths(large).index)
    for run_id in torn:
        Paths(large).run(run_id).unlink()


def test_pandas_reads_the_same(results: Path) -> None:
    by_index = read_runs(results)
    Paths(results).index.unlink()
    assert by_index.equals(read_runs(results))


def test_a_directory_without_rows_has_no_stamps(tmp_path: Path) -> None:
    assert row_stamps(tmp_path) == {}
    assert rows_not_indexed(tmp_path) == 0


FLIPS = 1500


@pytest.fixture(params=["runs", "curves"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Columns, list[dict[str, Any]]]:
    """A small file as the program writes it, its columns and its rows."""
    record = SyntheticRecord(tmp_path)
    run_id = record.add(1e-3, 0, [(step, step / 1000, 0.25) for step in range(100, 400, 100)])
    path, columns = (Paths(tmp_path).run, RUNS) if request.param == "runs" else (Paths(tmp_path).curve, CURVES)
    rows = read_rows(path(run_id), columns)
    assert rows
    write_parquet(path(run_id), rows, columns)
    return path(run_id), columns, rows


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
