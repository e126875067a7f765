"""`gc`: finds what no study needs in a results directory, by kind, and removes it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lr_sweep.analysis.record.columns import WANTED
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.analysis.report.folder import abandoned
from lr_sweep.common.files import is_being_written
from lr_sweep.common.scratch import dead_folders, own_folder
from lr_sweep.common.text import counted, gigabytes
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import State, recorded_ids, state_of
from lr_sweep.sweep.results.validation import read_sound_row
from lr_sweep.trainables.pretraining.recipe import pretraining_checkpoints
from lr_sweep.trainables.pretraining.weights import weights_damage

LEFTOVERS, SCRATCH, CHECKPOINTS, UNWANTED = KINDS = ("leftovers", "scratch", "checkpoints", "unwanted")
CONSEQUENCES = {
    LEFTOVERS: "files of interrupted writes, damaged checkpoints and Ray Tune's scratch; nothing is lost",
    SCRATCH: "temporary folders of ended processes, outside of the results directory; nothing is lost",
    CHECKPOINTS: "checkpoints of complete and diverged runs. With a higher step budget these would train from step 0; "
    "the record, curves and tables stay",
    UNWANTED: "rows, curves and checkpoints of runs that no recorded study wants. MLflow keeps its copies",
}


@dataclass
class Kind:
    """Files of one kind that can go."""

    files: list[Path] = field(default_factory=list)
    """Files in the order of their removal: the record is sound after each of them."""
    num_runs: int = 0
    device_s: float = 0.0
    """Device seconds of the runs that have ended."""

    def add_run(self, files: Collection[Path], device_s: float = 0.0) -> None:
        """Add what there is of a run."""
        self.files += files
        self.num_runs += bool(files)
        self.device_s += device_s


class Garbage(NamedTuple):
    """What can go, by kind, and notes on what was not looked for."""

    kinds: dict[str, Kind]
    notes: list[str]


def collect(results: Results, only: Collection[str], agreed: Callable[[str], bool], say: Callable[[str], None]) -> None:
    """List what can go of the kinds `only`, then remove those agreed to; raises UserError if another process writes."""
    with storage_problems(results.root), results.writing("gc"):
        found = find_garbage(results, only)
    for note in found.notes:
        say(f"note: {note}")
    if not found.kinds:
        say("nothing to remove")
    for name, kind in found.kinds.items():
        say(description(name, kind))
    chosen = {name: kind for name, kind in found.kinds.items() if agreed(name)}
    if chosen:
        number, num_bytes = remove(results, chosen)
        say(f"removed {counted(number, 'file')}, {gigabytes(num_bytes)}")


def find_garbage(results: Results, only: Collection[str] = KINDS) -> Garbage:
    """Look for what can go. Reads one run at a time, and holds no more than the files' names."""
    found = Garbage({name: Kind() for name in KINDS}, [])
    found.kinds[LEFTOVERS].files = list(leftovers(results))
    found.kinds[SCRATCH].files = _left_by_processes() if SCRATCH in only else []
    if set(only) - {LEFTOVERS, SCRATCH}:
        try:
            _find_runs(results, found)
        except RecordError as error:
            found.notes.append(
                f"{error}. What studies want is unknown until then, so only {LEFTOVERS} and {SCRATCH} are listed"
            )
    return found._replace(kinds={name: kind for name, kind in found.kinds.items() if name in only and kind.files})


def _find_runs(results: Results, found: Garbage) -> None:
    budgets, damaged, num_kept = _wanted_budgets(results), _damaged_weights(results), 0
    for run_id in recorded_ids(results):
        try:
            row = read_sound_row(results, run_id)
        except RecordError as error:
            found.notes.append(str(error))
            continue
        wanted = run_id in budgets
        if damaged and not wanted and (row is None or row["weights_checksum"] is not None):
            num_kept += 1
            continue
        saved = sorted(results.checkpoints(run_id).glob("step-*.safetensors"))
        # A run that failed may be tried again; one that a study wants may have steps left to train.
        if row and State(row["status"]).over and (not wanted or state_of(budgets[run_id], row, started=True).over):
            found.kinds[CHECKPOINTS].add_run(saved)
        if not wanted:
            # The row first: a row without its curve would count as done.
            paths = (results.run(run_id), results.curve(run_id), results.log(run_id))
            record = [path for path in paths if path.exists()]
            found.kinds[UNWANTED].add_run([*record, *saved], row["device_s"] if row else 0.0)
    if num_kept:
        found.notes.append(
            f"the weights in {damaged[0]} are damaged or unreadable. {counted(num_kept, 'run')} that no recorded study "
            f"wants may have started from the intact ones, so they are kept: restore the weights or delete the folder"
        )


def _damaged_weights(results: Results) -> list[Path]:
    damaged = []
    for folder in [path.parent for path in sorted(results.pretrained.glob("[!.]*/model.safetensors"))]:
        try:
            damage = ".partial-" not in folder.name and weights_damage(folder)
        except OSError as error:
            damage = str(error)
        if damage:
            damaged.append(folder)
    return damaged


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


def _left_by_processes() -> list[Path]:
    """Return what ended processes of this user left in folders for temporary files; the next `run` removes it, too."""
    temporary = tempfile.gettempdir()
    owned = {own_folder(Path(place)) for place in (os.environ.get("RAY_TMPDIR") or temporary, temporary)}
    return sorted(folder for place in owned for folder in dead_folders(place))


def remove(results: Results, shown: Mapping[str, Kind]) -> tuple[int, int]:
    """Remove what was shown and still can go; return how many files it was, and their size in bytes."""
    with storage_problems(results.root), results.writing("gc"):
        # Looked for again under the lock: a sweep may have resumed a run since.
        now = find_garbage(results, shown).kinds
        still = {path for name, kind in now.items() for path in set(kind.files) & set(shown[name].files)}
        files = [path for kind in shown.values() for path in kind.files]
        sizes = [_remove(path) for path in dict.fromkeys(files) if path in still]
        for folder in _scratch_folders(results) if LEFTOVERS in shown else []:
            shutil.rmtree(folder, ignore_errors=True)
        return len(sizes), sum(sizes)


def _remove(path: Path) -> int:
    num_bytes = _file_bytes(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return num_bytes
    path.unlink(missing_ok=True)
    if path.parent.parent.name == "checkpoints" and not any(path.parent.iterdir()):
        path.parent.rmdir()
    return num_bytes


def _file_bytes(path: Path) -> int:
    """Return the size of a file; 0: it is gone by now."""
    return path.lstat().st_size if path.is_symlink() or path.exists() else 0


def description(name: str, kind: Kind) -> str:
    """Return a kind as text: `checkpoints: 12 files of 12 runs, 3.4 MB: ...`."""
    runs = f" of {counted(kind.num_runs, 'run')}" if kind.num_runs else ""
    hours = f". They took {kind.device_s / 3600:.2f} device hours" if name == UNWANTED else ""
    size = gigabytes(sum(map(_file_bytes, kind.files)))
    return f"{name}: {counted(len(kind.files), 'file')}{runs}, {size}: {CONSEQUENCES[name]}{hours}"
