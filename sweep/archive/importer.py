"""`import`: merge an archive into a results directory, all of it or nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from safetensors import SafetensorError, safe_open

from lr_sweep.analysis.record.columns import PLANNED
from lr_sweep.analysis.record.read import RecordError, read_rows, read_wanted_rows, recorded_studies
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import hash_file
from lr_sweep.common.program import command
from lr_sweep.common.text import counted, gigabytes
from lr_sweep.sweep.archive.format import (
    CHECKPOINT,
    DAMAGED,
    WEIGHTS_FILES,
    ArchiveReader,
    open_archive,
    refused,
    study_files,
)
from lr_sweep.sweep.archive.merge import RunRecord, contradiction, merge, read_run
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import LABELS, Row, label
from lr_sweep.sweep.results.validation import check_options, digest_problem, study_problems
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.pretraining.weights import FACTS, WEIGHTS, weights_damage

STEP = re.compile(r'\{"step": ([0-9]{1,18})[,}]')
"""Begins the progress in a checkpoint, as every version has saved it."""
MAX_HEADER = 32_000_000
"""Bytes of the header of tensors; the curve of a run is in that of its checkpoint."""
MAX_CONFLICTS = 20
"""Conflicts that an error lists."""


def import_archive(archive: Path, results: Results) -> str:
    """Merge an archive into a results directory by run id; return what changed, as text.

    Raises UserError if the archive is damaged, contradicts what is here, or is too large for the disk; RecordError if
    the record here is damaged. Then nothing was changed.
    """
    with open_archive(archive) as reader:
        results.prepare()
        with storage_problems(results.root), results.writing("import"), _unpacked(reader, results) as folder:
            merger = _Merger(archive, folder, results)
            merger.plan()
            merger.carry_out()
    return merger.summary()


@contextmanager
def _unpacked(reader: ArchiveReader, results: Results) -> Iterator[Path]:
    """Unpack an archive on the same disk for a while; remove what killed imports left."""
    needed, free = sum(entry.num_bytes for entry in reader.files.values()), results.free_bytes()
    if needed > free:
        raise UserError(
            f"{results.root} has {gigabytes(free)} free and {reader.path} holds {gigabytes(needed)}. Free some space, "
            f"or use another disk with --results."
        )
    for left in results.root.glob(".import-*"):
        shutil.rmtree(left)
    folder = results.root / f".import-{os.getpid()}"
    folder.mkdir()
    try:
        reader.unpack(folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def _newest_checkpoint(results: Results, run_id: str) -> Path | None:
    """Return a run's checkpoint of the highest step, intact or not; None: it has none."""
    return next((path for path in checkpoints(results.checkpoints(run_id)) if CHECKPOINT.fullmatch(path.name)), None)


