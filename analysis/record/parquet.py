"""Parquet files of the record: written with a checksum of themselves, read and checked, one at a time or very many.

`index.parquet` has the rows of `runs/` once more, in one file, so that very many are read at once. The small files are
the truth. A row of the index counts for as long as its file has the stamp that the row was taken under; what has
another stamp, or none, is read from its file. An index that cannot be read is as good as none.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lr_sweep.analysis.record.columns import RUNS, Column, Columns, schema
from lr_sweep.analysis.record.paths import Paths, RecordError, UnreadableError, unreadable
from lr_sweep.common.errors import reason
from lr_sweep.common.files import read_plain

FORMAT = 1
"""Raised when an older reader would misread a newer record, or the other way round."""
READ_THREADS = 8
"""Files read at once; small files on a network drive are bound by latency, not by the CPU."""
MAX_BYTES = 1 << 30
"""The largest file that is read; the index of a million rows is smaller."""
MAX_ROWS = 100_000
"""Rows of a table that is read as plain values, which take a hundred times their room in a file. A study has at most as
many runs, and a run far fewer evaluations."""
MAX_DECODED = 64_000_000
"""Bytes of the values of such a table: a file of a thousandth of it may hold them, if many are equal."""
READ_AHEAD = 1000
"""Files whose content is held at a time."""
_MARK = b"lr-sweep file sha256: "
_BLANK = b"0" * 64
"""Stands where the digest goes, while the file is hashed."""
INDEX_FROM = 2000
"""Rows from which an index is kept: fewer are read in a second or two without."""
INDEX_BEHIND = 500
"""Rows that the index may lack before a writer writes it again."""
FEW = 200
"""Rows that are sooner read from their files than looked up in the index."""
SETTLED_NS = 2_000_000_000
"""A file that changed so lately may change again and keep its stamp, where times are coarse: it is not indexed yet."""
STAMP = Column("stamp", pa.string(), "", "size and times of change of the row's file when the row was taken from it")
INDEX: Columns = (*RUNS, STAMP)
COMBINED = 1000
"""Tables of one row that are made one: each takes more memory than its row."""


def parquet_bytes(content: pa.Table, compression: str = "snappy") -> bytes:
    """Return a Parquet file with a sha256 of the whole file in its key-value metadata, which other readers pass over.

    Parquet's own page checksums leave out page headers and the footer, where one wrong bit can change a number unseen.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, content.schema, compression=compression, write_page_checksum=True) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata({"checksum": _MARK + _BLANK})
    return _with_digest(sink.getvalue())


def _with_digest(content: bytes) -> bytes:
    start = content.rfind(_MARK) + len(_MARK)  # the last: the footer comes behind any text of the table
    before, after = content[:start], content[start + len(_BLANK) :]
    return before + hashlib.sha256(before + _BLANK + after).hexdigest().encode() + after


def read_each(
    folder: Path, run_ids: Sequence[str], columns: Columns, pass_over: bool = False
) -> Iterator[tuple[str, pa.Table]]:
    """Yield runs with the content of their files, those that have one; `pass_over`: and an undamaged one."""
    with ThreadPoolExecutor(READ_THREADS) as pool:
        for start in range(0, len(run_ids), READ_AHEAD):
            paths = [folder / f"{run_id}.parquet" for run_id in run_ids[start : start + READ_AHEAD]]
            # Threads fetch bytes and no more: decoding holds Python's lock, and is slower in many threads than in one.
            for path, content in [(path, pool.submit(_read_bytes, path)) for path in paths]:
                try:
                    if (found := content.result()) is not None:
                        yield path.stem, _decode(path, found, columns)
                except RecordError:
                    if not pass_over:
                        raise


def read_table(path: Path, columns: Columns, *, limited: bool = False) -> pa.Table | None:
    """Read one file; None if there is none. `limited`: refuse one that is larger than `MAX_ROWS` or `MAX_DECODED`."""
    content = _read_bytes(path)
    return None if content is None else _decode(path, content, columns, limited=limited)


