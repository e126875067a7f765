"""Runs of TensorBoard and W&B: files of records, each a message of protobuf.

TensorBoard's records are those of TensorFlow (length, checksum, content, checksum), an `Event` each. W&B's are a log of
LevelDB, a `Record` of `wandb_internal.proto` each; the numbers below are those of the fields of its messages.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from lr_sweep.analysis.judge.readers.labels import flat_settings
from lr_sweep.common.files import Fields

EVENTS = "events.out.tfevents"  # part of the name of TensorBoard's files
WANDB = b":W&B"  # how W&B's files begin
BLOCK, HEADER = 32_768, 7  # bytes of a block of LevelDB's log, and of what stands before each part of a record


def event_rows(contents: Sequence[bytes]) -> list[Fields]:
    """Return a row a step of the files of one run, with its hyperparameters."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    rows: dict[int, Fields] = {}
    settings: Fields = {}
    for event in map(Event.FromString, chain.from_iterable(map(_events, contents))):
        for value in event.summary.value:
            plugin = value.metadata.plugin_data
            if plugin.plugin_name == "hparams":
                found = HParamsPluginData.FromString(plugin.content).session_start_info.hparams
                kinds = {name: found[name].WhichOneof("kind") for name in sorted(found)}
                settings |= {f"hparams.{name}": getattr(found[name], kinds[name] or "", "") for name in kinds}
            elif (number := _scalar(value)) is not None:
                rows.setdefault(event.step, {"step": event.step})[value.tag] = number
    return [settings | row for row in rows.values()]


def _events(content: bytes) -> Iterator[bytes]:
    """Yield the records of a file; one that is cut at its end, as of a run that was killed, is left out."""
    at = 0
    while at + 12 <= len(content):
        start, at = at + 12, at + 16 + int.from_bytes(content[at : at + 8], "little")
        if at <= len(content):
            yield content[start : at - 4]


def _scalar(value: Any) -> float | None:
    """Return the number that was written, of as many digits as single precision has; None: it is no number."""
    numbers: Sequence[float] = [value.simple_value] if value.HasField("simple_value") else value.tensor.float_val
    if value.tensor.dtype == 1 and not value.tensor.tensor_shape.dim:  # one number of single precision
        numbers = numbers or np.frombuffer(value.tensor.tensor_content, "<f4").tolist()
    return float(str(np.float32(numbers[0]))) if len(numbers) == 1 else None


def wandb_rows(run: str, content: bytes) -> list[Fields]:
    """Return the history of a run with its settings."""
    settings: Fields = {}
    rows: list[Fields] = []
    status = "running"
    for record in map(_message, _records(content)):
        for config in [*record[5], *(config for started in record[17] for config in _message(started)[4])]:
            settings |= flat_settings(dict(_items(config)))
        rows += [{n: v for n, v in _items(row) if n[:1] != "_" or n == "_step"} for row in record[2]]
        for ended in record[18]:
            status = "failed" if any(_message(ended)[1]) else "finished"
    return [{"run_id": run, "state": status, **settings, **row} for row in rows or [{}]]


def _items(content: bytes) -> Iterator[tuple[str, object]]:
    """Yield the names and values of items: field 1 has the name, or 2 its parts, and 16 the value as JSON."""
    for item in map(_message, _message(content)[1]):
        if item[16]:
            yield ".".join(part.decode() for part in (*item[1], *item[2])), json.loads(item[16][-1])


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a log, without their checksums; a last one that is cut is left out."""
    at, whole = HEADER, b""
    while at + HEADER <= len(content):
        if (left := BLOCK - at % BLOCK) < HEADER:  # filled with zeros
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        whole += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind not in (2, 3):  # another part follows these
            if at <= len(content) and whole:
                yield whole
            whole = b""


def _message(content: bytes) -> dict[int, list[Any]]:
    """Return the values of a message by the number of their field: whole numbers as they are, texts as bytes."""
    found = defaultdict[int, list[Any]](list)
    for each in UnknownFieldSet(Empty.FromString(content)):
        found[each.field_number].append(each.data)
    return found
