"""Sources of tables: a file, standard input, an address, several files by a pattern, or a folder of another tool.

Folders are of Hydra, Ray Tune, Lightning's CSVLogger or TensorBoard. Their readers return None for a folder without
runs of their tool, and raise UserError for what cannot be read. An event file of TensorBoard is records of length,
checksum, content and checksum (TensorFlow's `tfrecord`); the content is an `Event` of `event.proto`, which tensorboardX
brings.
"""

from __future__ import annotations

import glob
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lr_sweep.analysis.judge.names import ROLES, is_rate, plain, words
from lr_sweep.analysis.judge.readers.databases import (
    SQLITE,
    is_journal,
    read_database,
    read_journal,
    read_mlflow_server,
)
from lr_sweep.analysis.judge.readers.tables import (
    flattened,
    labels_of,
    read_json,
    read_json_file,
    table_of_rows,
    with_labels,
    without_chart,
)
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile, read_table_file, table_of
from lr_sweep.common.errors import UserError, reason, translated
from lr_sweep.common.files import Fields, as_version_1_2, open_plain, read_plain
from lr_sweep.common.network import shown_uri

STDIN = "-"
HYDRA_CONFIG = ".hydra/config.yaml"
HYDRA_METRICS = (".csv", ".jsonl", ".ndjson", ".json")
"""Endings of files of metrics; those with the first ending that is there are read."""
RAY_RESULTS, RAY_SETTINGS, RAY_ERROR = "result.json", "params.json", "error.txt"
RAY_LEFT_OUT = words(
    """config hostname node_ip pid date timestamp done experiment_tag checkpoint_dir_name time_this_iter_s
    time_since_restore iterations_since_restore should_checkpoint"""
)
"""Keys that Ray adds to a report, besides the total time."""
LIGHTNING_METRICS, LIGHTNING_SETTINGS = "metrics.csv", "hparams.yaml"
EVENTS = "events.out.tfevents"
HYPERPARAMETERS = "hparams"
"""The plugin that writes hyperparameters into event files."""


def read_sources(sources: Sequence[str | Path]) -> list[TableFile]:
    """Read every source; raises UserError with what is wrong with the first that cannot be read."""
    tables = [_read(each) for source in sources for each in expanded(str(source))]
    return tables if len(tables) == 1 else [_with_name(table) for table in tables]


def _with_name(table: TableFile) -> TableFile:
    """Add the settings in a file's name, as `lr=0.1,seed=1.csv`, to a table without learning rates."""
    labels = labels_of(table.path.stem)
    if any(map(is_rate, table.columns)) or not any(map(is_rate, labels)):
        return table
    columns = {f"config.{name}": [value] * len(table.lines) for name, value in labels.items()}
    return replace(table, columns=columns | table.columns)


def expanded(source: str) -> list[str]:
    """Return the files that a pattern names, as a shell would."""
    if not glob.has_magic(source) or source == STDIN or Path(source).exists():
        return [source]
    if found := sorted(glob.glob(source, recursive=True)):  # noqa: PTH207 - pathlib's takes no whole path
        return found
    raise UserError(f"no file fits {source}: name a table, or a folder")


def _read(source: str) -> TableFile:
    if source == STDIN:
        return _read_stdin()
    if source.startswith(("http://", "https://")):
        return read_mlflow_server(source, shown_uri(source))
    path = Path(source.removeprefix("sqlite:///"))
    if path.is_dir():
        return _read_folder(path)
    if EVENTS in path.name and path.is_file() and (found := _read_tensorboard(path)):
        return found
    head = _head(path)
    if head == SQLITE:
        return read_database(path)
    if head.lstrip()[:1] in (b"{", b"["):
        return read_journal(path) if is_journal(path) else read_json_file(path)
    return without_chart(read_table_file(path))


def _head(path: Path) -> bytes:
    """Return how a file begins; nothing where it cannot be read, which its reader says."""
    try:
        with open_plain(path) as file:
            return file.read(len(SQLITE))
    except OSError:
        return b""


def _read_stdin() -> TableFile:
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(f"standard input has more than {MOST_BYTES:,} bytes: write a file with fewer columns")
    path = Path("stdin")
    if content.lstrip()[:1] in (b"{", b"["):
        return read_json(path, content)
    return without_chart(table_of(path, content))


