"""`gc`: finds what no study needs in a results directory, by kind, and removes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from lr_sweep.analysis.record.columns import WANTED
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.analysis.report.folder import abandoned
from lr_sweep.common.files import is_being_written
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


def collect(results: Results, only: Collection[str], agreed: Callable[[str], bool], say: Say) -> None:
    """List what can go of the kinds `only`, then remove those agreed to; no process can write until this has ended.

    Raises UserError if another process writes.
    """
    with storage_problems(results.root), results.writing("gc"):
        found = find_garbage(results, only)
        for note in found.notes:
            say(f"note: {note}")
        if not found.files:
            say("nothing to remove")
        for kind, files in found.files.items():
            size = gigabytes(sum(map(_num_bytes, files)))
            say(f"{kind}: {counted(len(files), 'file')}, {size}: {CONSEQUENCES[kind]}")
        chosen = [kind for kind in found.files if agreed(kind)]
        if chosen:
            removed = list(dict.fromkeys(path for kind in chosen for path in found.files[kind]))
            num_bytes = sum(map(_remove, removed))
            for folder in _scratch_folders(results) if LEFTOVERS in chosen else []:
                shutil.rmtree(folder, ignore_errors=True)
            say(f"removed {counted(len(removed), 'file')}, {gigabytes(num_bytes)}")


def find_garbage(results: Results, only: Collection[str] = KINDS) -> Garbage:
    """Look for what can go. Reads one run at a time, and holds no more than the files' names."""
    found = Garbage({kind: [] for kind in KINDS}, [])
    found.files[LEFTOVERS] += leftovers(results)
    if set(only) - {LEFTOVERS}:
        try:
            _find_runs(results, found)
        except RecordError as error:
            found.notes.append(f"{error}. What studies want is unknown until then, so only {LEFTOVERS} are listed")
    return found._replace(files={kind: files for kind, files in found.files.items() if kind in only and files})


def _find_runs(results: Results, found: Garbage) -> None:
    budgets = _wanted_budgets(results)
    for run_id in recorded_ids(results):
        try:
            row = read_sound_row(results, run_id)
        except RecordError as error:
            found.notes.append(str(error))
            continue
        wanted = run_id in budgets
        folder = results.checkpoints(run_id)
        saved = [*folder.glob(KEPT), *sorted(folder.glob("step-*.safetensors"))]
        # A run that failed may be tried again; one that a study wants may have steps left to train.
        if row and State(row["status"]).over and (not wanted or state_of(budgets[run_id], row, started=True).over):
            found.files[CHECKPOINTS] += saved
        if not wanted:
            # The row first: a row without its curve would count as done.
            paths = (results.run(run_id), results.curve(run_id), results.log(run_id))
            found.files[UNWANTED] += [path for path in paths if path.exists()] + saved


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
    """Yield files that nothing reads while no process writes: partial ones, damaged checkpoints, Tune's scratch.

    A folder that holds no file yet is yielded itself.
    """
    yield from (path for path in sorted(results.root.rglob(".*.partial")) if not is_being_written(path))
    for name in ("partial-*", ".tmp*", "damaged-*"):  # the second are safetensors'
        yield from sorted(results.root.glob(f"checkpoints/*/{name}"))
    for folder in _scratch_folders(results):
        files = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
        yield from files or ([folder] if folder != results.tune else [])


def _scratch_folders(results: Results) -> list[Path]:
    weights = [path.parent for path in results.pretrained.glob("*/model.safetensors")]
    ended = [path for folder in weights if (path := pretraining_checkpoints(folder)).is_dir()]
    unfinished = [*results.pretrained.glob("*.partial-*"), *ended, *results.root.glob(".merge-*")]
    reports = [folder for study in results.study_folders() for folder in abandoned(study)]
    return [*sorted(unfinished), *reports, results.tune]


def _remove(path: Path) -> int:
    num_bytes = _num_bytes(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return num_bytes
    path.unlink()
    if path.parent.parent.name == "checkpoints" and not any(path.parent.iterdir()):
        path.parent.rmdir()
    return num_bytes


def _num_bytes(path: Path) -> int:
    return path.lstat().st_size
