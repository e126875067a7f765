"""Folders of runs: files of results, the settings beside them, and those in their paths."""

from __future__ import annotations

import glob
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from lr_sweep.analysis.judge.limits import check_folder, files_below, read_bounded
from lr_sweep.analysis.judge.readers.databases import read_mlflow_folder
from lr_sweep.analysis.judge.readers.events import EVENTS, event_table
from lr_sweep.analysis.judge.readers.files import read_file
from lr_sweep.analysis.judge.readers.labels import flat_settings, settings_in
from lr_sweep.analysis.judge.readers.nested import yaml_content
from lr_sweep.analysis.judge.table_file import (
    Line,
    TableFile,
    damage_named,
    joined,
    raise_mistakes,
    table_of_rows,
)
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields

TRIAL, STATE, EVENT_FILE = "trial.json", "trainer_state.json", f"*{EVENTS}*"
FORMATS = {
    "result.json": "training_iteration",  # Ray Tune
    "progress.csv": "training_iteration",  # Ray Tune
    TRIAL: "",  # Keras Tuner
    STATE: "step",  # Transformers
    "*.wandb": "_step",
    EVENT_FILE: "step",
}
"""Files that a tool writes for each run, the most complete first, with their column of steps."""
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


def read_folder(folder: Path) -> TableFile:
    """Read every run below a folder; raises UserError."""
    files, links = files_below(folder)
    files = [path for path in files if "/." not in f"/{path.relative_to(folder)}"]  # none hidden
    stores = [path.parent for path in files if path.name == "meta.yaml"]
    stores = [store for store in stores if (store / "metrics").is_dir()]
    if stores:
        return read_mlflow_folder(folder, stores)
    kind, results = _results(folder, files)
    check_folder(folder, results)
    remarks = [f"NOT READ: {path} (a link)" for path in links]
    runs = _runs(kind, folder, results)
    tables = _tables(runs, remarks)
    raise_mistakes([] if tables else [*remarks, f"{folder} has no results: name a table"])
    known = {"step": FORMATS.get(kind, "")}
    column = "run" if kind in FORMATS or runs.keys() != {*results} else "file"
    if column == "run":
        known |= {"run": "run"}
        tables |= _started(files, tables)
    parts = with_places(tables.items(), folder, column)
    table = joined(parts)
    for part in parts:
        known |= part.known
        remarks += part.remarks
    others = {*filter(_may_be_results, files)} - {*results}
    left_out = f", without {len(others)} other files" if others else ""
    return replace(
        table,
        path=folder,
        sha256="",
        reader=f"{len(results)} {kind}{left_out}",
        remarks=tuple(remarks),
        known={meaning: name for meaning, name in known.items() if name in table.columns},
    )


def _may_be_results(path: Path) -> bool:
    return path.name not in SETTINGS and ENDING.search(path.name) is not None


def _results(folder: Path, files: Sequence[Path]) -> tuple[str, list[Path]]:
    """Return the pattern and the files of results: those of a tool, or of the name that most folders share."""
    for pattern in FORMATS:
        if results := [path for path in files if path.match(pattern)]:
            return pattern, results
    results = list(filter(_may_be_results, files))
    places = {(path.parent, _pattern(path)) for path in results}
    numbers = Counter(pattern for _, pattern in places)
    num_folders = len({path.parent for path in results})
    shared = [pattern for pattern in sorted(numbers) if 1 < num_folders < 2 * numbers[pattern]]
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


