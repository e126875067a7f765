"""`verify`: whether a results directory is sound, from what its own files say. Reads alone; one file at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.access import closed_folder, is_folder, unreadable
from analysis.columns import CURVES, PLANNED, RUNS
from analysis.record import (
    RecordError,
    UnreadableError,
    check_format,
    planned_path,
    read_rows,
    read_study,
    read_wanted_rows,
)
from analysis.run_index import index_lacks, index_path, is_behind
from analysis.store import Store
from datasets.files import hash_file
from sweep.garbage import damaged_weights, leftovers, recorded_ids, wanted_budgets
from sweep.results import Results
from sweep.text import counted
from sweep.verify_checks import Row, clock_notes, curve_problems, evaluate_every, last_evaluation, row_problems
from trainables.pretrained import WEIGHTS, weights_damage


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is not as it should be."""

    text: str
    """One line that names the file and says what to do."""
    is_note: bool = False
    """Whether it does no harm."""


class Verification:
    """Looks at everything of a results directory.

    Args:
        results: a results directory; a sweep may be writing to it.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self.counts: Counter[str] = Counter()
        """What was looked at so far: runs, evaluations, checkpoints, weights."""

    def findings(self) -> Iterator[Finding]:
        """Yield what is found, file by file. No more than one file and the runs' ids are held at a time."""
        yield from self._closed_folders()
        yield from self._studies()
        for run_id in recorded_ids(self.results):
            num_evaluations, found = self._run(run_id)
            if found:  # looked at again before it is told: a sweep may have been between a run's curve and its row
                num_evaluations, found = self._run(run_id)
            self.counts["runs"] += self.results.holds(run_id)
            self.counts["evaluations"] += num_evaluations
            yield from found
            yield from self._checkpoints(run_id)
        if self.results.uri is not None:
            yield from self._stored_checkpoints(Store(self.results.uri))
        yield from self._weights()
        yield from self._index()
        if not self.results.being_written():
            yield from self._garbage()

    def _closed_folders(self) -> Iterator[Finding]:
        """Find folders that would seem to be empty; those of rows, curves and studies are open."""
        for name in ("checkpoints", "pretrained"):
            folders = [self.results.root / name, *sorted((self.results.root / name).glob("*"))]
            yield from (Finding(text=text) for folder in folders if (text := closed_folder(folder)))

    def _studies(self) -> Iterator[Finding]:
        for folder in sorted(path for path in (self.results.root / "studies").glob("*") if path.is_dir()):
            try:
                problems = list(study_problems(self.results, folder.name))
                read_rows(planned_path(self.results.root, folder.name), PLANNED)
            except UnreadableError as error:
                yield Finding(text=str(error))
            except RecordError as error:
                # Its last file: until it is there, a sweep that has just begun is writing the folder.
                if (folder / "study.json").exists() or not self.results.being_written():
                    yield Finding(text=str(error))
            else:
                yield from (Finding(text=problem) for problem in problems)

    def _run(self, run_id: str) -> tuple[int, list[Finding]]:
        """Look at a run's row, then at its curve, which is written before it; return how many evaluations it has."""
        row, findings = self._row(run_id)
        path = self.results.curve(run_id)
        try:
            points = read_rows(path, CURVES)
        except RecordError as error:
            return 0, [*findings, Finding(text=str(error))]
        if points is None:
            return 0, [*findings, *self._without_curve(run_id, row)]
        problems = curve_problems(run_id, points, row)
        mend = f"delete it, and {self.results.run(run_id)} if there is one, and run the study again"
        findings += [Finding(text=f"{path}: {problem}: {mend}") for problem in problems]
        if not problems:
            findings += [Finding(text=f"{path}: {note}", is_note=True) for note in clock_notes(row, points)]
        return len(points), findings

    def _row(self, run_id: str) -> tuple[Row | None, list[Finding]]:
        """Return a run's row, if there is one and it is sound, and what is wrong with it otherwise."""
        path = self.results.run(run_id)
        try:
            rows = read_rows(path, RUNS)
        except RecordError as error:
            return None, [Finding(text=str(error))]
        if rows is None:
            return None, []
        problems = row_problems(run_id, rows)
        found = [Finding(text=f"{path}: {problem}: delete it and run the study again") for problem in problems]
        return (None if problems else rows[0]), found

    def _without_curve(self, run_id: str, row: Row | None) -> Iterator[Finding]:
        if row and row["status"] != "failed" and last_evaluation(row, evaluate_every(row) or 1):
            path = self.results.run(run_id)
            yield Finding(text=f"{path}: it has no {self.results.curve(run_id)}: delete it and run the study again")

    def _checkpoints(self, run_id: str) -> Iterator[Finding]:
        for path in sorted(self.results.checkpoints(run_id).glob("step-*.safetensors")):
            try:
                problem = checkpoint_problem(path)
            except FileNotFoundError:  # a sweep has saved a newer one
                continue
            except OSError as error:
                yield Finding(text=unreadable(path, error))
                continue
            self.counts["checkpoints"] += 1
            if problem:
                yield Finding(text=f"{path}: {problem}: delete it; its run goes on from an earlier one, or from step 0")

    def _stored_checkpoints(self, store: Store) -> Iterator[Finding]:
        """Look at all checkpoints in a store; its copy has none."""
        for name in store.names("checkpoints"):
            want = Path(name).stem.split("-")[-1]
            try:
                got = store.sha256(name)[: len(want)]
            except FileNotFoundError:  # a sweep has saved a newer one
                continue
            self.counts["checkpoints"] += 1
            if got != want:
                problem = f"its sha256 begins with {got}, its name says {want}"
                yield Finding(text=f"{store.uri}/{name}: {problem}: delete it; its run goes on from an earlier one")

    def _weights(self) -> Iterator[Finding]:
        for folder in sorted(self.results.pretrained.glob("[!.]*")):
            if is_folder(folder) and not closed_folder(folder) and ".partial-" not in folder.name:
                try:
                    problem = weights_damage(folder)
                except OSError as error:
                    yield Finding(text=unreadable(Path(error.filename or folder), error))
                    continue
                self.counts["weights"] += 1
                if problem:
                    yield Finding(
                        text=f"{folder}: {problem}: delete it; `run` and `pretrain` make it again, and runs that "
                        f"began from other bytes are other runs"
                    )

    def _index(self) -> Iterator[Finding]:
        """Notes on the index of rows: what is wrong with it, readers pass over."""
        path = index_path(self.results.root)
        try:
            lacks = index_lacks(self.results.root)
        except OSError as error:
            yield Finding(text=unreadable(path, error), is_note=True)
            return
        if lacks is None:
            mend = "delete it; a large record gets a new one from the next `run`, `gc` or `import`"
            yield Finding(text=f"{path}: damaged, and not used: {mend}", is_note=True)
        elif path.exists() and is_behind(lacks):
            rest = f"{counted(lacks, 'row')} of {self.results.root / 'runs'}, which are read from their files"
            yield Finding(text=f"{path}: lacks {rest}; the next `run`, `gc` or `import` adds them", is_note=True)

    def _garbage(self) -> Iterator[Finding]:
        """Notes on what `gc` removes."""
        for folder in sorted(self.results.pretrained.glob(".*.checkpoints")):
            if not (self.results.pretrained / folder.name[1:].removesuffix(".checkpoints") / WEIGHTS).exists():
                text = (
                    "a pretraining that has not ended; `run` and `pretrain` resume it; delete it if no study needs it"
                )
                yield Finding(text=f"{folder}: {text}", is_note=True)
        for path in leftovers(self.results):
            yield Finding(text=f"{path}: a leftover of a process that died; `gc` removes it", is_note=True)
        try:
            wanted = wanted_budgets(self.results)
        except RecordError:  # told by `_studies`, unless there is no study at all
            return
        unwanted = [run_id for run_id in recorded_ids(self.results) if run_id not in wanted]
        recorded = [run_id for run_id in unwanted if self.results.holds(run_id)]
        if recorded and not damaged_weights(self.results):
            runs = counted(len(recorded), "run")
            yield Finding(
                text=f"no recorded study wants {runs}, {recorded[0]} for one; `gc` removes them", is_note=True
            )
        for run_id in sorted(set(unwanted) - set(recorded)):
            folder = self.results.checkpoints(run_id)
            if any(folder.glob("step-*.safetensors")):
                yield Finding(text=f"{folder}: of a run that nothing else speaks of; `gc` removes it", is_note=True)


