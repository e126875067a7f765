"""Parquet files of the record: written with a checksum of themselves, read and checked, one at a time or very many."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lr_sweep.common.errors import reason
from lr_sweep.common.files import read_plain

from .columns import SPLITS, Columns, schema
from .paths import Paths, RecordError, UnreadableError, unreadable

FORMAT = 2
"""Raised when an older reader would misread a newer record. Directories of format 1 are read, too."""
FORMAT_1_NAMES = {f"{split}_accuracy": split for split in SPLITS}
"""Columns of curves by their names in format 1, which called any metric an accuracy."""
READ_THREADS = 8
"""Files read at once; small files on a network drive are bound by latency, not by the CPU."""
MAX_BYTES = 64_000_000
"""The largest file that is read."""
MAX_ROWS = 100_000
"""Rows of the largest table that is read. A study has at most as many runs, and a run far fewer evaluations."""
READ_AHEAD = 1000
"""Files whose content is held at a time."""
_MARK = b"lr-sweep file sha256: "
_BLANK = b"0" * 64
"""Stands where the digest goes, while the file is hashed."""


def parquet_bytes(content: pa.Table) -> bytes:
    """Return a Parquet file with a sha256 of the whole file in its key-value metadata, which other readers pass over.

    Parquet's own page checksums leave out page headers and the footer, where one wrong bit can change a number unseen.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, content.schema, write_page_checksum=True) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata({"checksum": _MARK + _BLANK})
    return _with_digest(sink.getvalue())


def _with_digest(content: bytes) -> bytes:
    start = content.rfind(_MARK) + len(
        _MARK
    )  # the last: the footer comes behind any text of the table
    before, after = content[:start], content[start + len(_BLANK) :]
    return before + hashlib.sha256(before + _BLANK + after).hexdigest().encode() + after


def read_each(
    folder: Path, run_ids: Iterable[str] | None, columns: Columns
) -> Iterator[tuple[str, pa.Table]]:
    """Yield runs with the content of their files, if they have one; None: all, by name. Raises RecordError."""
    if run_ids is None:
        run_ids = sorted(path.stem for path in folder.glob("[!.]*.parquet"))
    every = [folder / f"{run_id}.parquet" for run_id in dict.fromkeys(run_ids)]
    wanted = schema(columns)
    with ThreadPoolExecutor(READ_THREADS) as pool:
        for start in range(0, len(every), READ_AHEAD):
            paths = every[start : start + READ_AHEAD]
            # Threads fetch bytes and no more: decoding holds Python's lock, and is slower in many threads than in one.
            for path, content in zip(paths, pool.map(_read_bytes, paths), strict=True):
                if content is not None:
                    yield path.stem, _decode(path, content, columns, wanted)


def read_table(path: Path, columns: Columns) -> pa.Table | None:
    """Read one file; None if there is none. Raises RecordError if it is damaged, or has more than `MAX_ROWS`."""
    content = _read_bytes(path)
    return None if content is None else _decode(path, content, columns, schema(columns))


def _read_bytes(path: Path) -> bytes | None:
    try:
        return read_plain(path, MAX_BYTES, through_link=False)
    except FileNotFoundError:
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


def _decode(path: Path, content: bytes, columns: Columns, wanted: pa.Schema) -> pa.Table:
    """Check a file's content, and return its columns by `wanted`, the schema of `columns`."""
    # An earlier version wrote files without a checksum.
    if _MARK in content and content != _with_digest(content):
        raise damaged(path, ValueError("its checksum is not that of its content"))
    try:
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
            num_rows = file.metadata.num_rows
            if num_rows > MAX_ROWS:
                raise ValueError(f"it has {num_rows:,} rows, want at most {MAX_ROWS:,}")
            values = _read(file, wanted.names)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from error
    for column in columns:
        if column.later and column.name not in values:
            values[column.name] = pa.nulls(num_rows, column.type)
    types = {name: array.type for name, array in values.items()}
    if wrong := [c for c in columns if types.get(c.name) != c.type]:
        texts = [f"{c.name}: got {types.get(c.name, 'no column')}, want {c.type}" for c in wrong]
        raise RecordError(
            f"{path} is not of format {FORMAT} ({'; '.join(texts)}): delete it and run the study again"
        )
    return pa.Table.from_arrays([values[name] for name in wanted.names], schema=wanted)


def _read(file: pq.ParquetFile, names: Sequence[str]) -> dict[str, pa.ChunkedArray | pa.Array]:
    """Read those of some columns that a file has, by their names of today."""
    earlier = [old for old, name in FORMAT_1_NAMES.items() if name in names]
    content = file.read([*names, *earlier], use_threads=False)
    content.validate(full=True)
    names_today = [FORMAT_1_NAMES.get(name, name) for name in content.column_names]
    return dict(zip(names_today, content.columns, strict=True))


def rows_of(results: Path, run_ids: Iterable[str] | None, columns: Columns) -> pa.Table:
    """Return some columns of rows in the order of the ids; None: of all. Raises RecordError if one is damaged."""
    empty = pa.Table.from_batches([], schema(columns))  # `empty_table()` would import pandas
    return pa.concat_tables(
        [empty, *(rows for _, rows in read_each(Paths(results).runs, run_ids, columns))]
    )