def _runs(kind: str, folder: Path, results: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the files that are read as one table, by the folder of the run; or each file, if it may be no run."""
    runs = defaultdict[Path, list[Path]](list)
    for path in results:
        home = path.parent
        if home != folder and WITHIN.fullmatch(home.name):
            home = home.parent
        runs[home].append(path)
    are_single = all(len(paths) == 1 for paths in runs.values())
    are_runs = are_single and (kind in FORMATS or all(map(_settings_files, runs)))
    if are_runs or kind in (STATE, EVENT_FILE):
        return runs
    return {path: [path] for path in results}


def _tables(runs: Mapping[Path, Sequence[Path]], remarks: list[str]) -> dict[Path, TableFile]:
    """Return the table of each run; `remarks` takes files with a wrong checksum, which leaves out a run."""
    tables = dict[Path, TableFile]()
    for run, paths in runs.items():
        try:
            tables[run] = _table(run, paths)
        except UserError as error:
            if "the checksum of" not in str(error):
                raise
            remarks.append(f"NOT READ: {error}")
    return tables


def _table(run: Path, paths: Sequence[Path]) -> TableFile:
    """Read the files of a run; of several states of Transformers the largest has the whole history."""
    path = max(paths, key=lambda path: path.stat().st_size)
    if not path.stat().st_size:
        table = _without_values(run)
    elif EVENTS in path.name:
        with damage_named(path):
            table = event_table(paths, list(map(read_bounded, paths)))
    elif path.name == TRIAL:
        table = _trial(path)
    else:
        table = read_file(path)
    if not (run / ERROR).exists():
        return table
    known = table.known | {"status": "state"}
    return replace(table.beside({"state": "ERROR"}), known=known)


def _trial(path: Path) -> TableFile:
    """Read a trial of Keras Tuner, with the metrics at its best step."""
    with damage_named(path):
        trial = json.loads(read_bounded(path))
        row = {"trial_id": trial["trial_id"], "status": trial["status"]}
        row |= flat_settings(trial["hyperparameters"]["values"])
        for name, metric in trial["metrics"]["metrics"].items():
            for observation in metric["observations"]:
                if observation["step"] == trial["best_step"]:
                    row[name] = observation["value"]
        table = table_of_rows(path, [row], "")
    return replace(table, known={"status": "status"})


def _without_values(run: Path) -> TableFile:
    return TableFile(path=run, columns={}, lines=[Line(run, 1, "row ")])


def _settings_files(run: Path) -> list[Path]:
    """Return the files of settings in a folder; links are not followed."""
    real = run.resolve()
    paths = [run / name for name in SETTINGS if (run / name).is_file()]
    return [path for path in paths if path.resolve() == real / path.relative_to(run)]


def _started(files: Iterable[Path], tables: Mapping[Path, TableFile]) -> dict[Path, TableFile]:
    """Return a row for each folder with settings alone, neither above nor within the folders of other runs."""
    above = {parent for run in tables for parent in run.parents}
    started = {path.parent for path in files} - above
    return {
        run: _without_values(run)
        for run in sorted(started)
        if tables.keys().isdisjoint((run, *run.parents)) and _settings_files(run)
    }


def with_places(
    tables: Iterable[tuple[Path, TableFile]], top: Path, column: str
) -> list[TableFile]:
    """Add to each table its path below `top`, which also names its runs, and the settings in the path and beside it."""
    runs = list(tables)
    placed = []
    for path, table in runs:
        name = _name(path, top)
        said: Fields = {column: name}
        said |= flat_settings(settings_in(name))
        said |= _settings(path, top)
        new = {key: value for key, value in said.items() if key not in table.columns}
        own = {column, table.known.get("run", column)} & table.columns.keys()
        if len(runs) > 1:  # other tables may have the same names
            table = _renamed(table, own, name)
        placed.append(table.beside(new))
    return placed


def _renamed(table: TableFile, own: Iterable[str], name: str) -> TableFile:
    """Return a table with a name before the texts of some of its columns."""
    texts = {column: [f"{name}/{text}" for text in table.columns[column]] for column in own}
    return replace(table, columns=table.columns | texts)


def _name(path: Path, top: Path) -> str:
    """Return a path below a folder, without the ending of a file."""
    return ENDING.sub("", path.relative_to(top).as_posix())


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
