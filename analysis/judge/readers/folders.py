"""Folders of runs, of any tool: each run has a file of results, and its settings in a file beside it or in its name."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lr_sweep.analysis.judge.names import METRIC_NAMES, ROLES, VALUES, is_metric, is_rate, plain, split_of, words
from lr_sweep.analysis.judge.readers.events import EVENTS, event_rows
from lr_sweep.analysis.judge.readers.labels import flattened, labels_by_place, labels_of
from lr_sweep.analysis.judge.readers.tables import table_of_rows
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile, joined
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import Fields, as_version_1_2, read_plain
from lr_sweep.common.text import counted

HIDDEN = ".hydra"
"""The folder of a job's settings."""
TOOLS = {
    HIDDEN: "jobs of Hydra",
    "result.json": "folders of Ray Tune",
    "progress.csv": "folders of Ray Tune, or of another tool",
    "trial.json": "trials of Keras Tuner",
    "trainer_state.json": "states of a Trainer of Transformers",
    "hparams.yaml": "folders of Lightning's CSVLogger",
    EVENTS: "events of TensorBoard",
    ".wandb": "runs of W&B",
}
"""Tools, by the names of the files and folders that they write."""
SETTINGS = words(
    "params.json config.yaml config.yml config.json hparams.yaml args.yaml args.json hyperparameters.yaml flags.json"
)
"""Files of what a run was started with."""
RESULTS = words("result.json progress.csv trial.json trainer_state.json metrics.csv results.csv summary.csv")
"""Files of results, before those with the endings below."""
ENDINGS = words(".db .wandb .csv .tsv .jsonl .ndjson .json .parquet .xlsx .log .out .txt")
RAY_ERROR, ENDED = "error.txt", "state"
CHECKPOINT = "checkpoint-"
"""How Transformers names the folders of a run's states: the last one has the others' histories."""
MOST_FILES = 20_000


def read_folder(folder: Path, read_file: Callable[[Path], TableFile]) -> TableFile:
    """Read every run below a folder; raises UserError.

    A file whose rows have several learning rates is a part of a table, and no run.
    """
    files = _last_states(sorted(path for path in folder.rglob("*") if path.is_file())[:MOST_FILES])
    if stores := [path.parent for path in files if path.name == "meta.yaml" and (path.parent / "metrics").is_dir()]:
        rows = [_mlflow_run(path) for path in stores]
        several = len({row["task"] for row in rows}) > 1
        rows = [row if several else {name: row[name] for name in row if name != "task"} for row in rows]
        return table_of_rows(folder, rows, "runs of MLflow, the last value of each metric")
    runs = _runs(folder, files)
    parts = [part for home in runs for part in _parts(folder, home, runs[home], read_file)]
    tool = _tool(files)
    if placed := _by_place(parts):
        parts, tool = placed, f"{tool}, the settings by their places in the paths"
    if not any(_measures(part) for part in parts):
        tools = "none of Ray Tune, Hydra, Lightning, TensorBoard, W&B or MLflow, nor tables or logs"
        raise UserError(f"{folder} cannot be read (it is a folder, and {tools}): name a table, such as a CSV file")
    if any(ENDED in part.columns and len(set(part.columns[ENDED])) == 1 for part in parts):
        parts = [part if ENDED in part.columns else _ended(part) for part in parts]
    hashes = hashlib.sha256("".join(part.sha256 for part in parts).encode()).hexdigest()
    return replace(joined(parts), path=folder, sha256=hashes, reader=tool, unfinished=False)


def _by_place(parts: Sequence[TableFile]) -> list[TableFile]:
    """Add the settings in the words of the runs' names, where no name and no file says what they are; empty: none."""
    names = [part.columns["run"][0] for part in parts if "run" in part.columns]
    if len(names) < len(parts) or any(is_rate(name) for part in parts for name in part.columns):
        return []
    columns = [{f"config.{name}": [text] for name, text in labels.items()} for labels in labels_by_place(names)]
    return [
        replace(part, columns=part.columns | {name: texts * len(part.lines) for name, texts in found.items()})
        for part, found in zip(parts, columns, strict=False)
    ]


