"""Sources of tables: a file, standard input, an address, several files by a pattern, or a folder of runs of any tool.

In a folder each run has a file of results, and its settings in a file beside it or in its name.
"""

from __future__ import annotations

import glob
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.judge.limits import check_folder, files_below, read_bounded, unpacked
from lr_sweep.analysis.judge.names import (
    is_metric,
    is_named,
    is_rate,
    is_setting,
    listed,
    plain,
    split_of,
    words,
)
from lr_sweep.analysis.judge.readers.files import read_file, table_of_content
from lr_sweep.analysis.judge.readers.labels import flat_settings, labels_of
from lr_sweep.analysis.judge.readers.nested import yaml_content
from lr_sweep.analysis.judge.readers.tools import (
    EVENTS,
    event_table,
    read_mlflow_folder,
    read_mlflow_server,
)
from lr_sweep.analysis.judge.table_file import (
    TableFile,
    damage_named,
    joined,
    raise_mistakes,
    table_of_rows,
)
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields
from lr_sweep.common.network import shown_uri

STDIN = "-"
HIDDEN = ".hydra"  # the folder of a job's settings
STATE = "trainer_state.json"  # of a run of Transformers, with its history so far
SETTINGS = words(  # files of what a run was started with
    "params.json config.yaml config.yml config.json hparams.yaml args.yaml args.json hyperparameters.yaml flags.json"
)
RESULTS = words(f"result.json progress.csv trial.json {STATE} metrics.csv results.csv summary.csv")
KINDS = (
    *RESULTS,
    EVENTS,
    *words(".db .wandb .csv .tsv .jsonl .ndjson .json .parquet .xlsx .log .out .txt"),
)
"""Names and endings of files of results: a run has those of the first kind with a metric."""
WANDB_RUN, WANDB_LOGS = ".wandb", {"debug.log", "debug-internal.log", "debug-core.log"}
CHECKED = (WANDB_RUN, EVENTS)  # kinds with a checksum for each record
RAY_ERROR, ENDED, STEP = "error.txt", "state", "step"
Source = str | Path | pd.DataFrame
FRAME = Path("DataFrame")


def read_sources(sources: Sequence[Source]) -> list[TableFile]:
    """Read every source; raises UserError with what is wrong with the first that cannot be read."""
    tables = [table for source in sources for table in _tables_of(source)]
    tables = tables if len(tables) == 1 else list(map(_with_places, tables))
    return [
        replace(each, sha256=each.sha256 or sha256(json.dumps(each.columns).encode()).hexdigest())
        for each in tables
    ]


def _tables_of(source: Source) -> list[TableFile]:
    if isinstance(source, str | Path):
        return list(map(_read, expanded(str(source))))
    if not isinstance(source, pd.DataFrame):
        raise UserError(
            f"got a {type(source).__name__} as a table, want a path or a pandas DataFrame"
        )
    with damage_named(FRAME, advice="write it to a CSV file, and look at that"):
        content = source.to_parquet(
            index=any(source.index.names)
        )  # an index without names numbers the rows
    return [table_of_content(FRAME, content, "")]


def _with_places(table: TableFile) -> TableFile:
    """Add what a file's name says, as `lr=0.1,seed=1.csv`, if it says the learning rate; and the name of a folder."""
    if table.path.is_dir() and "folder" not in table.columns:
        runs = [f"{table.path.name}/{run}" for run in table.columns.get("run", ())]
        table = replace(table, columns=table.columns | ({"run": runs} if runs else {}))
        return table.beside({"folder": table.path.name})
    found = flat_settings(
        labels_of(table.path.parent.name if EVENTS in table.path.name else table.path.stem)
    )
    return (
        table.beside(found)
        if any(map(is_rate, found)) and not any(map(is_rate, table.columns))
        else table
    )


def expanded(source: str) -> list[str]:
    """Return the files that a pattern names, as a shell would."""
    if not glob.has_magic(source) or source == STDIN or Path(source).exists():
        return [source]
    if found := sorted(glob.glob(source, recursive=True)):  # noqa: PTH207 - pathlib's takes no whole path
        return found
    raise UserError(f"no file fits {source}: name a table, or a folder")


