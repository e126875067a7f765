"""Runs as tools store them: Optuna, MLflow, Trackio, TensorBoard and W&B.

MLflow's runs have the last value of each metric. Its databases are read by SQL, whatever its version. The files of
TensorBoard and W&B have records, each a message of protobuf. TensorBoard's records are those of TensorFlow (length,
checksum, content, checksum), an `Event` each. W&B's are a log of LevelDB, a `Record` of `wandb_internal.proto` each;
the numbers below are those of the fields of its messages.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from lr_sweep.analysis.judge.limits import (
    BoundedDatabase,
    check_folder,
    files_below,
    read_bounded,
    with_settings,
)
from lr_sweep.analysis.judge.readers.labels import flat_settings
from lr_sweep.analysis.judge.readers.nested import yaml_content
from lr_sweep.analysis.judge.table_file import TableFile, damage_named, table_of_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.common.network import quiet_mlflow

TABLES = "write its runs as a CSV file, as of a database with views, or with very many rows"
OPTUNA, MLFLOW = "trials of Optuna", "runs of MLflow, the last value of each metric"
MOST_RUNS = 50_000  # that a server of MLflow gives at once
RUNS = """
    SELECT runs.run_uuid, runs.status, experiments.name FROM runs JOIN experiments USING (experiment_id)
    WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
    ORDER BY experiments.experiment_id, runs.start_time, runs.run_uuid
"""
CELLS = """
    SELECT run_uuid, 'params.' || key, value FROM params
    UNION ALL SELECT run_uuid, 'metrics.' || key, CASE WHEN is_nan THEN 'nan' ELSE value END FROM latest_metrics
"""
STATES = {
    1: "running",
    2: "scheduled",
    3: "finished",
    4: "failed",
    5: "killed",
}  # in the folders of MLflow
EVENTS = "events.out.tfevents"  # part of the name of TensorBoard's files
WANDB = b":W&B"  # how W&B's files begin
CUT = "{}: it ends within a record, which is left out"
BLOCK, HEADER = (
    32_768,
    7,
)  # bytes of a block of LevelDB's log, and of what stands before each part of a record
FIRST, MIDDLE = 2, 3  # kinds of parts of a record that another part follows


def read_database(path: Path, *, is_journal: bool) -> TableFile:
    """Read a database of Optuna, MLflow or Trackio, or a journal of Optuna; raises UserError.

    A copy is read, as libraries may write to what they open.
    """
    with (
        TemporaryDirectory(prefix="lr-sweep-") as folder,
        damage_named(path, copy := Path(folder) / "copy", TABLES),
    ):
        before = _states(path)
        check_folder(path, before)
        for file in before:
            shutil.copyfile(
                file, copy.with_name(file.name.replace(path.resolve().name, copy.name, 1))
            )
        if _states(path) != before:
            raise UserError(
                f"{path} changed while it was copied: read it once no program writes to it"
            )
        if is_journal:
            return _grouped(path, list(_trials(copy, is_journal=True)), "variant", OPTUNA)
        with closing(sqlite3.connect(copy, factory=BoundedDatabase)) as database:
            names = {
                name
                for (name,) in database.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            }
            if {"studies", "trials"} <= names:
                return _grouped(path, list(_trials(copy, is_journal=False)), "variant", OPTUNA)
            if {"metrics", "configs"} <= names:
                return table_of_rows(path, list(_trackio_rows(database)), "runs of Trackio")
            if {"experiments", "runs"} <= names:
                return _grouped(path, _mlflow_rows(database), "task", MLFLOW)
    raise UserError(
        f"{path} is a database of neither Optuna nor MLflow, nor of Trackio: write its runs as a CSV file"
    )


def _states(path: Path) -> dict[Path, tuple[int, int]]:
    """Return size and time of a file, and of the journals beside it in which SQLite has a database's last changes."""
    real = path.resolve()  # journals are beside the file that a link leads to
    found = {
        file: file.stat()
        for end in ("", "-wal", "-journal")
        if (file := Path(f"{real}{end}")).is_file()
    }
    return {file: (stat.st_size, stat.st_mtime_ns) for file, stat in found.items()}