def _read_bytes(path: Path) -> bytes | None:
    try:
        return read_plain(path, MAX_BYTES)
    except FileNotFoundError as error:
        if path.is_symlink():  # one that leads nowhere is no missing file: its disk may be away
            raise UnreadableError(unreadable(path, error)) from error
        return None
    except OSError as error:
        raise UnreadableError(unreadable(path, error)) from error


def damaged(path: Path, error: Exception) -> RecordError:
    """Return the error about a damaged file."""
    row = Paths(path.parent.parent).run(path.stem)  # without its curve it would count as done
    also = f", and {row} if there is one," if path.parent.name == "curves" else ""
    return RecordError(
        f"cannot read {path} ({reason(error)}): delete it{also} and run the study again; "
        f"a run resumes from its checkpoint, so what it has trained is not trained again"
    )


def _check_size(facts: pq.FileMetaData, content: bytes) -> None:
    """Raise ValueError for a table whose values would take too much memory, before they are read."""
    if facts.num_rows > MAX_ROWS:
        raise ValueError(f"it has {facts.num_rows:,} rows, want at most {MAX_ROWS:,}")
    num_bytes = sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))
    if num_bytes <= MAX_DECODED < facts.num_rows * num_bytes:  # equal values are stored once: look how long they are
        names = [facts.schema.column(number).path for number in range(facts.num_columns)]
        with pq.ParquetFile(pa.BufferReader(content), read_dictionary=names) as file:
            num_bytes = sum(map(_decoded_bytes, file.read(use_threads=False).itercolumns()))
    if num_bytes > MAX_DECODED:
        raise ValueError(f"its values take {num_bytes:,} bytes, want at most {MAX_DECODED:,}")