def _read(source: str) -> TableFile:
    if source == STDIN:
        return table_of_content(Path("stdin"), unpacked(Path("stdin"), sys.stdin.buffer), "stdin")
    if source.startswith(("http://", "https://")):
        return read_mlflow_server(source, shown_uri(source))
    path = Path(source.removeprefix("sqlite:///"))
    return _read_folder(path) if path.is_dir() else read_file(path)


def _read_folder(folder: Path) -> TableFile:
    """Read every run below a folder; raises UserError."""
    files, links = files_below(folder)
    if stores := [
        path.parent
        for path in files
        if path.name == "meta.yaml" and (path.parent / "metrics").is_dir()
    ]:
        return read_mlflow_folder(folder, stores)
    check_folder(folder, (path for path in files if _kind(path) in KINDS))
    unread = dict.fromkeys(links, " (a link)")
    parts = _with_steps(list(_with_paths(list(_parts(folder, _runs(folder, files), unread)))))
    if not any(map(_values, parts)):
        raise_mistakes(
            [
                f"{path} is not read{why}: name files that can be"
                for path, why in unread.items()
                if why
            ]
        )
        tools = "none of Ray Tune, Hydra, Lightning, TensorBoard, W&B or MLflow, nor tables or logs"
        raise UserError(
            f"{folder} cannot be read (it is a folder, and {tools}): name a table, such as a CSV file"
        )
    if any(
        ENDED in part.columns and len(set(part.columns[ENDED])) == 1 for part in parts
    ):  # the others did end
        parts = [
            part if ENDED in part.columns else part.beside({ENDED: "TERMINATED"}) for part in parts
        ]
    kinds = Counter(_kind(part.path) for part in parts)
    reader = ", ".join(
        f"{number} {kind if kind in RESULTS else f'*{kind}'}" for kind, number in kinds.items()
    )
    others = sorted({part.reader for part in parts if part.reader})
    left_out = [path for path in unread if _kind(path) in kinds and not unread[path]]
    others += [
        path.relative_to(folder).as_posix()
        for path in sorted(left_out, key=lambda path: -path.stat().st_size)
    ]
    reader += f", without {listed(others, 3)}" if others else ""
    remarks = [f"NOT READ: {path.relative_to(folder)}{why}" for path, why in unread.items() if why]
    remarks += [said for part in parts for said in part.remarks]
    return replace(joined(parts), path=folder, sha256="", reader=reader, remarks=tuple(remarks))


def _folder_of(path: Path, top: Path | None = None) -> Path:
    """Return the folder that a file is in, up to `top`, not counting those that tools make within a run's."""
    is_within = path.parent.name == HIDDEN or path.parent.name.startswith("checkpoint-")
    return path.parent.parent if is_within and path.parent != top else path.parent


