"""Files of TensorBoard: records of TensorFlow (length, checksum, content, checksum), an `Event` each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lr_sweep.analysis.judge.names import SETTING
from lr_sweep.analysis.judge.table_file import TableFile, table_of_rows
from lr_sweep.common.files import Fields

EVENTS = "events.out.tfevents"
"""Part of the name of TensorBoard's files."""
FLOAT32 = 1
"""Number of single precision among TensorFlow's types."""


def event_table(paths: Sequence[Path], contents: Sequence[bytes]) -> TableFile:
    """Return a row a step of the files of one run, with its hyperparameters; raises ValueError for a damaged file."""
    from tensorboardX.proto.event_pb2 import Event

    rows = defaultdict[int, Fields](Fields)
    settings = Fields()
    for content in contents:
        for event in map(Event.FromString, whole_records(content)):
            for value in event.summary.value:
                settings |= _hyperparameters(value.metadata.plugin_data)
                rows[event.step] |= _scalar(value)
    steps = [{"step": step, **row} for step, row in rows.items() if row] or [{"step": None}]
    return table_of_rows(paths[0], steps).beside(settings)


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


def whole_records(content: bytes) -> Iterator[bytes]:
    """Yield the records up to the one within which a file may end; raises ValueError for a wrong checksum."""
    from tensorboardX.record_writer import masked_crc32c

    start = 0
    while (begin := start + 12) <= len(content):
        length = content[start : start + 8]
        end = begin + int.from_bytes(length, "little")
        checksums = [(length, content[start + 8 : begin])]
        if end + 4 <= len(content):
            checksums.append((content[begin:end], content[end : end + 4]))
        for checked, written in checksums:
            if masked_crc32c(checked) != int.from_bytes(written, "little"):
                raise ValueError(f"the checksum of the record at byte {start:,} is wrong")
        if end + 4 <= len(content):
            yield content[begin:end]
        start = end + 4
