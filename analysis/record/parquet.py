"""Parquet files of the record: written with a checksum of themselves, read and checked, one at a time or very many."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lr_sweep.analysis.record.access import RecordError, UnreadableError, unreadable
from lr_sweep.analysis.record.columns import Columns, schema
from lr_sweep.analysis.record.paths import Paths
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
    """Return a file with the digest of itself in the place for it."""
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
    """Return how many bytes a column takes, each value written out."""
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
