"""`verify`: whether a results directory is sound. Reads every file, one at a time, and changes nothing."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lr_sweep.analysis.record.columns import CURVES
from lr_sweep.analysis.record.parquet import INDEX, read_table
from lr_sweep.analysis.record.paths import RecordError, UnreadableError, closed_folder, is_folder, misplaced, unreadable
from lr_sweep.analysis.record.read import check_format, read_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import hash_file
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.common.text import counted
from lr_sweep.sweep.inspection.gc import LEFTOVERS, UNWANTED, description, find_garbage
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import recorded_ids
from lr_sweep.sweep.results.validation import (
    check_options,
    checkpoint_problem,
    curve_problems,
    read_sound_row,
    study_problems,
)
from lr_sweep.trainables.pretraining.weights import WEIGHTS, weights_damage

if TYPE_CHECKING:
    from lr_sweep.sweep.study.study import Study

FILES = (".parquet", ".json", ".yaml", ".safetensors", ".log", ".db", ".lock")
"""Endings of the names of files; no folder of a results directory has one."""
UNREAD = ("tune", "mlflow-artifacts", "report")
"""Folders of scratch, and of files that are written again from the others."""


class Verification:
    """Looks at everything in a results directory; a sweep may be writing to it."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.counts: Counter[str] = Counter()
        self._noted: list[str] = []

    def problems(self) -> Iterator[str]:
        """Yield lines that name a file which is not as it should be, and say what to do; reads one file at a time."""
        yield from dict.fromkeys(self._all())  # a link that leads nowhere is seen by name, and where it is read

    def notes(self) -> Iterator[str]:
        """Yield lines about what does no harm, after `problems`."""
        yield from self._noted
        if not self.results.being_written():
            yield from self._garbage()

    def _all(self) -> Iterator[str]:
        yield from self._closed_folders()
        yield from self._misplaced()
        yield from self._others()
        yield from self._studies()
        for run_id in recorded_ids(self.results):
            num_evaluations, found = self._run(run_id)
            if found:  # looked at once more: a sweep may have been between writing a run's curve and its row
                num_evaluations, found = self._run(run_id)
            self.counts["runs"] += self.results.holds(run_id)
            self.counts["evaluations"] += num_evaluations
            yield from found
            yield from self._checkpoints(run_id)
        if self.results.uri is not None:
            yield from self._stored_checkpoints(ObjectStore(self.results.uri))
        yield from self._weights()

    def _closed_folders(self) -> Iterator[str]:
        """Find folders that would seem to be empty; `check_format` has looked at the others."""
        for top in (self.results.all_checkpoints, self.results.pretrained):
            folders = [top, *sorted(top.glob("[!.]*"))]
            yield from (text for folder in folders if (text := closed_folder(folder)))

    def _misplaced(self) -> Iterator[str]:
        """Find links that lead nowhere, where readers would see no file, and what is no plain file."""
        for folder, folders, files in os.walk(self.results.root):
            folders[:] = sorted(name for name in folders if name not in UNREAD and not name.startswith("."))
            suspects = [*files, *(name for name in folders if name.endswith(FILES))]
            for name in sorted(name for name in suspects if not name.startswith(".")):
                if text := misplaced(Path(folder, name)):
                    yield text

    def _others(self) -> Iterator[str]:
        index, mirror = self.results.index, self.results.mlflow_database
        try:
            read_table(index, INDEX)
        except UnreadableError as error:
            yield str(error)
        except RecordError:
            self._noted.append(f"{index}: it cannot be read, so rows are read from their files; delete it")
        if mirror.is_file() and (problem := _database_problem(mirror)):
            yield f"{mirror}: {problem}: delete it; `run` and `export --mlflow` make it again"

    def _studies(self) -> Iterator[str]:
        for folder in self.results.study_folders():
            if closed := closed_folder(folder):
                yield closed
            elif is_folder(folder):
                yield from self._study(folder)

    def _study(self, folder: Path) -> list[str]:
        problems: list[str] = []
        with self._named(folder, problems):
            problems += study_problems(self.results, folder.name)
        with self._named(folder, problems):
            check_options(self.results.options(folder.name))
        return problems

    @contextmanager
    def _named(self, study: Path, problems: list[str]) -> Iterator[None]:
        try:
            yield
        except RecordError as error:
            begun = self.results.being_written() and not self.results.facts(study.name).exists()  # its last file
            if isinstance(error, UnreadableError) or not begun:
                problems.append(str(error))

    def _run(self, run_id: str) -> tuple[int, list[str]]:
        """Look at a run's row, then at its curve, which is written before it; return how many evaluations it has."""
        row, issues = None, []
        row_path, path = self.results.run(run_id), self.results.curve(run_id)
        try:
            row = read_sound_row(self.results, run_id)
        except RecordError as error:
            issues.append(str(error))
        try:
            points = read_rows(path, CURVES)
        except RecordError as error:
            return 0, [*issues, str(error)]
        problems = curve_problems(run_id, points, row)
        where, also = (row_path, "") if points is None else (path, f", and {row_path} if there is one,")
        issues += [f"{where}: {problem}: delete it{also} and run the study again" for problem in problems]
        return len(points or ()), issues

    def _checkpoints(self, run_id: str) -> Iterator[str]:
        for path in self._saved(run_id):
            try:
                yield from self._checkpoint(str(path), hash_file(path))
            except OSError as error:
                if os.path.lexists(path):  # else a sweep has saved a newer one
                    yield unreadable(path, error)

    def _saved(self, run_id: str) -> list[Path]:
        try:
            return sorted(self.results.checkpoints(run_id).glob("step-*.safetensors"))
        except PermissionError:  # `_closed_folders` has named the folder
            return []

    def _stored_checkpoints(self, store: ObjectStore) -> Iterator[str]:
        for name in store.names("checkpoints"):
            with suppress(FileNotFoundError):  # a sweep has saved a newer one
                yield from self._checkpoint(f"{store.uri}/{name}", store.sha256(name))

    def _checkpoint(self, name: str, sha256: str) -> Iterator[str]:
        self.counts["checkpoints"] += 1
        if problem := checkpoint_problem(name, sha256):
            yield problem

    def _weights(self) -> Iterator[str]:
        for folder in sorted(self.results.pretrained.glob("[!.]*")):
            if not is_folder(folder) or closed_folder(folder) or ".partial-" in folder.name:  # named above, or scratch
                continue
            try:
                problem = weights_damage(folder)
            except OSError as error:
                yield unreadable(Path(error.filename or folder), error)
                continue
            self.counts["weights"] += 1
            if problem and not any(map(misplaced, folder.iterdir())):  # which is named by itself
                mend = "`run` and `data --pretrain` make it again; runs from other bytes are new runs"
                yield f"{folder}: {problem}: delete it; {mend}"

    def _garbage(self) -> Iterator[str]:
        for folder in sorted(self.results.pretrained.glob(".*.checkpoints")):
            weights = self.results.pretrained / folder.name[1:].removesuffix(".checkpoints")
            if not (weights / WEIGHTS).exists():
                mend = "`run` and `data --pretrain` resume it; delete it if no study needs it"
                yield f"{folder}: a pretraining that has not ended; {mend}"
        with suppress(PermissionError):  # `problems` has named it
            for name, kind in find_garbage(self.results, (LEFTOVERS, UNWANTED)).kinds.items():
                yield f"`gc` can remove {description(name, kind)}"