def _decoded_bytes(column: pa.ChunkedArray) -> int:
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = [pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
    return sum(pc.sum(each).as_py() or 0 for each in lengths)


def _decode(path: Path, content: bytes, columns: Columns, *, limited: bool = False) -> pa.Table:
    if _MARK in content and content != _with_digest(content):  # an earlier version wrote files without a checksum
        raise damaged(path, ValueError("its checksum is not that of its content"))
    try:
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
            if limited:
                _check_size(file.metadata, content)
            found = file.read([column.name for column in columns], use_threads=False)
            found.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from error
    for column in columns:
        if column.later and column.name not in found.column_names:
            found = found.append_column(pa.field(column.name, column.type), pa.nulls(found.num_rows, column.type))
    types = dict(zip(found.schema.names, found.schema.types, strict=True))
    if wrong := [c for c in columns if types.get(c.name) != c.type]:
        texts = [f"{c.name}: got {types.get(c.name, 'no column')}, want {c.type}" for c in wrong]
        raise RecordError(f"{path} is not of format {FORMAT} ({'; '.join(texts)}): delete it and run the study again")
    return pa.Table.from_arrays([found.column(column.name) for column in columns], schema=schema(columns))


def row_stamps(results: Path, settled_before_ns: int | None = None) -> dict[str, str]:
    """Return, by run id, a stamp of each row's file, which another content of it would not have.

    `settled_before_ns`: leave out files that changed after this Unix time; None: none. Raises OSError if this user may
    not list them.
    """
    try:
        entries = list(os.scandir(Paths(results).runs))
    except FileNotFoundError:
        return {}
    found = {}
    for entry in entries:
        if not entry.name.endswith(".parquet") or entry.name.startswith("."):
            continue
        try:
            stat = entry.stat()
        except OSError as error:
            if entry.is_symlink():  # it leads nowhere, which a reader of it reports
                found[entry.name.removesuffix(".parquet")] = ""
            elif not isinstance(error, FileNotFoundError):  # else it was removed since
                raise
        else:
            if settled_before_ns is None or max(stat.st_mtime_ns, stat.st_ctime_ns) < settled_before_ns:
                # The second time is not one that a copying program can set.
                found[entry.name.removesuffix(".parquet")] = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
    return found


def read_index(results: Path, columns: Columns) -> pa.Table | None:
    """Read some columns of the index, and `run_id` and `stamp`; None: there is none that can be read."""
    names = {"run_id", STAMP.name, *(column.name for column in columns)}
    try:
        return read_table(Paths(results).index, tuple(column for column in INDEX if column.name in names))
    except RecordError:
        return None


def rows_of(results: Path, run_ids: Iterable[str] | None, columns: Columns) -> pa.Table:
    """Return some columns of rows, from the index where it counts, in the order of the ids; None: of all, sorted.

    Raises RecordError if a row's file is damaged, or this user may not list them.
    """
    ids = None if run_ids is None else list(dict.fromkeys(run_ids))
    index, stamps = None, dict[str, str]()
    if ids is None or len(ids) > FEW:
        try:
            stamps = row_stamps(results)  # before anything is read: a file that changes later counts as it is now
        except OSError as error:
            raise UnreadableError(unreadable(Paths(results).runs, error)) from error
        ids = sorted(stamps) if ids is None else [run_id for run_id in ids if run_id in stamps]
        index = read_index(results, columns)
    current = _current(index, stamps)
    lacking = [run_id for run_id in ids if run_id not in current]
    return _gather(ids, columns, index, current, read_each(Paths(results).runs, lacking, columns))


def new_index(results: Path, now_ns: int) -> pa.Table | None:
    """Return what the index should hold: the rows that are now; None: what it holds will do, or nothing.

    Damaged rows are left out: they are found when they are read. `now_ns` is the Unix time. Raises OSError if this user
    may not list the files of rows.
    """
    stamps = row_stamps(results, settled_before_ns=now_ns - SETTLED_NS)  # as above, before anything is read
    index = read_index(results, RUNS)
    current = _current(index, stamps)
    lacking = sorted(stamps.keys() - current.keys())
    if len(stamps) < INDEX_FROM or (current and len(lacking) < INDEX_BEHIND):
        return None
    read = read_each(Paths(results).runs, lacking, RUNS, pass_over=True)
    # What is not as it should be is left for readers of the file.
    sound = ((run_id, rows) for run_id, rows in read if rows["run_id"].to_pylist() == [run_id])
    found = _gather(sorted(stamps), RUNS, index, current, sound)
    found_stamps = pa.array([stamps[run_id] for run_id in found["run_id"].to_pylist()], STAMP.type)
    return found.append_column(schema((STAMP,)).field(0), found_stamps)


def _current(index: pa.Table | None, stamps: Mapping[str, str]) -> dict[str, int]:
    """Return which rows of an index count, by run id: those whose files have not changed since."""
    if index is None:
        return {}
    rows = enumerate(zip(index["run_id"].to_pylist(), index[STAMP.name].to_pylist(), strict=True))
    return {run_id: position for position, (run_id, stamp) in rows if stamps.get(run_id) == stamp}


def _gather(
    ids: Iterable[str],
    columns: Columns,
    index: pa.Table | None,
    current: Mapping[str, int],
    read: Iterable[tuple[str, pa.Table]],
) -> pa.Table:
    """Return rows in the order of ids: those at `current` positions of the index, and those read from files."""
    empty = pa.Table.from_batches([], schema(columns))  # `empty_table()` would import pandas
    tables: list[pa.Table] = [empty if index is None else index.select(empty.column_names)]
    single: list[pa.Table] = []
    end = tables[0].num_rows
    positions = {run_id: range(position, position + 1) for run_id, position in current.items()}
    for run_id, rows in read:
        positions[run_id] = range(end, end + rows.num_rows)
        end += rows.num_rows
        single.append(rows)
        if len(single) == COMBINED:
            tables.append(pa.concat_tables(single).combine_chunks())
            single.clear()
    wanted = [position for run_id in ids for position in positions.get(run_id, ())]
    return pa.concat_tables([*tables, *single]).combine_chunks().take(pa.array(wanted, pa.int64()))
