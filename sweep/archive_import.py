"""`import`: merge an archive into a results directory, all of it or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from analysis.record import read_wanted, recorded_studies
from analysis.text import rate_text
from sweep.archive import WEIGHTS_FILES, ArchiveReader, open_archive, study_files
from sweep.archive_content import Staged, checkpoint_step, newest_checkpoint, sha256_of
from sweep.errors import UserError
from sweep.merge import Keep, RecordedRun, difference, merge, read_run
from sweep.results import Results, storage_problems
from sweep.text import command, counted, gigabytes

LEFTOVERS = ".import-*"
"""Folders in a results directory that imports unpack into; one that is not in use was left by a killed import."""
MOST_TOLD = 20
"""Conflicts that an error lists."""


def import_archive(archive: Path, results: Results) -> str:
    """Merge an archive into a results directory by run id and return what changed, as text.

    Raises:
        UserError: the archive is damaged, contradicts what is here, or does not fit on the disk; nothing was changed.
        RecordError: the record here is damaged.
    """
    with open_archive(archive) as reader:
        results.prepare()
        with storage_problems(results.root), results.writing("import"):
            _check_space(reader, results)
            with _staged(results) as folder:
                reader.unpack(folder)
                merger = _Merger(Staged(archive, folder), results)
                merger.plan()
                merger.carry_out()
    return merger.summary()


def _check_space(reader: ArchiveReader, results: Results) -> None:
    needed, free = sum(entry.num_bytes for entry in reader.files.values()), results.free_bytes()
    if needed > free:
        raise UserError(
            f"{results.root} has {gigabytes(free)} free and {reader.path} holds {gigabytes(needed)}. Free some space, "
            f"or use another disk with --results."
        )


@contextmanager
def _staged(results: Results) -> Iterator[Path]:
    """Give an empty folder on the same disk; what killed imports left is removed."""
    for left in results.root.glob(LEFTOVERS):
        shutil.rmtree(left)
    folder = results.root / f".import-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@dataclass
class _Counts:
    """What an import did, for people."""

    added: int = 0
    replaced: int = 0
    kept: int = 0
    checkpoints: int = 0
    studies: list[str] = field(default_factory=list)
    kept_studies: list[str] = field(default_factory=list)
    other_studies: list[str] = field(default_factory=list)
    """Here with another grid."""
    weights: list[str] = field(default_factory=list)


class _Merger:
    """Decides everything, then moves files."""

    def __init__(self, theirs: Staged, ours: Results) -> None:
        self.theirs, self.ours = theirs, ours
        self.counts = _Counts()
        self.conflicts: list[str] = []
        # In the order in which they are moved: whenever this stops, what is there is a record.
        self._weights: list[Path] = []
        self._checkpoints: list[Path] = []
        self._curves: list[Path] = []
        self._rows: list[Path] = []
        self._rows_dropped: list[Path] = []
        self._studies: list[Path] = []

    def plan(self) -> None:
        """Compare all that was unpacked with what is here.

        Raises:
            UserError: something is not as this program writes it, or contradicts what is here.
        """
        for run_id in self.theirs.run_ids:
            self._plan_run(run_id)
        for folder in sorted(self.theirs.results.root.glob("pretrained/*")):
            self._plan_weights(folder)
        for study in self.theirs.studies():
            self._plan_study(study)
        if self.conflicts:
            raise UserError(_conflict_text(self.theirs.archive, self.ours.root, self.conflicts))

    def _plan_run(self, run_id: str) -> None:
        theirs, ours = self.theirs.run(run_id), read_run(self.ours.root, run_id)
        found = difference(ours, theirs) if ours and theirs else None
        if found:
            name = f"{run_id} {_label(ours, theirs)}".rstrip()
            self.conflicts.append(f"{name}: {found.where}: {found.here} here, {found.there} in the archive")
            return
        if theirs:
            self._plan_tables(run_id, ours, theirs)
        if ours is None or (theirs and not theirs.curve.empty):  # else nothing shows that it is of this curve
            self._plan_checkpoint(run_id)

    def _plan_tables(self, run_id: str, ours: RecordedRun | None, theirs: RecordedRun) -> None:
        """Take a run that is not here, or what of it is further than here."""
        nothing = RecordedRun(run_id=run_id, row=None, curve=theirs.curve.iloc[:0])
        chosen = merge(ours or nothing, theirs)
        self.counts.added += ours is None
        self.counts.replaced += ours is not None and chosen.changes
        self.counts.kept += ours is not None and not chosen.changes
        if chosen.curve is Keep.THEIRS:
            self._curves.append(self.theirs.results.curve(run_id))
        if chosen.row is Keep.THEIRS:
            self._rows.append(self.theirs.results.run(run_id))
        if chosen.row is Keep.NEITHER:
            self._rows_dropped.append(self.ours.run(run_id))

    def _plan_checkpoint(self, run_id: str) -> None:
        """Take a checkpoint unless one as new is here."""
        theirs, ours = self.theirs.checkpoint(run_id), newest_checkpoint(self.ours, run_id)
        if theirs is None:
            return
        if ours is None or checkpoint_step(ours) < checkpoint_step(theirs):
            self._checkpoints.append(theirs)
            self.counts.checkpoints += 1

    def _plan_weights(self, folder: Path) -> None:
        weights, here = self.theirs.weights(folder), self.ours.pretrained / folder.name / "model.safetensors"
        if not here.is_file():
            self._weights += [folder / name for name in WEIGHTS_FILES if (folder / name).is_file()]
            self.counts.weights.append(folder.name)
        elif sha256_of(here) != sha256_of(weights):
            told = f"{sha256_of(here)[:16]}... here, {sha256_of(weights)[:16]}... in the archive"
            self.conflicts.append(f"pretrained/{folder.name}: sha256 of model.safetensors: {told}")

    def _plan_study(self, name: str) -> None:
        if name not in recorded_studies(self.ours.root):
            folder = self.theirs.results.study(name)
            self._studies += [folder / part for part in study_files(name) if (folder / part).is_file()]
            self.counts.studies.append(name)
        elif _grid(self.ours, name).equals(_grid(self.theirs.results, name)):
            self.counts.kept_studies.append(name)
        else:
            self.counts.other_studies.append(name)

    def carry_out(self) -> None:
        """Move files to their places; each step leaves a record that can be read."""
        for path in (*self._weights, *self._checkpoints, *self._curves):
            self._move(path)
        for path in self._rows_dropped:
            path.unlink()
        for path in (*self._rows, *self._studies):
            self._move(path)

    def _move(self, path: Path) -> None:
        target = self.ours.root / path.relative_to(self.theirs.results.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(target)

    def summary(self) -> str:
        """Return what was done, a line each."""
        counts = self.counts
        lines = [
            f"{counted(counts.added, 'run')} added, {counts.replaced} replaced by longer ones, "
            f"{counts.kept} already here",
            f"{counted(counts.checkpoints, 'checkpoint')} added" if counts.checkpoints else "",
            _listed("studies added", counts.studies),
            _listed("studies already here", counts.kept_studies),
            *(f"study {name} is here with another grid; kept; the runs came along" for name in counts.other_studies),
            _listed("pretrained weights added", counts.weights),
            f"to show them in MLflow: {command('mlflow', 'sync', '--results', str(self.ours.root))}",
        ]
        return "\n".join(line for line in lines if line)


def _listed(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(names)}" if names else ""


def _label(*records: RecordedRun | None) -> str:
    """Return what people call a run; empty if it has ended nowhere: then no record says."""
    row = next((run.row for run in records if run and run.row), None)
    if row is None:
        return ""
    rate = rate_text(row["learning_rate"])
    return f"({row['task']}, {row['model']}, {row['variant']}, lr {rate}, seed {row['seed']})"


def _conflict_text(archive: Path, root: Path, conflicts: list[str]) -> str:
    told = [f"  {conflict}" for conflict in conflicts[:MOST_TOLD]]
    if len(conflicts) > MOST_TOLD:
        told.append(f"  and {len(conflicts) - MOST_TOLD} more")
    return "\n".join(
        [
            f"{archive} and {root} contradict each other in {len(conflicts)} places. Nothing was changed.",
            *told,
            "Runs and weights trained on different hardware, on GPUs above all, or with other package versions "
            "may differ in their last bits; then neither is wrong. To keep both, import into a directory of its own "
            "with --results. To have the archive's runs, delete those named here in runs/, curves/ and checkpoints/, "
            "and import again.",
        ]
    )


def _grid(results: Results, study: str) -> pd.DataFrame:
    """Return which runs a study wants, in an order that is the same for equal grids."""
    wanted = read_wanted(results.root, study).drop(columns=["pretrained_on", "data_origin"])
    return wanted.sort_values("run_id", ignore_index=True)
