"""Files of TensorBoard and W&B: records with checksums, each a message of protobuf.

TensorBoard's records are those of TensorFlow (length, checksum, content, checksum), an `Event` each. W&B's are a log of
LevelDB, a `Record` of `wandb_internal.proto` each; the numbers below are those of the fields of its messages.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from lr_sweep.analysis.judge.limits import with_settings
from lr_sweep.analysis.judge.names import SETTING
from lr_sweep.analysis.judge.readers.labels import flat_settings
from lr_sweep.analysis.judge.table_file import TableFile, table_of_rows
from lr_sweep.common.files import Fields

EVENTS = "events.out.tfevents"
"""Part of the name of TensorBoard's files."""
WANDB = b":W&B"
"""First bytes of W&B's files."""
CUT = "{}: it ends within a record, which is left out"
BLOCK, HEADER = 32_768, 7
"""Bytes of a block of LevelDB's log, and of the header before each part of a record."""
FIRST, MIDDLE = 2, 3
"""Kinds of parts of a record that another part follows."""
FLOAT32 = 1
"""Number of single precision among TensorFlow's types."""
HISTORY, CONFIG, RUN, EXIT = 2, 5, 17, 18
"""Fields of a record of W&B."""
RUN_CONFIG, EXIT_CODE = 4, 1
ITEMS, NAME, PATH, JSON_VALUE = 1, 1, 2, 16
"""Field of the items of a history or of settings, and the fields of an item."""


def event_table(paths: Sequence[Path], contents: Sequence[bytes]) -> TableFile:
    """Return a row a step of the files of one run, with its hyperparameters; raises ValueError for a damaged file."""
    from tensorboardX.proto.event_pb2 import Event

    rows = defaultdict[int, Fields](Fields)
    settings = Fields()
    remarks = list[str]()
    for path, content in zip(paths, contents, strict=True):
        records, is_cut = tensorflow_records(content)
        remarks += [CUT.format(path.name)] * is_cut
        for event in map(Event.FromString, records):
            for value in event.summary.value:
                settings |= _hyperparameters(value.metadata.plugin_data)
                rows[event.step] |= _scalar(value)
    steps = [{"step": step, **row} for step, row in rows.items() if row]
    rows_with_settings = with_settings(paths[0], settings, steps or [{"step": None}])
    table = table_of_rows(paths[0], rows_with_settings, "events of TensorBoard")
    return replace(table, remarks=tuple(remarks), known={"step": "step"})


def _hyperparameters(data: Any) -> Fields:
    if data.plugin_name != "hparams":
        return {}
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    values = HParamsPluginData.FromString(data.content).session_start_info.hparams
    return {
        f"{SETTING}{name}": getattr(value, value.WhichOneof("kind") or "", "")
        for name, value in sorted(values.items())
    }


def _scalar(value: Any) -> Fields:
    """Return the number that was written, of as many digits as single precision has, by its tag; empty: no number."""
    numbers: Any
    if value.HasField("simple_value"):
        numbers = [value.simple_value]
    else:
        content = value.tensor.tensor_content if value.tensor.dtype == FLOAT32 else b""
        numbers = value.tensor.float_val or np.frombuffer(content, "<f4")
    return {value.tag: float(str(np.float32(numbers[0])))} if len(numbers) == 1 else {}


def tensorflow_records(content: bytes) -> tuple[list[bytes], bool]:
    """Return the whole records, and whether the file ends within one; raises ValueError for a wrong checksum."""
    from tensorboardX.record_writer import masked_crc32c

    records, at = list[bytes](), 0
    while (start := at + 12) <= len(content):
        length = content[at : at + 8]
        _check(masked_crc32c(length), content[at + 8 : start], at)
        end = start + int.from_bytes(length, "little")
        at = end + 4
        if at <= len(content):
            _check(masked_crc32c(content[start:end]), content[end:at], start)
            records.append(content[start:end])
    return records, at != len(content)


def _check(checksum: int, written: bytes, at: int) -> None:
    if checksum != int.from_bytes(written, "little"):
        raise ValueError(f"the checksum of the record at byte {at:,} is wrong")


def wandb_table(path: Path, content: bytes) -> TableFile:
    """Return the history of a run with its settings; raises ValueError for a damaged file."""
    of_run = {"run_id": path.stem, "state": "running"}
    rows = list[Fields]()
    records, is_cut = leveldb_records(content)
    for record in map(_message, records):
        configs = record[CONFIG]
        for run in record[RUN]:
            configs += _message(run)[RUN_CONFIG]
        for config in configs:
            of_run |= flat_settings(_items(config))
        rows += map(_items, record[HISTORY])
        for end in record[EXIT]:
            of_run["state"] = "failed" if any(_message(end)[EXIT_CODE]) else "finished"
    table = table_of_rows(path, with_settings(path, of_run, rows or [{}]), "a run of W&B")
    known = {"run": "run_id", "status": "state", "step": "_step"}
    return replace(table, remarks=(CUT.format(path.name),) * is_cut, known=known)


def _items(content: bytes) -> Fields:
    """Return items by their names, without what W&B measures itself, such as `_runtime`."""
    items = Fields()
    for item in map(_message, _message(content)[ITEMS]):
        values = item[JSON_VALUE]
        name = b".".join(item[NAME] + item[PATH]).decode()
        is_private = name.startswith("_") and name != "_step"
        if values and not is_private:
            items[name] = json.loads(values[-1])
    return items


def leveldb_records(content: bytes) -> tuple[list[bytes], bool]:
    """Return the whole records, and whether the file ends within one; raises ValueError for a wrong checksum."""
    records = list[bytes]()
    at, parts = HEADER, b""
    while at + HEADER <= len(content):
        left = BLOCK - at % BLOCK
        if left < HEADER:  # filled with zeros
            at += left
            continue
        kind = content[at + 6]
        length = int.from_bytes(content[at + 4 : at + 6], "little")
        start = at + HEADER
        end = start + length
        is_whole = end <= len(content)
        if is_whole or end - at > left:  # a part ends with its block
            _check(zlib.crc32(content[at + 6 : end]), content[at : at + 4], at)
        parts += content[start:end]
        if is_whole and kind not in (FIRST, MIDDLE):
            records.append(parts)
            parts = b""
        at = end
    return records, bool(parts) or at != len(content)


def _message(content: bytes) -> dict[int, list[Any]]:
    """Return the values of a message by the number of their field: whole numbers as they are, texts as bytes."""
    values = defaultdict[int, list[Any]](list)
    for field in UnknownFieldSet(Empty.FromString(content)):
        values[field.field_number].append(field.data)
    return values
