"""Runs of TensorBoard and W&B: files of records, each a message of protobuf, read without the libraries of either.

TensorBoard's records are those of TensorFlow (length, checksum, content, checksum), an `Event` each; W&B's are a log of
LevelDB, a `Record` of `wandb_internal.proto` each. The numbers below are those of the fields of these messages.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.table_file import MOST_BYTES
from lr_sweep.common.errors import UserError, reason, translated
from lr_sweep.common.files import Fields, read_plain

EVENTS = "events.out.tfevents"
"""Part of the name of TensorBoard's files."""
WANDB = b":W&B"
"""How W&B's files begin."""
HYPERPARAMETERS = b"hparams"
"""The plugin that writes hyperparameters into event files."""
BLOCK, HEADER = 32_768, 7
"""Bytes of a block of LevelDB's log, and of what stands before each part of a record."""
MIDDLE = (2, 3)
"""Kinds of parts of a record that another part follows."""
Message = dict[int, list[Any]]
"""Values by the number of their field: whole numbers as they are, all else as bytes."""


def event_rows(files: Sequence[Path]) -> list[Fields]:
    """Return a row a step of the files of one run, with its hyperparameters; raises UserError."""
    rows: dict[int, Fields] = {}
    settings: Fields = {}
    for file in files:
        with _damage_named(file):
            for event in _events(read_plain(file, MOST_BYTES)):
                step = next(iter(event[2]), 0)
                for value in (_message(value) for summary in event[5] for value in _message(summary)[1]):
                    if (content := _hyperparameters(value)) is not None:
                        settings |= _settings(content)
                    elif (number := _scalar(value)) is not None:
                        rows.setdefault(step, {"step": step})[value[1][0].decode()] = number
    return [settings | row for row in rows.values()]


def _events(content: bytes) -> Iterator[Message]:
    """Yield the events of a file; a record that is cut at its end, as of a run that was killed, is not read."""
    at = 0
    while at + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        if at + 16 + length > len(content):
            return
        yield _message(content[at + 12 : at + 12 + length])
        at += 16 + length


def _scalar(value: Message) -> float | None:
    if value[2]:
        return float(struct.unpack("<f", value[2][0])[0])
    tensor = _message(value[8][0]) if value[8] else Message()
    numbers = b"".join(tensor.get(5, []))
    has_shape = any(_message(shape)[2] for shape in tensor.get(2, []))
    return float(struct.unpack("<f", numbers)[0]) if len(numbers) == 4 and not has_shape else None


def _hyperparameters(value: Message) -> bytes | None:
    plugins = (_message(plugin) for metadata in value[9] for plugin in _message(metadata)[1])
    return next((plugin[2][0] for plugin in plugins if HYPERPARAMETERS in plugin[1] and plugin[2]), None)


def _settings(content: bytes) -> Fields:
    pairs = [_message(pair) for started in _message(content)[3] for pair in _message(started)[1]]
    return {f"hparams.{pair[1][0].decode()}": _setting(_message(pair[2][0])) for pair in pairs}


def _setting(value: Message) -> object:
    if value[2]:
        return struct.unpack("<d", value[2][0])[0]
    return bool(value[4][0]) if value[4] else value[3][0].decode() if value[3] else ""


def wandb_rows(path: Path) -> list[Fields]:
    """Return the history of a run with its settings; raises UserError."""
    settings: Fields = {}
    rows: list[Fields] = []
    status = "running"
    with _damage_named(path):
        for record in map(_message, _records(read_plain(path, MOST_BYTES))):
            for config in [*record[5], *(config for run in record[17] for config in _message(run)[4])]:
                settings |= {f"config.{name}": value for name, value in _items(config) if name[:1] != "_"}
            rows += [{n: v for n, v in _items(row) if n[:1] != "_" or n == "_step"} for row in record[2]]
            for ended in record[18]:
                status = "failed" if any(_message(ended)[1]) else "finished"
    return [{"run_id": path.stem, "state": status, **settings, **row} for row in rows or [{}]]


def _items(content: bytes) -> Iterator[tuple[str, object]]:
    """Yield the names and values of items: field 1 has the name, or 2 its parts, and 16 the value as JSON."""
    for item in map(_message, _message(content)[1]):
        if item[16]:
            yield ".".join(part.decode() for part in (*item[1], *item[2])), json.loads(item[16][-1])


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


def _message(content: bytes) -> Message:
    found = defaultdict[int, list[Any]](list)
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        if tag & 7 == 0:
            value, at = _varint(content, at)
            found[tag >> 3].append(value)
            continue
        length, at = _varint(content, at) if tag & 7 == 2 else (8 if tag & 7 == 1 else 4, at)
        found[tag >> 3].append(content[at : at + length])
        at += length
    return found


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 128:
            return value, at


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    with translated(
        (OSError, ValueError, IndexError, struct.error), lambda e: UserError(f"{path} is damaged ({reason(e)})")
    ):
        yield