def _read_folder(path: Path) -> TableFile:
    try:
        for read in (_read_hydra, _read_ray_tune, _read_lightning, _read_tensorboard):
            if found := read(path):
                return found
        if (path / "mlflow.db").is_file():
            return read_database(path / "mlflow.db")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({reason(error)})") from error
    what = "it is a folder, and none of Ray Tune, Hydra, Lightning or TensorBoard"
    raise UserError(f"{path} cannot be read ({what}): name a table, such as a CSV file")


def _read_hydra(folder: Path) -> TableFile | None:
    """Read every job below a folder, with its seed and the settings that any job overrode."""
    if not (jobs := sorted(path.parent.parent for path in folder.rglob(HYDRA_CONFIG))):
        return None
    configs = [flattened(yaml_mapping(job / HYDRA_CONFIG)) for job in jobs]
    values = {name: {str(config.get(name)) for config in configs} for config in configs for name in config}
    varied = [name for name in values if len(values[name]) > 1 or plain(name) in ROLES["seed"]]
    varied = varied if any(len(values[name]) > 1 for name in varied) else list(values)
    rows: list[Fields] = []
    for job, config in zip(jobs, configs, strict=True):
        settings = {f"config.{name}": config.get(name) for name in varied}
        rows += [{"run": str(job.relative_to(folder)), **row, **settings} for row in _measured_by(job)]
    return table_of_rows(folder, rows, "jobs of Hydra")


def _measured_by(job: Path) -> list[Fields]:
    if events := _rows(sorted(job.rglob(f"*{EVENTS}*"))):
        return events
    files = sorted(path for path in job.rglob("*") if path.suffix in HYDRA_METRICS and ".hydra" not in path.parts)
    for end in HYDRA_METRICS:
        if found := [path for path in files if path.suffix == end]:
            if len(found) > 1:
                raise UserError(f"{job} has several {end} files, {found[0].name} and {found[1].name}: leave one")
            return (read_table_file if end == ".csv" else read_json_file)(found[0]).rows
    return [{"status": "failed"}]


def _read_ray_tune(folder: Path) -> TableFile | None:
    trials = [path.parent for path in sorted(folder.rglob(RAY_SETTINGS)) if (path.parent / RAY_RESULTS).exists()]
    rows = [row for trial in trials for row in _reports(trial)]
    return table_of_rows(folder, rows, "folders of Ray Tune") if trials else None


def _reports(trial: Path) -> Iterator[Fields]:
    settings = flattened(_object(trial / RAY_SETTINGS, _text(trial / RAY_SETTINGS)), "config/", "/")
    state = "ERROR" if (trial / RAY_ERROR).exists() else "TERMINATED"
    lines = _text(trial / RAY_RESULTS).split("\n")
    reports = [_object(trial / RAY_RESULTS, line) for line in lines if line.strip()]
    for report in reports or [{}]:
        kept = {name: value for name, value in report.items() if name not in RAY_LEFT_OUT}
        yield {**settings, **flattened(kept, mark="/"), "trial_id": trial.name, "state": state}


def _object(path: Path, text: str) -> Fields:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: a line is no JSON ({reason(error)}): was it cut? Remove the line") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: got {text[:60]!r}, want an object")
    return found


def _read_lightning(folder: Path) -> TableFile | None:
    paths = sorted(folder.rglob(LIGHTNING_METRICS))
    if not any((path.parent / LIGHTNING_SETTINGS).exists() for path in paths):
        return None
    runs = []
    for path in paths:
        settings = flattened(yaml_mapping(path.parent / LIGHTNING_SETTINGS), "hparams.")
        runs.append((str(path.parent.relative_to(folder)), [settings | row for row in read_table_file(path).rows]))
    return table_of_rows(folder, with_labels(runs), "folders of Lightning's CSVLogger")


def yaml_mapping(path: Path) -> Fields:
    """Read a mapping in YAML, whatever its tags: nothing is made of them; raises UserError."""
    if not path.exists():
        return {}
    try:
        found = YAML().load(as_version_1_2(_text(path)))
    except (ValueError, RecursionError, YAMLError) as error:  # ValueError: of a date that no calendar has
        raise UserError(f"{path} cannot be read ({reason(error)})") from error
    return dict(found) if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    try:
        return read_plain(path, MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)})") from error


def _read_tensorboard(source: Path) -> TableFile | None:
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


def _rows(files: list[Path]) -> list[Fields]:
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