def _runs(folder: Path, files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the files of each run, by its folder: the nearest one with settings, or else that of the results."""
    stores = {
        path.parent for path in files if path.suffix == WANDB_RUN
    }  # each has all that other files there have
    events = {path.parent for path in files if EVENTS in path.name}
    homes = {_folder_of(path, folder) for path in files if _has_settings(path)}
    known = homes | events - {folder}
    homes |= {
        each for each in events if not known & {*each.parents}
    }  # `add_hparams` writes below the folder of a run
    runs = defaultdict[Path, list[Path]](list)
    for path in files:
        names = path.relative_to(folder).parts
        is_hidden = (
            any(name[:1] == "." and name != HIDDEN for name in names) or "latest-run" in names
        )  # W&B's link
        is_copy = path.suffix != WANDB_RUN and (
            path.name in WANDB_LOGS or not stores.isdisjoint(path.parents)
        )
        if not (is_hidden or is_copy):
            above = (
                each for each in path.parents if each in homes and folder in (each, *each.parents)
            )
            runs[next(above, _folder_of(path, folder))].append(path)
    return dict(sorted(runs.items()))


def _parts(
    folder: Path, runs: Mapping[Path, Sequence[Path]], unread: dict[Path, str]
) -> Iterator[tuple[str, TableFile]]:
    """Yield the path and the table of each run in a folder: of its best results, with its settings and those above.

    The `reader` of a table names what it leaves out. `unread`: takes the files that cannot be read, perhaps as they are
    no tables, with the damage of those that have checksums.
    """
    above = {each for home in runs for each in home.parents}
    settings: dict[Path, Fields] = {}
    names = Counter(path.name for files in runs.values() for path in files)
    for home, files in runs.items():
        own = {
            name: value
            for path in files
            if _has_settings(path)
            for name, value in _settings(path).items()
        }
        of_run = settings[home] = (
            next((settings[each] for each in home.parents if each in settings), {}) | own
        )
        tables = _results([path for path in files if path.name not in SETTINGS], unread)
        usual = [table for table in tables if 2 * names[table.path.name] > len(runs)]
        if len(usual) == 1 < len(tables):  # most runs have a file of this name alone
            others = ", ".join(table.path.name for table in tables if table is not usual[0])
            tables = [replace(usual[0], reader=others)]
        splits = {split_of(table.path.stem) for table in tables}
        if len(tables) > 1 and (of_run or ("" not in splits and len(splits) == len(tables))):
            both = " and ".join(table.path.name for table in tables[:2])
            raise UserError(f"{home} has several {tables[0].path.suffix} files, {both}: leave one")
        if home / RAY_ERROR in files or (own and not tables and home not in above):
            of_run = of_run | {ENDED: "ERROR"}  # its own, and not of runs below
            tables = tables or [table_of_rows(home, [of_run], "")]
        for table in tables:
            run = home if of_run or len(tables) == 1 else table.path.with_suffix("")
            yield run.relative_to(folder).as_posix() if run != folder else "", table.beside(of_run)


def _has_settings(path: Path) -> bool:
    """Return whether a file has what a run was started with: by its name, or one of YAML beside results."""
    is_beside = path.suffix in (".yaml", ".yml") and any(
        (path.parent / name).exists() for name in RESULTS
    )
    return path.name in SETTINGS or is_beside


def _settings(path: Path) -> Fields:
    """Return the settings in a file; W&B writes each as a mapping with its `value`."""
    with damage_named(path):
        text = read_bounded(path).decode()
        found = json.loads(text) if path.suffix == ".json" else yaml_content(text)
    found = found if isinstance(found, dict) else {}
    objects = {name: value for name, value in found.items() if isinstance(value, dict)}
    found |= {
        name: each["value"]
        for name, each in objects.items()
        if {"value"} <= each.keys() <= {"value", "desc"}
    }
    return {
        name: value for name, value in flat_settings(found).items() if not isinstance(value, list)
    }


def _results(files: Sequence[Path], unread: dict[Path, str]) -> list[TableFile]:
    """Return the tables of the first kind of files with any metric, or runs that ended without a value.

    A later kind with more files, each with evaluations by step, is taken before a summary of several runs, but not
    before a file of a known name or with several learning rates.
    """
    found, ended = list[TableFile](), list[TableFile]()
    for kind in KINDS:
        tables = list(_tables([path for path in files if _kind(path) == kind], kind, unread))
        started = [table for table in tables if _values(table) or any(map(is_rate, table.columns))]
        if not any(map(_values, started)):
            ended += started if kind in (WANDB_RUN, ".log") else []
        elif len(started := _as_one_run(started)) > len(found) and (
            not found or all(map(_steps, started))
        ):
            others = ", ".join(dict.fromkeys(table.path.name for table in found))
            found = [replace(table, reader=others or table.reader) for table in started]
        if found and (
            kind in RESULTS
            or any(is_rate(n) and _varies(each, n) for each in found for n in each.columns)
        ):
            break
    return found or ended


def _as_one_run(tables: list[TableFile]) -> list[TableFile]:
    """Make one table of files without a common metric, which are parts of a run: those of one row have its columns."""
    counts = Counter(name for table in tables for name in _values(table))
    if len(tables) < 2 or max(counts.values()) > 1:
        return tables
    tested = {name for name in counts if is_metric(name) and split_of(name) != "train"}
    longest = max(
        tables, key=lambda table: (not tested.isdisjoint(table.columns), len(table.lines))
    )
    beside = {
        name: table.columns[name][0]
        for table in tables
        if len(table.lines) == 1
        for name in table.columns
    }
    others = [table.path.name for table in tables if len(table.lines) > 1 and table is not longest]
    whole = longest.beside({name: beside[name] for name in beside if name not in longest.columns})
    return [replace(whole, reader=", ".join(others))]


def _kind(path: Path) -> str:
    return (
        EVENTS
        if EVENTS in path.name
        else path.name
        if path.name in RESULTS
        else path.suffix or path.name
    )


def _tables(files: Sequence[Path], kind: str, unread: dict[Path, str]) -> Iterator[TableFile]:
    """Yield the tables in files of one kind; those without a name for results may be something else.

    The files of TensorBoard are those of one run: a damaged one leaves out the run.
    """
    if kind == STATE:  # the largest has the whole history
        last = {
            _folder_of(path): path for path in sorted(files, key=lambda path: path.stat().st_size)
        }
        files = sorted(last.values())
    for paths in [files] if kind == EVENTS and files else [[path] for path in files]:
        try:
            table = _read_run(paths, kind)
            yield replace(table, reader=table.reader.partition("without ")[2])
        except UserError as error:
            if kind in RESULTS and paths[0].stat().st_size:
                raise
            why = f" ({error.__cause__})" if kind in CHECKED and error.__cause__ else ""
            unread |= dict.fromkeys(paths, why)


def _read_run(paths: Sequence[Path], kind: str) -> TableFile:
    if kind == EVENTS:
        with damage_named(paths[0]):
            return event_table(paths, [read_bounded(path) for path in paths])
    return read_file(paths[0])


def _values(table: TableFile) -> list[str]:
    return [name for name in table.columns if is_metric(name) or is_named(name, "value", "metric")]


def _with_paths(runs: Sequence[tuple[str, TableFile]]) -> Iterator[TableFile]:
    """Add the run to the rows of each file, if it is one, and what paths say of runs, or else their folder.

    What a run's columns say is not taken from its path. A file whose rows have several seeds is a part of a table, and
    no run.
    """
    said = [flat_settings(labels_of(path)) for path, _ in runs]
    some = set[str]().union(*said)
    are_known = any(
        is_setting(name) and not is_named(name, "seed")
        for _, table in runs
        for name in table.columns
    )
    in_folders = not are_known and all("/" in path for path, _ in runs)
    every = (
        some.intersection(*said) if in_folders else some
    )  # what not all paths say is left to the folders' names
    for (path, table), labels in zip(runs, said, strict=True):
        own = {
            plain(name) for name in table.columns if not (is_rate(name) and _varies(table, name))
        }
        has_rate = any(map(is_rate, own))
        values = {texts[0] for texts in table.columns.values()}
        new = [
            name
            for name in labels
            if name in every and plain(name) not in own and not (has_rate and is_rate(name))
        ]
        beside = {
            name: labels[name]
            for name in new
            if not (is_named(name, "variant") and labels[name] in values)
        }
        has_seeds = any(is_named(name, "seed") and _varies(table, name) for name in table.columns)
        if not has_seeds and {"run_id", "trial_id"}.isdisjoint(map(plain, table.columns)):
            beside["run"] = path or table.path.stem
            beside |= (
                {"folder": path.rpartition("/")[0]}
                if in_folders and (every != some or not every)
                else {}
            )
        yield table.beside(beside)


def _with_steps(tables: list[TableFile]) -> list[TableFile]:
    """Name the steps of all tables alike, where no name of them is common to all that have steps."""
    steps = list(map(_steps, tables))
    if not any(steps) or set.intersection(*(set(names) for names in steps if names)):
        return tables
    return [
        replace(
            table,
            columns={
                STEP if [name] == names[:1] else name: texts
                for name, texts in table.columns.items()
            },
        )
        for table, names in zip(tables, steps, strict=True)
    ]


def _steps(table: TableFile) -> list[str]:
    return [name for name in table.columns if is_named(name, STEP)]


def _varies(table: TableFile, name: str) -> bool:
    return len(set(table.columns[name]) - {""}) > 1
