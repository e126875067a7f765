"""`gc`: finds what no study needs in a results directory, by kind, and removes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from lr_sweep.analysis.record.columns import WANTED
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.analysis.report.folder import abandoned
from lr_sweep.common.files import is_being_written, remove_below
from lr_sweep.common.text import Say, counted, gigabytes
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import State, recorded_ids, state_of
from lr_sweep.sweep.results.validation import read_sound_row
from lr_sweep.trainables.own.command_line import KEPT
from lr_sweep.trainables.pretraining.recipe import pretraining_checkpoints

LEFTOVERS, CHECKPOINTS, UNWANTED = KINDS = ("leftovers", "checkpoints", "unwanted")
CONSEQUENCES = {
    LEFTOVERS: "files of interrupted writes, damaged checkpoints and Ray Tune's scratch; nothing is lost",
    CHECKPOINTS: "checkpoints of complete and diverged runs. With a higher step budget these would train from step 0; "
    "the record, curves and tables stay",
    UNWANTED: "rows, curves and checkpoints of runs that no recorded study wants. MLflow keeps its copies",
}


class Garbage(NamedTuple):
    """What can go, and notes on what was not looked for."""

    files: dict[str, list[Path]]
    """By kind, in the order of removal: the record is sound after each file."""
    notes: list[str]


def collect(
    results: Results, only: Collection[str], agreed: Callable[[str], bool], say: Say
) -> None:
    """List what can go of the kinds `only`, then remove those agreed to; no process can write until this has ended.

    Raises UserError if another process writes.
    """
    with storage_problems(results.root), results.writing("gc"):
        garbage = find_garbage(results, only)
        for note in garbage.notes:
            say(f"note: {note}")
        if not garbage.files:
            say("nothing to remove")
        for kind, files in garbage.files.items():
            say(f"{kind}: {_size(files)}: {CONSEQUENCES[kind]}")
        if chosen := [kind for kind in garbage.files if agreed(kind)]:
            removed = list(dict.fromkeys(path for kind in chosen for path in garbage.files[kind]))
            size = _size(removed)
            for path in removed:
                _remove(results.root, path)
            say(f"removed {size}")


def find_garbage(results: Results, only: Collection[str] = KINDS) -> Garbage:
    """Look for what can go. Reads one run at a time, and holds no more than the files' names."""
    garbage = Garbage({LEFTOVERS: [*leftovers(results)], CHECKPOINTS: [], UNWANTED: []}, [])
    if set(only) - {LEFTOVERS}:
        try:
            _find_runs(results, garbage)
        except RecordError as error:
            garbage.notes.append(
                f"{error}. What studies want is unknown until then, so only {LEFTOVERS} are listed"
            )
    links = set[Path]()
    files: dict[str, list[Path]] = {}
    for kind in KINDS:
        for path in garbage.files[kind] if kind in only else ():
            if link := _link_to(path):
                links.add(link)
            else:
                files.setdefault(kind, []).append(path)
    notes = [f"{link} is a link: it and what it leads to are left alone" for link in sorted(links)]
    return Garbage(files, garbage.notes + notes)


def _link_to(path: Path) -> Path | None:
    """Return the first link on the way to a path; None: neither a folder above it nor itself is one."""
    return next((folder for folder in (*reversed(path.parents), path) if folder.is_symlink()), None)


def _find_runs(results: Results, garbage: Garbage) -> None:
    budgets = _wanted_budgets(results)
    for run_id in recorded_ids(results):
        try:
            row = read_sound_row(results, run_id)
        except RecordError as error:
            garbage.notes.append(str(error))
            continue
        wanted = run_id in budgets
        folder = results.checkpoints(run_id)
        saved = [*folder.glob(KEPT), *sorted(folder.glob("step-*.safetensors"))]
        # A run that failed may be tried again; one that a study wants may have steps left to train.
        if (
            row
            and row["status"] in (State.COMPLETE, State.DIVERGED)
            and (not wanted or state_of(budgets[run_id], row, started=True).over)
        ):
            garbage.files[CHECKPOINTS] += saved
        if not wanted:
            # The row first: a row without its curve would count as done.
            paths = (results.run(run_id), results.curve(run_id), results.log(run_id))
            garbage.files[UNWANTED] += [path for path in paths if path.exists()] + saved


def _wanted_budgets(results: Results) -> dict[str, int]:
    """Return what the recorded studies want, run id -> the highest step budget; raises RecordError if it is unknown."""
    folders = [path for path in results.study_folders() if path.is_dir()]
    if not folders:
        raise RecordError(f"no study is recorded in {results.root}: run one first")
    budgets: dict[str, int] = {}
    for folder in folders:
        path = results.wanted(folder.name)
        rows = read_rows(path, WANTED)
        if rows is None:
            raise RecordError(f"no {path}: run the study again to write it, or delete {folder}")
        for row in rows:
            budgets[row["run_id"]] = max(row["num_steps"], budgets.get(row["run_id"], 0))
    return budgets


def leftovers(results: Results) -> Iterator[Path]:
    """Yield what nothing reads while no process writes: partial files, damaged checkpoints, folders of scratch."""
    yield from (
        path for path in sorted(results.root.rglob(".*.partial")) if not is_being_written(path)
    )
    for name in ("partial-*", ".tmp*", "damaged-*"):  # the second are safetensors'
        yield from sorted(results.root.glob(f"checkpoints/*/{name}"))
    yield from filter(os.path.lexists, _scratch_folders(results))


def _scratch_folders(results: Results) -> list[Path]:
    weights = [path.parent for path in results.pretrained.glob("*/model.safetensors")]
    ended = [path for folder in weights if (path := pretraining_checkpoints(folder)).is_dir()]
    unfinished = [*results.pretrained.glob("*.partial-*"), *ended]
    reports = [folder for study in results.study_folders() for folder in abandoned(study)]
    return [*sorted(unfinished), *reports, results.tune]


def _remove(root: Path, path: Path) -> None:
    with suppress(FileNotFoundError):  # it was in a folder that is gone by now
        remove_below(root, path)
    if path.parent.parent.name == "checkpoints":
        with suppress(OSError):  # it holds more
            path.parent.rmdir()


def _files_in(path: Path) -> list[Path]:
    return [Path(folder, name) for folder, _, names in os.walk(path) for name in names] or [path]


def _size(paths: Sequence[Path]) -> str:
    files = [file for path in paths for file in _files_in(path)]
    return (
        f"{counted(len(files), 'file')}, {gigabytes(sum(file.lstat().st_size for file in files))}"
    )
