"""`index.parquet`: the rows of `runs/` once more, in one file, so that very many are read at once.

The small files are the truth. A row of the index counts for as long as its file has the stamp that the row was taken
under; what has another stamp, or none, is read from its file. An index that cannot be read is as good as none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from lr_sweep.analysis.record.access import unreadable
from lr_sweep.analysis.record.columns import RUNS, Column, Columns, schema
from lr_sweep.analysis.record.parquet import RecordError, UnreadableError, read_each, read_table
from lr_sweep.analysis.record.paths import Paths

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
