"""`index.parquet`: the rows of `runs/` once more, in one file, so that very many are read at once.

The small files are the truth. A row of the index counts for as long as its file has the stamp that the row was taken
under; what has another stamp, or none, is read from its file. An index that cannot be read is as good as none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.checksum import is_intact, parquet_bytes
from analysis.columns import RUNS, Column, Columns, schema

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

Stamps = dict[str, str]
"""Stamps of rows' files by run id."""
FileRows = Callable[[Sequence[str]], Iterator[tuple[str, pa.Table]]]
"""Reads the files of runs: yields those that there are with their content."""
COMBINED = 1000
"""Tables of one row that are made one: each takes more memory than its row."""


def index_path(results: Path) -> Path:
    """Return where the index of a results directory lies."""
    return results / "index.parquet"


def row_stamps(results: Path, settled_before_ns: int | None = None) -> Stamps:
    """Return a stamp for each row's file, which another content of it would not have.

    Args:
        results: a results directory.
        settled_before_ns: leave out files that changed after this Unix time; None: all of them.

    Raises:
        OSError: this user may not list them.
    """
    try:
        entries = list(os.scandir(results / "runs"))
    except FileNotFoundError:
        return {}
    found = {}
    for entry in entries:
        if not entry.name.endswith(".parquet") or entry.name.startswith("."):
            continue
        try:
            stat = entry.stat()
        except FileNotFoundError:  # removed since
            continue
        if settled_before_ns is None or max(stat.st_mtime_ns, stat.st_ctime_ns) < settled_before_ns:
            # The second time is not one that a copying program can set.
            found[entry.name.removesuffix(".parquet")] = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
    return found


def read_index(results: Path, columns: Columns) -> pa.Table | None:
    """Read some columns of the index, and `run_id` and `stamp`; None: there is none that can be read."""
    path, names = index_path(results), dict.fromkeys(("run_id", *(column.name for column in columns), STAMP.name))
    try:
        content = path.read_bytes()
        if not is_intact(content):
            return None
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
            found = file.read(list(names), use_threads=False)
            found.validate(full=True)
    except (pa.ArrowException, OSError, ValueError):
        return None
    want = schema(tuple(column for name in names for column in INDEX if column.name == name))
    return found.select(list(names)) if set(found.schema) == set(want) else None


def rows_of(results: Path, run_ids: Iterable[str] | None, columns: Columns, read: FileRows) -> pa.Table:
    """Return rows in the order of the ids, or of all ids: from the index those that count, the others from files.

    Args:
        results: a results directory.
        run_ids: which runs; those without a row are left out. None: all.
        columns: of `RUNS`.
        read: reads these columns of files.
    """
    ids = None if run_ids is None else list(dict.fromkeys(run_ids))
    index, stamps = None, {}
    if ids is None or len(ids) > FEW:
        stamps = row_stamps(results)  # before anything is read: a file that changes later counts as it is now
        ids = sorted(stamps) if ids is None else [run_id for run_id in ids if run_id in stamps]
        index = read_index(results, columns)
    places = {run_id: range(place, place + 1) for run_id, place in _current(index, stamps).items()}
    found = _Rows(columns, index)
    for run_id, rows in read([run_id for run_id in ids if run_id not in places]):
        places[run_id] = found.add(rows)
    return found.take([place for run_id in ids for place in places.get(run_id, ())])


def index_content(results: Path, now_ns: int, read: FileRows) -> bytes | None:
    """Return the index as it should be; None: it will do as it is, or there are too few rows for one.

    Args:
        results: a results directory.
        now_ns: Unix time.
        read: reads all columns of files, and passes over damaged ones.
    """
    stamps = row_stamps(results, settled_before_ns=now_ns - SETTLED_NS)  # as above, before anything is read
    index = read_index(results, RUNS)
    places = _current(index, stamps)
    if len(stamps) < INDEX_FROM or (places and not is_behind(len(stamps) - len(places))):
        return None
    found = _Rows(RUNS, index)
    for run_id, rows in read(sorted(stamps.keys() - places.keys())):
        if rows["run_id"].to_pylist() == [run_id]:  # what is not as it should be is left for readers of the file
            places[run_id] = found.add(rows).start
    ids = sorted(places)
    stamped = found.take([places[run_id] for run_id in ids]).append_column(
        schema((STAMP,)).field(0), pa.array([stamps[run_id] for run_id in ids])
    )
    return parquet_bytes(stamped, compression="zstd")


def index_lacks(results: Path) -> int | None:
    """Return how many rows the index does not have as they are; None: there is an index, and it is damaged.

    Raises:
        OSError: this user may not read the index, or the folder of rows.
    """
    if not index_path(results).exists():
        return len(row_stamps(results))
    index_path(results).open("rb").close()
    index, stamps = read_index(results, ()), row_stamps(results)
    return None if index is None else len(stamps) - len(_current(index, stamps))


def is_behind(lacks: int) -> bool:
    """Tell whether an index that lacks so many rows is to be written again."""
    return lacks >= INDEX_BEHIND


def _current(index: pa.Table | None, stamps: Stamps) -> dict[str, int]:
    """Return which rows of an index count, by run id: those whose files have not changed since."""
    if index is None:
        return {}
    rows = enumerate(zip(index["run_id"].to_pylist(), index[STAMP.name].to_pylist(), strict=True))
    return {run_id: place for place, (run_id, stamp) in rows if stamps.get(run_id) == stamp}


class _Rows:
    """Rows of an index, and behind them those of files as they are added."""

    def __init__(self, columns: Columns, index: pa.Table | None) -> None:
        empty = pa.Table.from_batches([], schema(columns))  # `empty_table()` would import pandas
        self._whole = [empty if index is None else index.select(empty.column_names)]
        self._single: list[pa.Table] = []
        self._end = self._whole[0].num_rows

    def add(self, rows: pa.Table) -> range:
        """Add the rows of a file; return their places."""
        if len(self._single) == COMBINED:
            self._whole.append(pa.concat_tables(self._single).combine_chunks())
            self._single.clear()
        self._single.append(rows)
        self._end += rows.num_rows
        return range(self._end - rows.num_rows, self._end)

    def take(self, places: Sequence[int]) -> pa.Table:
        """Return the rows at these places, in this order."""
        return pa.concat_tables([*self._whole, *self._single]).combine_chunks().take(pa.array(places, pa.int64()))
