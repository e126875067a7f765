"""`gc`: what a results directory can do without, in kinds, and removing it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from analysis.access import is_folder
from analysis.columns import RUNS, WANTED
from analysis.record import RecordError, read_rows
from analysis.report_folder import abandoned
from sweep.results import Results, storage_problems
from sweep.standing import State, state_of
from sweep.text import counted, gigabytes
from sweep.verify_checks import Row, end_problems
from trainables.pretrained import weights_damage
from trainables.recipe import pretraining_checkpoints

LEFTOVERS, CHECKPOINTS, UNWANTED = KINDS = ("leftovers", "checkpoints", "unwanted")


@dataclass
class Kind:
    """Files that can go, and what is lost with them."""

    consequence: str
    files: list[Path] = field(default_factory=list)
    """In the order of their removal: at every moment between, the record is sound."""
    num_runs: int = 0
    device_s: float = 0.0
    """Device time that the runs took, of those that have ended."""

    def add(self, files: Iterable[Path], device_s: float = 0.0) -> None:
        """Add what there is of a run; nothing, if nothing is."""
        files = list(files)
        if files:
            self.files += files
            self.num_runs += 1
            self.device_s += device_s


@dataclass
class Garbage:
    """What can go, by kind, and why some was not looked for."""

    kinds: dict[str, Kind]
    passed_over: list[str] = field(default_factory=list)


def find_garbage(results: Results, only: Collection[str] = KINDS) -> Garbage:
    """Look for what can go; changes nothing.

    A run is looked at by itself, so that it takes no more memory than its files' names.
    """
    found = Garbage(
        {
            LEFTOVERS: Kind(
                "of writes that were cut short, damaged checkpoints and Ray Tune's scratch; nothing is lost"
            ),
            CHECKPOINTS: Kind(
                "of runs that are complete or diverged; a higher step budget would train these from step 0. "
                "The record, curves and tables stay"
            ),
            UNWANTED: Kind(
                "rows, curves and checkpoints of runs that no recorded study wants. MLflow keeps its copies"
            ),
        }
    )
    found.kinds[LEFTOVERS].files = list(leftovers(results))
    if set(only) - {LEFTOVERS}:
        try:
            _find_runs(results, found)
        except RecordError as error:
            found.passed_over.append(
                f"{error}. Until then nobody knows what is wanted: only {LEFTOVERS} are looked for"
            )
    found.kinds = {name: kind for name, kind in found.kinds.items() if name in only and kind.files}
    return found


def _find_runs(results: Results, found: Garbage) -> None:
    budgets, damaged, kept = wanted_budgets(results), damaged_weights(results), 0
    for run_id in recorded_ids(results):
        try:
            row = _sound_row(run_id, results)
        except RecordError as error:
            found.passed_over.append(str(error))
            continue
        if damaged and run_id not in budgets and (row is None or row["weights_checksum"] is not None):
            kept += 1
            continue
        saved = sorted(results.checkpoints(run_id).glob("step-*.safetensors"))
        if row and (run_id not in budgets or state_of(run_id, budgets[run_id], row, results).over):
            ended = State(row["status"]).over
            found.kinds[CHECKPOINTS].add(saved if ended else ())
        if run_id not in budgets:
            # The row first: a row without its curve would count as done.
            record = [path for path in (results.run(run_id), results.curve(run_id)) if path.exists()]
            found.kinds[UNWANTED].add([*record, *saved], row["device_s"] if row else 0.0)
    if kept:
        found.passed_over.append(
            f"the weights in {damaged[0]} are damaged or closed. {counted(kept, 'run')} that no recorded study wants "
            f"may have begun from the intact ones, and are left until these are back, or the folder is deleted"
        )


def damaged_weights(results: Results) -> list[Path]:
    """Return the folders of weights that were pretrained here and are not what they were, or cannot be read."""
    folders = [path.parent for path in sorted(results.pretrained.glob("[!.]*/model.safetensors"))]
    return [folder for folder in folders if ".partial-" not in folder.name and not _is_intact(folder)]


def _is_intact(weights: Path) -> bool:
    try:
        return weights_damage(weights) is None
    except OSError:
        return False


def _sound_row(run_id: str, results: Results) -> Row | None:
    path = results.run(run_id)
    rows = read_rows(path, RUNS)
    if rows is None:
        return None
    if problems := end_problems(rows):
        raise RecordError(f"{path}: {'; '.join(problems)}: delete it and run the study again")
    return rows[0]


def wanted_budgets(results: Results) -> dict[str, int]:
    """Return what the recorded studies want: run id -> the highest step budget.

    Raises:
        RecordError: no study is recorded, or what one wants cannot be read.
    """
    folders = [path for path in sorted((results.root / "studies").glob("*")) if path.is_dir()]
    if not folders:
        raise RecordError(f"no study is recorded in {results.root}: run one first")
    budgets: dict[str, int] = {}
    for folder in folders:
        rows = read_rows(folder / "wanted.parquet", WANTED)
        if rows is None:
            raise RecordError(
                f"no {folder / 'wanted.parquet'}: run the study again, that writes it, or delete {folder}"
            )
        for row in rows:
            budgets[row["run_id"]] = max(row["num_steps"], budgets.get(row["run_id"], 0))
    return budgets


def recorded_ids(results: Results) -> list[str]:
    """Return the ids that there is a row, a curve or a checkpoint folder of, sorted."""
    names = {path.stem for folder in ("runs", "curves") for path in (results.root / folder).glob("[!.]*.parquet")}
    checkpoints = (results.root / "checkpoints").glob("[!.]*")
    return sorted(names | {path.name for path in checkpoints if is_folder(path)})


def leftovers(results: Results) -> Iterator[Path]:
    """Yield files that nothing reads while no process writes: partial ones, damaged checkpoints, scratch.

    A folder of scratch that holds no file yet is yielded itself.
    """
    partial = (".*.partial", "*/.*.partial", "studies/*/.*.partial", "studies/*/report/.*.partial")
    for pattern in (*partial, "checkpoints/*/partial-*", "checkpoints/*/damaged-*"):
        yield from sorted(results.root.glob(pattern))
    for folder in _scratch_folders(results):
        files = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
        yield from files or ([folder] if folder != results.tune else [])


def _scratch_folders(results: Results) -> list[Path]:
    weights = [path.parent for path in results.pretrained.glob("*/model.safetensors")]
    ended = [path for folder in weights if (path := pretraining_checkpoints(folder)).is_dir()]
    unfinished = [*results.pretrained.glob("*.partial-*"), *ended, *results.root.glob(".import-*")]
    reports = [folder for study in sorted((results.root / "studies").glob("*")) for folder in abandoned(study)]
    return [*sorted(unfinished), *reports, results.tune]


def remove(results: Results, shown: Mapping[str, Kind]) -> tuple[int, int]:
    """Remove what was shown and still can go; return how many files it was, and their size in bytes.

    Raises:
        UserError: somebody is writing, or files cannot be removed.
    """
    with storage_problems(results.root), results.writing("gc"):
        # Again, now that nobody else writes: a sweep may have been here since, and have taken something up.
        now = find_garbage(results, shown).kinds
        still = [set(now[name].files) if name in now else set() for name in shown]
        files = [
            path for kind, there in zip(shown.values(), still, strict=True) for path in kind.files if path in there
        ]
        files = list(dict.fromkeys(files))
        sizes = [_remove_file(path) for path in files]
        if LEFTOVERS in shown:
            for folder in _scratch_folders(results):
                shutil.rmtree(folder, ignore_errors=True)
        return len(sizes), sum(sizes)


def _remove_file(path: Path) -> int:
    size = file_bytes([path])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return size
    path.unlink(missing_ok=True)
    if path.parent.parent.name == "checkpoints" and not any(path.parent.iterdir()):
        path.parent.rmdir()
    return size


def file_bytes(files: Iterable[Path]) -> int:
    """Return the size of files together; one that is gone by now counts 0."""
    return sum(path.lstat().st_size for path in files if path.is_symlink() or path.exists())


def described(name: str, kind: Kind) -> str:
    """Return a kind as text: `checkpoints: 12 files of 12 runs, 3.4 MB: ...`."""
    runs = f" of {counted(kind.num_runs, 'run')}" if kind.num_runs else ""
    hours = f". They took {kind.device_s / 3600:.2f} device hours" if name == UNWANTED else ""
    size = f"{counted(len(kind.files), 'file')}{runs}, {gigabytes(file_bytes(kind.files))}"
    return f"{name}: {size}: {kind.consequence}{hours}"


def collect(results: Results, only: Collection[str], agreed: Callable[[str], bool], say: Callable[[str], None]) -> None:
    """Say what can go, ask for each kind, and remove what was agreed to.

    Args:
        results: a results directory.
        only: kinds to look for.
        agreed: told a kind's name, whether it is to be removed; called when all kinds have been said.
        say: told lines of text.

    Raises:
        UserError: somebody is writing, or files cannot be removed.
    """
    with storage_problems(results.root), results.writing("gc"):
        found = find_garbage(results, only)
    for note in found.passed_over:
        say(f"note: {note}")
    if not found.kinds:
        say("nothing to remove")
        return
    for name, kind in found.kinds.items():
        say(described(name, kind))
    chosen = {name: kind for name, kind in found.kinds.items() if agreed(name)}
    if chosen:
        number, size = remove(results, chosen)
        say(f"removed {counted(number, 'file')}, {gigabytes(size)}")
