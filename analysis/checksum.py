"""A sha256 of the whole file inside every Parquet file of the record.

Parquet's own page checksums leave out page headers and the footer, where one wrong bit can change a number unseen.
"""

from __future__ import annotations

import hashlib
import io

import pyarrow as pa
import pyarrow.parquet as pq

_MARK = b"lr-sweep file sha256: "
_BLANK = b"0" * 64
"""Stands where the digest goes, while the file is hashed."""


def parquet_bytes(content: pa.Table, compression: str = "snappy") -> bytes:
    """Return a Parquet file with a checksum of itself in its key-value metadata, which other readers pass over."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, content.schema, compression=compression, write_page_checksum=True) as writer:
        writer.write_table(content)
        writer.add_key_value_metadata({"checksum": _MARK + _BLANK})
    blank = sink.getvalue()
    return _with_digest(blank, hashlib.sha256(blank).hexdigest().encode())


def is_intact(content: bytes) -> bool:
    """Tell whether a file is as it was written; True for one without a checksum, of an earlier version."""
    if _MARK not in content:
        return True
    blank = _with_digest(content, _BLANK)
    return content == _with_digest(blank, hashlib.sha256(blank).hexdigest().encode())


def _with_digest(content: bytes, digest: bytes) -> bytes:
    start = content.rfind(_MARK) + len(_MARK)  # the last: the footer comes behind any text of the table
    return content[:start] + digest + content[start + len(_BLANK) :]