def _trials(copy: Path, *, is_journal: bool) -> Iterator[Fields]:
    """Yield the trials of every study, which are variants."""
    import optuna

    optuna.logging.set_verbosity(logging.WARNING)
    backend = optuna.storages.journal.JournalFileBackend
    if is_journal:
        storage: Any = optuna.storages.JournalStorage(backend(str(copy)))
    else:
        bounded = {"connect_args": {"factory": BoundedDatabase}}
        storage = optuna.storages.RDBStorage(f"sqlite:///{copy}", bounded)
    for name in optuna.get_all_study_names(storage):
        study = optuna.load_study(study_name=name, storage=storage)
        if len(study.directions) > 1:
            raise UserError(
                f"the study {name} has several objectives: write a table with the one that counts"
            )
        for trial in study.trials:
            settings = {f"params_{key}": value for key, value in trial.params.items()}
            settings |= {f"user_attrs_{key}": value for key, value in trial.user_attrs.items()}
            row = {
                "number": trial.number,
                "value": trial.value,
                "state": trial.state.name,
                **settings,
            }
            yield row | {"direction": study.direction.name, "variant": name}


def _grouped(path: Path, rows: Sequence[Fields], group: str, reader: str) -> TableFile:
    """Return runs as a table; a column of studies or experiments is left out if there is one."""
    if (number := len({row[group] for row in rows})) > 1:
        return table_of_rows(path, rows, f"{reader}, {number} {group}s")
    return table_of_rows(
        path, [{name: row[name] for name in row if name != group} for row in rows], reader
    )


def _trackio_rows(database: sqlite3.Connection) -> Iterator[Fields]:
    history = "SELECT run_id, metrics.run_name, config, step, metrics FROM metrics LEFT JOIN configs USING (run_id)"
    for run, name, config, step, measured in database.execute(f"{history} ORDER BY metrics.id"):
        settings = flat_settings(json.loads(config or "{}"))
        yield {"run_id": run, "name": name, **settings, "step": step, **json.loads(measured)}


def read_mlflow_server(uri: str, named: str) -> TableFile:
    """Read the runs of all experiments; several experiments are tasks. Raises UserError.

    `named`: the address as reports and messages show it.
    """
    quiet_mlflow()
    with damage_named(
        named.rstrip("/"), uri.rstrip("/"), "start its server of MLflow, or download a table"
    ):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        names = {each.experiment_id: each.name for each in client.search_experiments()}
        found = client.search_runs(
            list(names), max_results=MOST_RUNS, order_by=["attributes.start_time"]
        )
    if found.token:
        raise UserError(
            f"{named} has more than {MOST_RUNS:,} runs: download a table of those that count"
        )
    runs = [(run.info, run.data) for run in found]
    rows = [
        _row(i.run_id, i.status, names[i.experiment_id], data.params, data.metrics)
        for i, data in runs
    ]
    name = named.removesuffix("?...").rstrip("/").rpartition("/")[2]
    return _grouped(Path(name or "mlflow"), rows, "task", MLFLOW)


def _mlflow_rows(database: sqlite3.Connection) -> list[Fields]:
    rows = {run: _row(run, status, task, {}, {}) for run, status, task in database.execute(RUNS)}
    for run, name, value in database.execute(CELLS):
        rows.get(run, {})[name] = value
    return list(rows.values())


def read_mlflow_folder(folder: Path, runs: Iterable[Path]) -> TableFile:
    """Read runs in MLflow's store of files: a file a parameter, and one a metric, a line a value; raises UserError."""
    rows = []
    with damage_named(folder):
        for run in runs:
            status = yaml_content(read_bounded(run / "meta.yaml").decode()).get("status")
            lines = {name: text.split("\n")[:-1] for name, text in _texts(run / "metrics").items()}
            last = {name: float(values[-1].split()[1]) for name, values in lines.items() if values}
            rows.append(
                _row(
                    run.name,
                    STATES.get(status, status),
                    run.parent.name,
                    _texts(run / "params"),
                    last,
                )
            )
    return _grouped(folder, rows, "task", MLFLOW)


def _texts(folder: Path) -> dict[str, str]:
    """Return the content of each file below a folder by its path."""
    files = [] if folder.is_symlink() else files_below(folder)[0]
    return {path.relative_to(folder).as_posix(): read_bounded(path).decode() for path in files}


def _row(run: str, status: object, task: str, params: ReadFields, metrics: ReadFields) -> Fields:
    settings = {f"params.{name}": value for name, value in params.items()}
    measured = {f"metrics.{name}": value for name, value in metrics.items()}
    return {"run_id": run, "status": status, "task": task, **settings, **measured}


