"""Event files of TensorBoard: scalars by step and hyperparameters, a run a folder.

A file is records of length, checksum, content and checksum (TensorFlow's `tfrecord`); the content is an `Event` of
`event.proto`, which tensorboardX brings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.readers.from_rows import table_of_rows, with_labels
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile
from lr_sweep.common.errors import UserError, reason, translated
from lr_sweep.common.files import read_plain

EVENTS = "events.out.tfevents"
HYPERPARAMETERS = "hparams"
"""The plugin that writes them."""


def is_events(path: Path) -> bool:
    """Return whether a file is one of events."""
    return EVENTS in path.name and path.is_file()


def read_tensorboard(source: Path) -> TableFile | None:
    """Read a file, or every run below a folder; None: there are no events. Raises UserError."""
    if source.is_file():
        return table_of_rows(source, with_labels([(source.parent.name, _rows([source]))]), "events of TensorBoard")
    files = sorted(source.rglob(f"*{EVENTS}*"), key=lambda path: (len(path.parts), path))
    runs: dict[Path, list[Path]] = {}
    for file in files:
        # `add_hparams` writes into a folder of its own, below that of the run.
        above = (run for run in runs if run in file.parents and run != source)
        runs.setdefault(next(above, file.parent), []).append(file)
    named = [(str(run.relative_to(source)), _rows(found)) for run, found in runs.items()]
    return table_of_rows(source, with_labels(named), "events of TensorBoard") if files else None


def scalars(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of one run, whose files may be in folders below; raises UserError."""
    return _rows(sorted(folder.rglob(f"*{EVENTS}*")))


def _rows(files: list[Path]) -> list[dict[str, Any]]:
    """Return a row a step with the scalars of a run there, and its hyperparameters."""
    rows: dict[int, dict[str, Any]] = {}
    settings: dict[str, Any] = {}
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


def _settings(path: Path, content: bytes) -> dict[str, Any]:
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
