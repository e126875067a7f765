"""Events of TensorBoard: records of length, checksum, content and checksum (TensorFlow's `tfrecord`).

The content is an `Event` of `event.proto`, which tensorboardX brings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.table_file import MOST_BYTES
from lr_sweep.common.errors import UserError, reason, translated
from lr_sweep.common.files import Fields, read_plain

EVENTS = "events.out.tfevents"
HYPERPARAMETERS = "hparams"
"""The plugin that writes hyperparameters into event files."""


def event_rows(files: Sequence[Path]) -> list[Fields]:
    """Return a row a step of the files of one run, with its hyperparameters; raises UserError."""
    rows: dict[int, Fields] = {}
    settings: Fields = {}
    for file in files:
        for event in _events(file):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == HYPERPARAMETERS:
                    settings |= _settings(file, value.metadata.plugin_data.content)
                elif (number := _scalar(value)) is not None:
                    rows.setdefault(event.step, {"step": event.step})[value.tag] = number
    return [settings | row for row in rows.values()]


def _scalar(value: Any) -> float | None:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind == "tensor" and not value.tensor.tensor_shape.dim and len(value.tensor.float_val) == 1:
        return float(value.tensor.float_val[0])
    return None


def _settings(path: Path, content: bytes) -> Fields:
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    with translated((Exception,), partial(_damaged, path)):
        started = HParamsPluginData.FromString(content).session_start_info.hparams
    return {
        f"hparams.{name}": getattr(value, value.WhichOneof("kind") or "string_value") for name, value in started.items()
    }


def _events(path: Path) -> Iterator[Any]:
    """Yield the events of a file; a record that is cut at its end, as of a run that was killed, is not read."""
    try:
        from tensorboardX.proto.event_pb2 import Event
    except ImportError as error:
        raise UserError(
            f"{path} is of TensorBoard: `pip install tensorboardX` to read it, or download the scalars as CSV"
        ) from error
    try:
        content, at = read_plain(path, MOST_BYTES), 0
        while at + 12 <= len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            if at + 16 + length > len(content):
                return
            yield Event.FromString(content[at + 12 : at + 12 + length])
            at += 16 + length
    except (OSError, ValueError, struct.error) as error:
        raise UserError(f"{path} cannot be read as events of TensorBoard ({reason(error)})") from error
    except Exception as error:  # of protobuf, whose class is not everywhere the same
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged ({reason(error)})")