def event_table(paths: Sequence[Path], contents: Sequence[bytes]) -> TableFile:
    """Return a row a step of the files of one run, with its hyperparameters; raises ValueError for a damaged file."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    rows, settings = dict[int, Fields](), Fields()
    logs = list(map(_events, contents))
    for event in map(Event.FromString, chain.from_iterable(log.records for log in logs)):
        for value in event.summary.value:
            plugin = value.metadata.plugin_data
            if plugin.plugin_name == "hparams":
                found = HParamsPluginData.FromString(plugin.content).session_start_info.hparams
                kinds = {name: found[name].WhichOneof("kind") for name in sorted(found)}
                settings |= {
                    f"hparams.{name}": getattr(found[name], kinds[name] or "", "") for name in kinds
                }
            elif (number := _scalar(value)) is not None:
                rows.setdefault(event.step, {"step": event.step})[value.tag] = number
    cut = [path.name for path, log in zip(paths, logs, strict=True) if log.is_cut]
    found = table_of_rows(
        paths[0], with_settings(paths[0], settings, [*rows.values()]), "events of TensorBoard"
    )
    return replace(found, remarks=tuple(map(CUT.format, cut)))


class _Log(NamedTuple):
    """The whole records of a file."""

    records: Sequence[bytes]
    is_cut: bool
    """Whether the file ends within a record."""


def _events(content: bytes) -> _Log:
    """Read the records of TensorFlow: a length, its checksum, the content, its checksum."""
    from tensorboardX.record_writer import masked_crc32c

    records, at = list[bytes](), 0
    while (start := at + 12) <= len(content):
        length = content[at : at + 8]
        _check(masked_crc32c(length), content[at + 8 : start], at)
        at = (end := start + int.from_bytes(length, "little")) + 4
        if at <= len(content):
            _check(masked_crc32c(content[start:end]), content[end:at], start)
            records.append(content[start:end])
    return _Log(records, at != len(content))


def _check(checksum: int, written: bytes, at: int) -> None:
    if checksum != int.from_bytes(written, "little"):
        raise ValueError(f"the checksum of the record at byte {at:,} is wrong")


def _scalar(value: Any) -> float | None:
    """Return the number that was written, of as many digits as single precision has; None: it is no number."""
    numbers: Sequence[float] = (
        [value.simple_value] if value.HasField("simple_value") else value.tensor.float_val
    )
    if (
        value.tensor.dtype == 1 and not value.tensor.tensor_shape.dim
    ):  # one number of single precision
        numbers = numbers or np.frombuffer(value.tensor.tensor_content, "<f4").tolist()
    return float(str(np.float32(numbers[0]))) if len(numbers) == 1 else None


def wandb_table(path: Path, content: bytes) -> TableFile:
    """Return the history of a run with its settings; raises ValueError for a damaged file."""
    settings, rows, status, log = Fields(), list[Fields](), "running", _records(content)
    for record in map(_message, log.records):
        for config in [
            *record[5],
            *(config for started in record[17] for config in _message(started)[4]),
        ]:
            settings |= flat_settings(dict(_items(config)))
        rows += [
            {n: v for n, v in _items(row) if n[:1] != "_" or n == "_step"} for row in record[2]
        ]
        for ended in record[18]:
            status = "failed" if any(_message(ended)[1]) else "finished"
    above = {"run_id": path.stem, "state": status, **settings}
    found = table_of_rows(path, with_settings(path, above, rows or [{}]), "a run of W&B")
    return replace(found, remarks=(CUT.format(path.name),) * log.is_cut)


def _items(content: bytes) -> Iterator[tuple[str, object]]:
    """Yield the names and values of items: field 1 has the name, or 2 its parts, and 16 the value as JSON."""
    for item in map(_message, _message(content)[1]):
        if item[16]:
            yield ".".join(part.decode() for part in (*item[1], *item[2])), json.loads(item[16][-1])


def _records(content: bytes) -> _Log:
    """Read the records of a log of LevelDB; each part of a record has a checksum of its kind and content."""
    records, at, parts = list[bytes](), HEADER, bytearray()
    while at + HEADER <= len(content):
        if (left := BLOCK - at % BLOCK) < HEADER:  # filled with zeros
            at += left
            continue
        start, length, kind = (
            at + HEADER,
            int.from_bytes(content[at + 4 : at + 6], "little"),
            content[at + 6],
        )
        end = start + length
        if end <= len(content) or HEADER + length > left:  # a part ends with its block
            _check(zlib.crc32(content[at + 6 : end]), content[at : at + 4], at)
        parts += content[start:end]
        if kind not in (FIRST, MIDDLE) and end <= len(content):
            records.append(bytes(parts))
            parts.clear()
        at = end
    return _Log(records, bool(parts) or at != len(content))


def _message(content: bytes) -> dict[int, list[Any]]:
    """Return the values of a message by the number of their field: whole numbers as they are, texts as bytes."""
    found = defaultdict[int, list[Any]](list)
    for each in UnknownFieldSet(Empty.FromString(content)):
        found[each.field_number].append(each.data)
    return found
