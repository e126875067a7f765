"""Runs that W&B keeps on the machine: `run-ID.wandb`, a log of LevelDB with a message of protobuf in each record.

Read here without wandb: the messages are `Record` of `wandb_internal.proto`, of which the fields below are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from lr_sweep.analysis.judge.table_file import MOST_BYTES
from lr_sweep.common.files import Fields, read_plain

MAGIC = b":W&B"
BLOCK, HEADER = 32_768, 7
HISTORY, CONFIG, RUN, EXIT = 2, 5, 17, 18
"""Fields of `Record`."""
MIDDLE = (2, 3)
"""Kinds of parts of a record that another part follows."""


def wandb_rows(path: Path) -> list[Fields]:
    """Return the history of a run with its settings; raises OSError, ValueError or IndexError."""
    settings: Fields = {}
    rows: list[Fields] = []
    status = "running"
    for record in _records(read_plain(path, MOST_BYTES)):
        for kind, content in _fields(record):
            if kind in (CONFIG, RUN) and isinstance(content, bytes):
                configs = [content] if kind == CONFIG else [each for name, each in _fields(content) if name == 4]
                for config in configs:
                    settings |= {f"config.{name}": value for name, value in _items(config) if name[:1] != "_"}
            elif kind == HISTORY and isinstance(content, bytes):
                rows.append({name: value for name, value in _items(content) if name in ("_step",) or name[:1] != "_"})
            elif kind == EXIT and isinstance(content, bytes):
                status = "failed" if dict(_fields(content)).get(1) else "finished"
    return [{"run_id": path.stem, "state": status, **settings, **row} for row in rows or [{}]]


def _items(content: bytes | int) -> Iterator[tuple[str, object]]:
    """Yield the names and values of items: field 1 has the name, or 2 its parts, and 16 the value as JSON."""
    for number, item in _fields(content):
        if number == 1 and isinstance(item, bytes):
            parts = list(_fields(item))
            name = ".".join(part.decode() for key, part in parts if key in (1, 2) and isinstance(part, bytes))
            value = dict(parts).get(16)
            if isinstance(value, bytes):
                yield name, json.loads(value)


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a log, without their checksums; a last one that is cut is left out."""
    at, whole = HEADER, b""
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:  # filled with zeros
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        whole += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind not in MIDDLE:
            if at <= len(content) and whole:
                yield whole
            whole = b""


def _fields(content: bytes | int) -> Iterator[tuple[int, bytes | int]]:
    """Yield the fields of a message of protobuf: whole numbers as they are, all else as bytes."""
    at = 0
    while isinstance(content, bytes) and at < len(content):
        tag, at = _varint(content, at)
        if tag & 7 == 0:
            value, at = _varint(content, at)
            yield tag >> 3, value
            continue
        length, at = _varint(content, at) if tag & 7 == 2 else (8 if tag & 7 == 1 else 4, at)
        yield tag >> 3, content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 128:
            return value, at
