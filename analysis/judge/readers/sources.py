"""Sources of tables: files, standard input, a DataFrame, a pattern of files, a folder of runs.

The runs of a folder have files of results, with settings beside them and in their paths.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.judge.table_file import (
    TableFile,
    check_folder,
    damage_named,
    files_below,
    joined,
    raise_mistakes,
    read_bounded,
    table_of_rows,
    unpacked,
    without_values,
)
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields

from .databases import is_mlflow_run, read_mlflow_folder
from .events import EVENTS, event_table
from .files import read_file, table_of_content
from .nested import flat_settings, settings_in, yaml_content

STDIN = "-"
Source = str | Path | pd.DataFrame
FRAME = Path("DataFrame")
TRIAL, EVENT_FILE = "trial.json", f"*{EVENTS}*"
FORMATS = (
    "result.json",  # Ray Tune
    "progress.csv",  # Ray Tune
    TRIAL,  # Keras Tuner
    "trainer_state.json",  # Transformers
    "wandb-summary.json",  # W&B
    EVENT_FILE,  # TensorBoard
)
"""Files that a tool writes for each run, the most complete first."""
ENDING = re.compile(r"\.(csv|tsv|jsonl|ndjson|json|parquet|xlsx|db|log|out|txt|csv\.zip)$")
"""End of the name of a file of results that no tool names."""
SETTINGS = (
    "config.yaml",
    "config.yml",
    "config.json",
    "params.json",
    "hparams.yaml",
    "args.yaml",
    "args.json",
    "hyperparameters.yaml",
    "flags.json",
    ".hydra/config.yaml",
)
"""Files of what a run was started with, by their path in its folder."""
ERROR = "error.txt"
"""File that Ray Tune writes for a trial that failed."""
WITHIN = re.compile(r"checkpoint-\d+|\d{9,}\.\d+")
"""Folders that Transformers and TensorBoard's `add_hparams` make within the folder of a run."""


def read_sources(sources: Sequence[Source]) -> list[TableFile]:
    """Read every source; raises UserError with what is wrong with the first that cannot be read.

    The tables of several have the names of their files or folders.
    """
    tables = [table for source in sources for table in _tables_of(source)]
    if len(tables) == 1:
        return tables
    paths = [table.path.resolve() for table in tables]
    top = Path(os.path.commonpath([path.parent for path in paths]))
    column = "folder" if all(map(Path.is_dir, paths)) else "file"
    return _with_places(zip(paths, tables, strict=True), top, column)


def _tables_of(source: Source) -> list[TableFile]:
    if isinstance(source, str | Path):
        return list(map(_read, expanded(str(source))))
    if not isinstance(source, pd.DataFrame):
        raise UserError(
            f"got a {type(source).__name__} as a table, want a path or a pandas DataFrame"
        )
    with damage_named(FRAME, advice="write it to a CSV file, and look at that"):
        has_names = any(source.index.names)  # an index without names numbers the rows
        return [table_of_content(FRAME, source.to_parquet(index=has_names), "")]


def expanded(source: str) -> list[str]:
    """Return the files that a pattern names, as a shell would; raises UserError if there are none."""
    if not glob.has_magic(source) or source == STDIN or Path(source).exists():
        return [source]
    paths = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - pathlib's takes no whole path
    if not paths:
        raise UserError(f"no file fits {source}: name a table, or a folder")
    return paths


def _read(source: str) -> TableFile:
    if source == STDIN:
        stdin = Path("stdin")
        return table_of_content(stdin, unpacked(stdin, sys.stdin.buffer), "stdin")
    path = Path(source.removeprefix("sqlite:///"))
    return _read_folder(path) if path.is_dir() else read_file(path)


def _read_folder(folder: Path) -> TableFile:
    """Read every run below a folder; raises UserError."""
    files, links = files_below(folder)
    files = [path for path in files if "/." not in f"/{path.relative_to(folder)}"]  # none hidden
    if any(map(is_mlflow_run, files)):
        return read_mlflow_folder(folder, files)
    remarks = [f"NOT READ: {path} (a link)" for path in links]
    kind, results = _results(folder, files)
    if not results:
        raise_mistakes([*remarks, f"{folder} has no results: name a table"])
    check_folder(folder, results)
    runs = _runs(kind, folder, results)
    are_runs = kind in FORMATS or runs.keys() != {*results}
    tables = {run: _table(run, paths) for run, paths in runs.items()}
    if are_runs:
        tables |= {run: without_values(run) for run in _started(files, runs)}
    placed = _with_places(tables.items(), folder, "run" if are_runs else "file")
    table = joined(placed)
    return replace(
        table,
        path=folder,
        reader=f"{kind}, {len(results)} of {len(files)} files",
        remarks=tuple(chain(remarks, *(part.remarks for part in placed))),
        known={"run": "run", **table.known},
    )