def _database_problem(path: Path) -> str | None:
    """Return what SQLite finds wrong with the pages of a database; None: nothing, or a process holds it now."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        return None
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if found == "ok" else str(found)


def verify(results: Results, say: Callable[[str], None]) -> int:
    """Pass every problem and note to `say`, a line each, then a summary; return the number of problems."""
    check_format(results.root)
    verification = Verification(results)
    if results.being_written():
        say("a sweep is writing here: what it adds from now on may not be checked")
    found: Counter[str] = Counter()
    for kind, texts in (("problem", verification.problems()), ("note", verification.notes())):
        for text in texts:
            found[kind] += 1
            say(f"{kind}: {text}")
    seen = ", ".join(counted(verification.counts[f"{noun}s"], noun) for noun in ("run", "evaluation", "checkpoint"))
    problems = counted(found["problem"], "problem") if found["problem"] else "no problems"
    notes = f", {counted(found['note'], 'note')}" if found["note"] else ""
    say(f"{seen}, {verification.counts['weights']} weights: {problems}{notes}")
    return found["problem"]


def probe_study(study: Study, data_dir: Path, say: Callable[[str], None]) -> int:
    """Train a few steps of each cell of a training function: do they repeat, and resume exactly?

    Passes a line a cell to `say`, and returns how many are not deterministic, resume inexactly, or fail.

    Raises UserError for a study that has no training function of the user's own, or whose device is not here.
    """
    from lr_sweep.sweep.plan.placement import Placement, check_beforehand
    from lr_sweep.sweep.study.runs import one_of_each
    from lr_sweep.trainables.own.probe import probe
    from lr_sweep.trainables.own.run import TrainingFunctionError, own_run

    if study.files is None:
        raise UserError(f"{study.study} has no training function of its own (`trainable`): nothing to probe")
    placement, num_problems = Placement(resources=study.resources), 0
    check_beforehand(placement, study.for_gpus)
    for cell, first in one_of_each(study, {}, data_dir).items():
        try:
            found = probe(own_run(first.run), placement.device)
            sound, text = not found.random and not found.lost, found.text()
        except TrainingFunctionError as error:
            sound, text = False, str(error)
        num_problems += not sound
        say(f"{'' if sound else 'problem: '}{study.study} {' '.join(cell)}: {text}")
    return num_problems