def _ended(table: TableFile) -> TableFile:
    """Add to a run that nothing says how it ended that it did, where others of the folder did not."""
    return replace(table, columns=table.columns | {ENDED: ["TERMINATED"] * len(table.lines)})


def _tool(files: Sequence[Path]) -> str:
    names = [part for path in files for part in (path.name, *path.parts[-2:-1], path.suffix)]
    names += [EVENTS for path in files if EVENTS in path.name]
    return next((tool for name, tool in TOOLS.items() if name in set(names)), counted(len(files), "file"))


def _runs(folder: Path, files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the files of each run, by its folder: the nearest one with settings, or else that of the results."""
    homes = {path.parent.parent if path.parent.name == HIDDEN else path.parent for path in files if _is_settings(path)}
    runs = defaultdict[Path, list[Path]](list)
    for path in files:
        if not any(part.startswith(".") and part != HIDDEN for part in path.relative_to(folder).parts):
            above = [each for each in path.parents if each in homes and folder in (each, *each.parents)]
            runs[above[0] if above else path.parent].append(path)
    for home in sorted(runs, key=lambda path: len(path.parts)):  # `add_hparams` writes below the folder of its run
        event_files = [path for path in runs[home] if EVENTS in path.name]
        upper = next((each for each in home.parents if each != folder and each in runs), None)
        if upper and event_files and any(EVENTS in path.name for path in runs[upper]):
            runs[upper] += runs.pop(home)
    return {home: runs[home] for home in sorted(runs)}


def _is_settings(path: Path) -> bool:
    return path.name in SETTINGS and (path.parent.name == HIDDEN or not (path.parent / HIDDEN).is_dir())


def _parts(folder: Path, home: Path, files: Sequence[Path], read_file: Callable[[Path], TableFile]) -> list[TableFile]:
    """Return the table of each run in a folder: of its best files of results, with its settings."""
    settings = {name: value for path in files if _is_settings(path) for name, value in _settings(path).items()}
    tables = _results([path for path in files if not _is_settings(path)], read_file)
    names = [table.path.stem for table in tables]
    if len(tables) > 1 and (settings or all(map(split_of, names))):
        both = " and ".join(table.path.name for table in tables[:2])
        raise UserError(f"{home} has several {tables[0].path.suffix} files, {both}: leave one")
    if (home / RAY_ERROR).exists():
        settings |= {ENDED: "ERROR"}
    if not tables:
        lost = {ENDED: "ERROR"} | settings
        return [_with(table_of_rows(home, [{ENDED: "ERROR"}], ""), folder, home, lost)] if settings else []
    runs = [home if settings or len(tables) == 1 else table.path.with_suffix("") for table in tables]
    return [_with(table, folder, run, settings) for table, run in zip(tables, runs, strict=True)]


def _results(files: Sequence[Path], read_file: Callable[[Path], TableFile]) -> list[TableFile]:
    """Return the tables of the first kind of files that has any metric."""
    if (events := [path for path in files if EVENTS in path.name]) and (rows := event_rows(events)):
        return [table_of_rows(events[0], rows, TOOLS[EVENTS])]
    kinds: list[list[Path]] = [
        [path for path in files if path.name == name and path.stat().st_size] for name in RESULTS
    ]
    kinds += [[path for path in files if path.suffix == end] for end in ENDINGS]
    mistakes: list[UserError] = []
    for kind in filter(None, kinds):
        tables = []
        for path in kind:
            try:
                tables.append(read_file(path))
            except UserError as mistake:
                mistakes.append(mistake)
        if tables := [table for table in tables if _measures(table)]:
            return tables
        if mistakes and kind[0].name in RESULTS:
            raise mistakes[0]
    return []


def _last_states(files: list[Path]) -> list[Path]:
    """Leave out the states of earlier checkpoints of a run."""
    last = {path.parent.parent: path for path in sorted(files, key=_checkpoint) if CHECKPOINT in path.parent.name}
    return [path for path in files if CHECKPOINT not in path.parent.name or last[path.parent.parent] == path]


def _checkpoint(path: Path) -> int:
    number = path.parent.name.removeprefix(CHECKPOINT)
    return int(number) if number.isascii() and number.isdigit() else 0


def _measures(table: TableFile) -> bool:
    return any(is_metric(name) or plain(name) in {*VALUES, *METRIC_NAMES} for name in table.columns)


def _with(table: TableFile, folder: Path, name: Path, settings: Mapping[str, object]) -> TableFile:
    """Add settings to the rows of a file, from a file of settings or from the path; and the run, if it is one."""
    name = name.parent if name.name.startswith(CHECKPOINT) else name
    path = name.relative_to(folder).as_posix() if name != folder else ""
    known = {plain(each) for each in (*settings, *table.columns)}
    configured = any(is_rate(each) and not _varies(table, each) for each in (*settings, *table.columns))
    labels = {
        f"config.{each}": value
        for each, value in labels_of(path).items()
        if (not configured if is_rate(each) else plain(each) not in known)
    }
    beside = {str(each): str(value) for each, value in {**settings, **labels}.items()}
    whole = any(plain(each) in ROLES["seed"] and _varies(table, each) for each in table.columns)
    if not whole and not any(plain(each) in ("run_id", "trial_id") for each in known):
        beside["run"] = path or table.path.stem
        if not labels and not settings and "/" in path:
            beside["folder"] = path.rpartition("/")[0]
    columns = {each: [value] * len(table.lines) for each, value in beside.items()}
    kept = {each: texts for each, texts in table.columns.items() if each not in columns}
    return replace(table, columns=columns | kept)


def _varies(table: TableFile, name: str) -> bool:
    return len(set(table.columns.get(name, ())) - {""}) > 1


def _settings(path: Path) -> Fields:
    """Return the settings in a file; W&B writes each as a mapping with its `value`."""
    found = json_mapping(path) if path.suffix == ".json" else yaml_mapping(path)
    plainly = {
        name: value["value"] if isinstance(value, dict) and value.keys() <= {"value", "desc"} else value
        for name, value in found.items()
        if not str(name).startswith("_")
    }
    return {name: value for name, value in flattened(plainly, "config.").items() if not isinstance(value, list)}


def json_mapping(path: Path) -> Fields:
    """Read an object in JSON; raises UserError."""
    try:
        found = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: no JSON ({reason(error)}): was it cut?") from error
    return found if isinstance(found, dict) else {}


def yaml_mapping(path: Path) -> Fields:
    """Read a mapping in YAML; raises UserError."""
    found = yaml_content(path)
    return dict(found) if isinstance(found, dict) else {}


def yaml_content(path: Path) -> Any:
    """Read YAML, whatever its tags: nothing is made of them; raises UserError."""
    try:
        return YAML().load(as_version_1_2(text_of(path)))
    except (ValueError, RecursionError, YAMLError) as error:  # ValueError: of a date that no calendar has
        raise UserError(f"{path} cannot be read ({reason(error)})") from error


def text_of(path: Path) -> str:
    """Return the text of a file; raises UserError."""
    try:
        return read_plain(path, MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)})") from error


def _mlflow_run(path: Path) -> Fields:
    """Return a run of MLflow's store of files: a file a parameter, and one a metric with a line a value."""
    said = yaml_mapping(path / "meta.yaml")
    status = {1: "running", 2: "scheduled", 3: "finished", 4: "failed", 5: "killed"}.get(said.get("status", 0), "")
    params = {f"params.{each.name}": text_of(each).strip() for each in sorted((path / "params").glob("*"))}
    row: Fields = {"run_id": path.name, "status": status or str(said.get("status", "")), **params}
    for metric in sorted(each for each in (path / "metrics").rglob("*") if each.is_file()):
        name = metric.relative_to(path / "metrics").as_posix()
        row[f"metrics.{name}"] = text_of(metric).split("\n")[-2].split()[1] if "\n" in text_of(metric) else ""
    return row | {"task": path.parent.name}