def _step_in_name(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


def _metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as begin:
        size = int.from_bytes(begin.read(8), "little")
    if size > MAX_HEADER:
        raise ValueError(f"its header has {size:,} bytes, want at most {MAX_HEADER:,}")
    with safe_open(path, framework="numpy") as file:
        return file.metadata() or {}


def _saved_step(checkpoint: Path) -> int | None:
    """Return the step that a checkpoint says it is of; its progress is not read as JSON, which may be any."""
    found = STEP.match(_metadata(checkpoint)["progress"])
    return int(found[1]) if found else None


class _Merger:
    """Merges an unpacked archive, which is not trusted: decides everything, then moves files."""

    def __init__(self, archive: Path, unpacked: Path, ours: Results) -> None:
        self.archive, self.theirs, self.ours = archive, Results(unpacked), ours
        self.conflicts: list[str] = []
        self._taken: list[Path] = []
        """Files of the archive to move; those of one folder in this order."""
        self._outdated_rows: list[Path] = []
        """Rows here of failed runs that the archive has trained further."""
        self._counts: Counter[str] = Counter()
        self._names: dict[str, list[str]] = defaultdict(list)
        """Studies and weights, by what becomes of them."""

    def plan(self) -> None:
        """Compare all that was unpacked with what is here; raises UserError for a contradiction."""
        folders = ("runs", "curves", "checkpoints")
        for run_id in sorted({path.stem for name in folders for path in self.theirs.root.glob(f"{name}/*")}):
            self._plan_run(run_id)
        for folder in sorted(self.theirs.root.glob("pretrained/*")):
            self._plan_weights(folder)
        for study in sorted(path.name for path in self.theirs.root.glob("studies/*")):
            self._plan_study(study)
        if self.conflicts:
            raise UserError(_conflict_text(self.archive, self.ours.root, self.conflicts))

    @contextmanager
    def _checked(self, what: str) -> Iterator[list[str]]:
        """Refuse the archive for whatever a reader raises, or for problems that are put into the list."""
        problems: list[str] = []
        try:
            yield problems
            if problems:
                raise ValueError("; ".join(problems))
        except (RecordError, pa.ArrowException, SafetensorError, *DAMAGED) as error:
            reason = str(error).replace(f"{self.theirs.root}/", "").split(": delete it")[0].split(": run ")[0]
            raise refused(self.archive, f"{what} is not as this program writes it ({reason})") from error

    def _plan_run(self, run_id: str) -> None:
        with self._checked(f"run {run_id}") as problems:
            theirs = read_run(self.theirs.root, run_id)  # None: only checkpoints of it are there
            problems += theirs.problems() if theirs else []
        ours = read_run(self.ours.root, run_id)
        found = contradiction(ours, theirs) if ours and theirs else None
        if found:
            self.conflicts.append(f"{run_id}{_label(ours, theirs)}: {found}")
            return
        if theirs:
            self._plan_tables(ours, theirs)
        if ours is None or (theirs and theirs.points):  # else nothing shows that it continues the curve that is here
            self._plan_checkpoint(run_id)

    def _plan_tables(self, ours: RunRecord | None, theirs: RunRecord) -> None:
        """Take a run that is not here, or the parts of it that are further than here."""
        run_id, here = theirs.run_id, ours or RunRecord(run_id=theirs.run_id, row=None, points=[])
        merged = merge(here, theirs)
        self._counts["added" if ours is None else "kept" if merged == ours else "replaced"] += 1
        if merged.points is not here.points:
            self._taken.append(self.theirs.curve(run_id))
        if merged.row is not here.row:
            if merged.row:
                self._taken.append(self.theirs.run(run_id))
            else:
                self._outdated_rows.append(self.ours.run(run_id))

    def _plan_checkpoint(self, run_id: str) -> None:
        """Take the newest checkpoint, if there is one, unless one as new is here."""
        theirs, ours = (_newest_checkpoint(results, run_id) for results in (self.theirs, self.ours))
        if theirs is None:
            return
        with self._checked(f"checkpoint {theirs.name} of run {run_id}") as problems:
            if problem := digest_problem(theirs.name, hash_file(theirs)):
                problems.append(problem)
            elif _saved_step(theirs) != _step_in_name(theirs):
                problems.append("its step is not the one in its name")
        if ours is None or _step_in_name(ours) < _step_in_name(theirs):
            self._taken.append(theirs)
            self._counts["checkpoints"] += 1

    def _plan_weights(self, folder: Path) -> None:
        with self._checked(f"pretrained/{folder.name}") as problems:
            _metadata(folder / WEIGHTS)  # it holds tensors
            if (folder / FACTS).exists() and (damage := weights_damage(folder)):
                problems.append(damage)
        here = self.ours.pretrained / folder.name / WEIGHTS
        if not here.is_file():
            self._take(folder, WEIGHTS_FILES)
            self._names["weights"].append(folder.name)
        elif (ours := hash_file(here)) != (theirs := hash_file(folder / WEIGHTS)):
            differ = f"{ours[:16]}... here, {theirs[:16]}... in the archive"
            self.conflicts.append(f"pretrained/{folder.name}: sha256 of {WEIGHTS}: {differ}")

    def _plan_study(self, name: str) -> None:
        with self._checked(f"study {name}") as problems:
            problems += study_problems(self.theirs, name)
            read_rows(self.theirs.planned(name), PLANNED)
            check_options(self.theirs.study(name) / f"{name}.yaml")
        if name not in recorded_studies(self.ours.root):
            self._take(self.theirs.study(name), study_files(name))
            self._names["added"].append(name)
        else:
            same = _grid(self.ours, name) == _grid(self.theirs, name)
            self._names["kept" if same else "differ"].append(name)

    def _take(self, folder: Path, names: Sequence[str]) -> None:
        self._taken += [folder / name for name in names if (folder / name).is_file()]

    def carry_out(self) -> None:
        """Move files in an order in which each step leaves a sound record."""
        for folder in ("pretrained", "checkpoints", "curves", "runs", "studies"):
            if folder == "runs":
                for path in self._outdated_rows:
                    path.unlink()
            for path in self._taken:
                if path.is_relative_to(self.theirs.root / folder):
                    self._move(path)

    def _move(self, path: Path) -> None:
        target = self.ours.root / path.relative_to(self.theirs.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(target)

    def summary(self) -> str:
        """Return what was done, a line each."""
        counts, names = self._counts, self._names
        added = counted(counts["added"], "run")
        lines = [f"{added} added, {counts['replaced']} replaced by longer ones, {counts['kept']} already here"]
        if counts["checkpoints"]:
            lines.append(f"{counted(counts['checkpoints'], 'checkpoint')} added")
        listed = {"added": "studies added", "kept": "studies already here", "weights": "pretrained weights added"}
        lines += [f"{what}: {', '.join(names[key])}" for key, what in listed.items() if names[key]]
        different = "is here with another grid, which is kept; the runs were added"
        lines += [f"study {name} {different}" for name in names["differ"]]
        mlflow = command("mlflow", "sync", "--results", str(self.ours.root))
        return "\n".join([*lines, f"to show them in MLflow: {mlflow}"])


def _label(*records: RunRecord | None) -> str:
    """Return what people call a run; empty if it has ended nowhere: then no record says."""
    row = next((run.row for run in records if run and run.row), None)
    return " ({}, {}, {}, lr {}, seed {})".format(*(label(row, name) for name in LABELS)) if row else ""


def _conflict_text(archive: Path, root: Path, conflicts: list[str]) -> str:
    lines = [f"  {conflict}" for conflict in conflicts[:MAX_CONFLICTS]]
    if len(conflicts) > MAX_CONFLICTS:
        lines.append(f"  and {len(conflicts) - MAX_CONFLICTS} more")
    text = "\n".join(lines)
    return (
        f"{archive} and {root} contradict each other in {len(conflicts)} places. Nothing was changed.\n{text}\n"
        f"Runs and weights trained on different hardware, on GPUs above all, or with other package versions may "
        f"differ in their last bits; then both are right. To keep both, import into a directory of its own with "
        f"--results. To have the archive's runs, delete those named here in runs/, curves/ and checkpoints/, and "
        f"import again."
    )


def _grid(results: Results, study: str) -> dict[str, Row]:
    """Return which runs a study wants, by id, without where their data and weights came from."""
    origins = ("pretrained_on", "data_origin")
    rows = read_wanted_rows(results.root, study)
    return {row["run_id"]: {name: row[name] for name in row if name not in origins} for row in rows}