def study_problems(results: Results, name: str) -> Iterator[str]:
    """Yield what is wrong with a study's `study.json` and `wanted.parquet`, and what to do.

    Raises:
        RecordError: one of them is missing, damaged or cannot be read.
    """
    folder, again = results.study(name), "run the study again, that writes it"
    study = read_study(results.root, name).study
    ids = Counter(row["run_id"] for row in read_wanted_rows(results.root, name))
    if study != name:
        yield f"{folder / 'study.json'}: got study {study!r}, want {name!r}: {again}"
    if twice := sorted(run_id for run_id, number in ids.items() if number > 1):
        yield f"{folder / 'wanted.parquet'}: wants {', '.join(twice)} more than once: {again}"


def checkpoint_problem(path: Path) -> str | None:
    """Tell what is wrong with a checkpoint; None: nothing.

    Raises:
        OSError: there is none, or it cannot be read.
    """
    want = path.stem.split("-")[-1]
    got = hash_file(path)[: len(want)]
    return None if got == want else f"its sha256 begins with {got}, its name says {want}"


def verify(results: Results, say: Callable[[str], None]) -> int:
    """Say every finding in a line as it is found, then a summary; return the number of problems.

    Raises:
        RecordError: it is no results directory, or one of another format.
    """
    check_format(results.root)
    verification = Verification(results)
    if results.being_written():
        say("a sweep is writing here: what it adds from now on may not be looked at")
    found: Counter[bool] = Counter()
    for finding in verification.findings():
        found[finding.is_note] += 1
        say(f"{'note' if finding.is_note else 'problem'}: {finding.text}")
    say(_summary(verification.counts, problems=found[False], notes=found[True]))
    return found[False]


def _summary(counts: Counter[str], problems: int, notes: int) -> str:
    seen = ", ".join(counted(counts[f"{noun}s"], noun) for noun in ("run", "evaluation", "checkpoint"))
    told = counted(problems, "problem") if problems else "no problems"
    return f"{seen}, {counts['weights']} weights: {told}" + (f", {counted(notes, 'note')}" if notes else "")
