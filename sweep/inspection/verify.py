"""`verify`: whether a results directory is sound. Reads every file, one at a time, and changes nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lr_sweep.analysis.record.columns import CURVES
from lr_sweep.analysis.record.paths import (
    RecordError,
    UnreadableError,
    closed_folder,
    is_folder,
    unreadable,
)
from lr_sweep.analysis.record.read import check_format, read_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import hash_file
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.common.text import Say, counted
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import recorded_ids
from lr_sweep.sweep.results.validation import (
    check_options,
    checkpoint_problem,
    curve_problems,
    read_sound_row,
    study_problems,
)
from lr_sweep.trainables.pretraining.weights import weights_damage

if TYPE_CHECKING:
    from lr_sweep.sweep.study.study import Study


class Verification:
    """Looks at everything in a results directory; a sweep may be writing to it."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.counts: Counter[str] = Counter()

    def problems(self) -> Iterator[str]:
        """Yield lines that name a file which is not as it should be, and say what to do; reads one file at a time."""
        yield from self._closed_folders()
        yield from self._studies()
        for run_id in recorded_ids(self.results):
            num_evaluations, problems = self._run(run_id)
            if problems:  # looked at once more: a sweep may have been between writing a run's curve and its row
                num_evaluations, problems = self._run(run_id)
            self.counts["runs"] += self.results.holds(run_id)
            self.counts["evaluations"] += num_evaluations
            yield from problems
            yield from self._checkpoints(run_id)
        if self.results.uri is not None:
            yield from self._stored_checkpoints(ObjectStore(self.results.uri))
        yield from self._weights()

    def _closed_folders(self) -> Iterator[str]:
        """Find folders that would seem to be empty; `check_format` has looked at the others."""
        for top in (self.results.all_checkpoints, self.results.pretrained):
            folders = [top, *sorted(top.glob("[!.]*"))]
            yield from (text for folder in folders if (text := closed_folder(folder)))

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
            # A study's facts are its last file.
            is_begun = self.results.being_written() and not self.results.facts(study.name).exists()
            if isinstance(error, UnreadableError) or not is_begun:
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
        where, also = (
            (row_path, "") if points is None else (path, f", and {row_path} if there is one,")
        )
        issues += [
            f"{where}: {problem}: delete it{also} and run the study again" for problem in problems
        ]
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
            # What is left out is named above, or scratch.
            if not is_folder(folder) or closed_folder(folder) or ".partial-" in folder.name:
                continue
            try:
                problem = weights_damage(folder)
            except OSError as error:
                yield unreadable(Path(error.filename or folder), error)
                continue
            self.counts["weights"] += 1
            if problem:
                mend = (
                    "`run` and `data --pretrain` make it again; runs from other bytes are new runs"
                )
                yield f"{folder}: {problem}: delete it; {mend}"


def verify(results: Results, say: Say) -> int:
    """Pass every problem to `say`, a line each, then a summary; return the number of problems."""
    check_format(results.root)
    verification = Verification(results)
    if results.being_written():
        say("a sweep is writing here: what it adds from now on may not be checked")
    num_problems = 0
    for problem in verification.problems():
        num_problems += 1
        say(f"problem: {problem}")
    seen = ", ".join(
        counted(verification.counts[f"{noun}s"], noun)
        for noun in ("run", "evaluation", "checkpoint")
    )
    problems = counted(num_problems, "problem") if num_problems else "no problems"
    say(f"{seen}, {verification.counts['weights']} weights: {problems}")
    return num_problems


def probe_study(study: Study, data_dir: Path, say: Say) -> int:
    """Train a few steps of each cell of a training function: do they repeat, and resume exactly?

    Passes a line a cell to `say`, and returns how many are not deterministic, resume inexactly, or fail.

    Raises UserError for a study that has no training function of the user's own, or whose device is not here.
    """
    from lr_sweep.sweep.plan.placement import Placement, check_beforehand
    from lr_sweep.sweep.study.runs import one_of_each
    from lr_sweep.trainables.own.probe import probe
    from lr_sweep.trainables.own.run import TrainingFunctionError, own_run

    if study.files is None or study.files.command is not None:
        raise UserError(
            f"{study.study} has no training function of its own (`trainable`): nothing to probe"
        )
    placement, num_problems = Placement(resources=study.resources), 0
    check_beforehand(placement, study.for_gpus)
    for cell, first in one_of_each(study, {}, data_dir).items():
        try:
            probed = probe(own_run(first.run), placement.device)
            sound, text = probed.resumed == "exactly", probed.text()
        except TrainingFunctionError as error:
            sound, text = False, str(error)
        num_problems += not sound
        say(f"{'' if sound else 'problem: '}{study.study} {' '.join(cell)}: {text}")
    return num_problems