def _results(folder: Path, files: Sequence[Path]) -> tuple[str, list[Path]]:
    """Return the pattern and the files of results: those of a tool, or of the name that most folders share."""
    for pattern in FORMATS:
        if results := [path for path in files if path.match(pattern)]:
            return pattern, results
    results = [path for path in files if path.name not in SETTINGS and ENDING.search(path.name)]
    folders = {path.parent for path in results}
    numbers = Counter(name for _, name in {(path.parent, _pattern(path)) for path in results})
    shared = [name for name in sorted(numbers) if 1 < len(folders) < 2 * numbers[name]]
    kinds = shared or sorted({f"*{path.suffix}" for path in results})
    if len(kinds) > 1:
        raise UserError(
            f"{folder} has several kinds of results, {', '.join(kinds)}: "
            f"name those that count, such as '{glob.escape(str(folder))}/**/{kinds[0]}'"
        )
    return "".join(kinds), [path for path in results if not shared or _pattern(path) in shared]


def _pattern(path: Path) -> str:
    """Return a file's name with `*` for its numbers, in which the names of runs differ."""
    return re.sub(r"\d+", "*", path.name)


def _runs(kind: str, folder: Path, results: Sequence[Path]) -> Mapping[Path, Sequence[Path]]:
    """Return the files that are read as one table, by the folder of the run; or each file, if it may be no run."""
    runs = defaultdict[Path, list[Path]](list)
    for path in results:
        is_within = path.parent != folder and WITHIN.fullmatch(path.parent.name)
        runs[path.parent.parent if is_within else path.parent].append(path)
    are_runs = len(runs) == len(results) and all(map(_settings_files, runs))
    return runs if kind in FORMATS or are_runs else {path: [path] for path in results}


def _table(run: Path, paths: Sequence[Path]) -> TableFile:
    """Read the files of a run; of several states of Transformers the largest has the whole history."""
    path = max(paths, key=lambda path: path.stat().st_size)
    if not path.stat().st_size:
        table = without_values(run)
    elif EVENTS in path.name:
        with damage_named(path):
            table = event_table(paths, list(map(read_bounded, paths)))
    else:
        table = _trial(path) if path.name == TRIAL else read_file(path)
    return table.beside({"state": "ERROR"}) if (run / ERROR).exists() else table


def _trial(path: Path) -> TableFile:
    """Read a trial of Keras Tuner, with the metrics at its best step."""
    with damage_named(path):
        trial = json.loads(read_bounded(path))
        row = {name: trial[name] for name in ("trial_id", "status")}
        row |= flat_settings(trial["hyperparameters"]["values"])
        for name, metric in trial["metrics"]["metrics"].items():
            values = {seen["step"]: seen["value"] for seen in metric["observations"]}
            row[name] = values.get(trial["best_step"])
    return table_of_rows(path, [row])


def _settings_files(run: Path) -> list[Path]:
    """Return the files of settings in a folder; links are not followed."""
    paths = [run / name for name in SETTINGS]
    real = run.resolve()
    return [path for path in paths if path.is_file() and path.resolve().is_relative_to(real)]


def _started(files: Iterable[Path], runs: Iterable[Path]) -> list[Path]:
    """Return the folders with settings alone, neither above nor within the folders of other runs."""
    taken = {*runs}
    above = {parent for run in taken for parent in run.parents}
    folders = sorted({path.parent for path in files} - above)
    started = [run for run in folders if taken.isdisjoint((run, *run.parents))]
    return list(filter(_settings_files, started))


def _with_places(
    tables: Iterable[tuple[Path, TableFile]], top: Path, column: str
) -> list[TableFile]:
    """Add to each table its path below `top`, which also names its runs, and the settings in the path and beside it."""
    runs = list(tables)
    placed = []
    for path, table in runs:
        name = ENDING.sub("", path.relative_to(top).as_posix())
        if len(runs) > 1:  # other tables may have the same names
            own = {column, table.known.get("run", column)} & {*table.frame}
            texts = {key: f"{name}/" + table.frame[key] for key in own}
            table = replace(table, frame=table.frame.assign(**texts))
        said = {column: name, **flat_settings(settings_in(name)), **_settings(path, top)}
        placed.append(table.beside({key: said[key] for key in said if key not in table.frame}))
    return placed


def _settings(run: Path, top: Path) -> Fields:
    """Return the settings in the folders of a run, of which the nearest one wins, without those of all runs."""
    settings = Fields()
    folders = [run, *(folder for folder in run.parents if top in folder.parents)]
    for path in chain.from_iterable(map(_settings_files, reversed(folders))):
        with damage_named(path):
            text = read_bounded(path).decode()
            content = json.loads(text) if path.suffix == ".json" else yaml_content(text)
        if isinstance(content, dict):
            settings |= flat_settings(content)
    return settings
