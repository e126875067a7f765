"""`merge`: another results directory into this one, all of it or nothing.

Nothing in the other directory is trusted. Files of a record alone are taken, by their names and sizes; they are copied
aside on the disk of this directory, checked there as `verify` checks them, and moved once all of them agree with what
is here.
"""

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

from lr_sweep.analysis.record.parquet import MAX_DECODED
from lr_sweep.analysis.record.paths import RecordError, closed_folder, unreadable
from lr_sweep.analysis.record.read import check_format, read_wanted_rows, recorded_studies
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import hash_file, open_plain
from lr_sweep.common.text import command, counted, gigabytes
from lr_sweep.sweep.inspection.verify import Verification
from lr_sweep.sweep.results.directory import Results, described, read_state, storage_problems
from lr_sweep.sweep.results.run_state import RecordedRun, Row, read_run, recorded_ids, run_title
from lr_sweep.sweep.results.validation import contradiction, merge
from lr_sweep.sweep.store.results import fetched
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.pretraining.weights import WEIGHTS

CHECKPOINT = re.compile(r"step-([0-9]{9,18})-([0-9a-f]{16})\.safetensors")
"""Name of a checkpoint: its step, and the start of its sha256."""
WEIGHTS_FILES = ("config.json", "generation_config.json", "pretraining.json", WEIGHTS)
"""Files of a folder of weights, in the order in which they are moved: the last one makes it complete."""
STUDY_FILES = ("proposals.parquet", "rungs.parquet", "wanted.parquet", "study.json")
"""Files of a study's folder besides its YAML, in the order in which they are moved: the last one makes it complete."""
_RUN_ID, _STUDY, _UNLIMITED = "[0-9a-f]{16}", "[a-z0-9]+(-[a-z0-9]+)*", 1 << 60
_PATHS = {
    rf"runs/{_RUN_ID}\.parquet": 4_000_000,
    rf"curves/{_RUN_ID}\.parquet": MAX_DECODED,
    rf"checkpoints/{_RUN_ID}/{CHECKPOINT.pattern}": _UNLIMITED,
    r"pretrained/gpt2-[0-9]+x[0-9]+-[0-9a-f]{12}/[a-z_]+\.json": 1_000_000,
    r"pretrained/gpt2-[0-9]+x[0-9]+-[0-9a-f]{12}/model\.safetensors": _UNLIMITED,
    rf"studies/{_STUDY}/study\.json": 1_000_000,
    rf"studies/(?P<study>{_STUDY})/(?P=study)\.yaml": 10_000_000,
    rf"studies/{_STUDY}/[a-z]+\.parquet": MAX_DECODED,
}
"""Every path that may be taken, with the most bytes that it may have: what is read at once must fit in memory."""
STEP = re.compile(r'\{"step": ([0-9]{1,18})[,}]')
"""The start of the progress in a checkpoint, as every version has saved it; the rest is not read."""
DAMAGED = (OSError, EOFError, ValueError, OverflowError, RecursionError, LookupError, TypeError, AttributeError)
MAX_CONFLICTS = 20


def merge_results(location: str, results: Results) -> str:
    """Merge the results directory or store at `location` into `results`; return what changed, as text.

    Raises UserError if a sweep writes to either, if they contradict each other, if anything in the other one is
    damaged, or if the disk is too small; RecordError if one of them cannot be read. Then nothing was changed.
    """
    with fetched(location) as theirs:
        check_format(theirs.root)
        if theirs.root == results.root:
            raise UserError(f"got {location} to merge into itself: name another directory with --results")
        _check_unwritten(theirs)
        results.prepare()
        with storage_problems(results.root), results.writing("merge"), _copied(theirs, results) as copy:
            _check_unwritten(theirs)
            _refuse_damage(theirs, copy)
            merger = _Merger(copy, results)
            if merger.conflicts:
                raise UserError(_conflict_text(theirs.location, results.root, merger.conflicts))
            merger.carry_out()
    return merger.summary()


def _check_unwritten(theirs: Results) -> None:
    if theirs.being_written():
        writer = described(read_state(theirs.holder))
        raise UserError(f"{theirs.location} is being written to by {writer}: merge it when that has ended")


@contextmanager
def _copied(theirs: Results, ours: Results) -> Iterator[Results]:
    """Copy what may be taken to the disk of this directory for a while; remove what killed merges left there."""
    sizes = {path: _num_bytes(path, theirs.root) for path in _candidates(theirs, ours)}
    needed, free = sum(sizes.values()), ours.free_bytes()
    if needed > free:
        raise UserError(
            f"{ours.root} has {gigabytes(free)} free and {theirs.location} holds {gigabytes(needed)}. Free some space, "
            f"or use another disk with --results."
        )
    for left in ours.root.glob(".merge-*"):
        shutil.rmtree(left)
    folder = ours.root / f".merge-{os.getpid()}"
    folder.mkdir()
    try:
        for path in sizes:
            _copy(path, folder / path.relative_to(theirs.root))
        yield Results(folder)
    finally:
        shutil.rmtree(folder)


def _candidates(theirs: Results, ours: Results) -> Iterator[Path]:
    """Yield the files of the other record; of each run's checkpoints the newest, unless one as new is here."""
    yield from _listed(theirs.runs, "[!.]*.parquet")
    yield from _listed(theirs.curves, "[!.]*.parquet")
    for top, names in ((theirs.studies, STUDY_FILES), (theirs.pretrained, WEIGHTS_FILES)):
        for folder in _listed(top, "[!.]*"):
            yield from (path for path in _listed(folder, "*") if path.name in (*names, f"{folder.name}.yaml"))
    for folder in _listed(theirs.all_checkpoints, "[!.]*"):
        _listed(folder, "*")
        if newest := _newer_checkpoint(theirs, ours, folder.name):
            yield newest


def _listed(folder: Path, pattern: str) -> list[Path]:
    """Return what is in a folder; raises RecordError if this user may not look, else it would seem to be empty."""
    if closed := closed_folder(folder):
        raise RecordError(closed)
    return sorted(folder.glob(pattern))


def _num_bytes(path: Path, root: Path) -> int:
    """Return the size of a file that may be taken; raises RecordError for any other."""
    name = path.relative_to(root).as_posix()
    limit = next((limit for pattern, limit in _PATHS.items() if re.fullmatch(pattern, name)), None)
    if limit is None:
        raise RecordError(f"{path}: this program gives no file such a name: move it away")
    try:
        num_bytes, inside = path.stat().st_size, path.resolve().is_relative_to(root)
    except (OSError, RuntimeError) as error:  # the second: a circle of links
        raise RecordError(unreadable(path, error if isinstance(error, OSError) else OSError(str(error)))) from error
    if not inside:
        raise RecordError(f"{path}: it leads out of {root}, to {path.resolve()}: put the file itself there")
    if num_bytes > limit:
        raise RecordError(f"{path}: it has {num_bytes:,} bytes, want {limit:,} at most: move it away")
    return num_bytes


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source = open_plain(path)
    except OSError as error:
        raise RecordError(unreadable(path, error)) from error
    with source, target.open("xb") as file:
        shutil.copyfileobj(source, file)


def _refuse_damage(theirs: Results, copy: Results) -> None:
    try:
        problem = next(_damage(copy), None)
    except (RecordError, pa.ArrowException, *DAMAGED) as error:
        problem = str(error)
    if problem:
        reason = problem.replace(str(copy.root), theirs.location)
        raise UserError(
            f"nothing was merged: {reason}\n"
            f"`{command('verify', '--results', theirs.location)}` names all that is damaged there"
        )


def _damage(copy: Results) -> Iterator[str]:
    yield from Verification(copy).problems()
    for path in copy.root.glob("checkpoints/*/*"):
        try:
            with safe_open(path, framework="numpy") as file:
                saved = STEP.match((file.metadata() or {})["progress"])
        except (SafetensorError, *DAMAGED):
            saved = None
        if saved is None or int(saved[1]) != _step_in_name(path):
            yield f"{path}: its step is not the one in its name: delete it"


def _newer_checkpoint(theirs: Results, ours: Results, run_id: str) -> Path | None:
    """Return the other directory's newest checkpoint of a run; None: there is none, or one as new is here."""
    there, here = (_newest_checkpoint(results, run_id) for results in (theirs, ours))
    return there if there and (here is None or _step_in_name(here) < _step_in_name(there)) else None


def _newest_checkpoint(results: Results, run_id: str) -> Path | None:
    return next((path for path in checkpoints(results.checkpoints(run_id)) if CHECKPOINT.fullmatch(path.name)), None)


def _step_in_name(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


class _Merger:
    def __init__(self, theirs: Results, ours: Results) -> None:
        """Compare all that was copied with what is here."""
        self.theirs, self.ours = theirs, ours
        self.conflicts: list[str] = []
        self._taken: list[Path] = []
        """Files of the copy to move; those of one folder in this order."""
        self._outdated_rows: list[Path] = []
        """Rows here of failed runs that were trained further there."""
        self._counts: Counter[str] = Counter()
        self._names: dict[str, list[str]] = defaultdict(list)
        """Studies and weights, by what becomes of them."""
        for run_id in recorded_ids(theirs):
            self._plan_run(run_id)
        for folder in sorted(theirs.root.glob("pretrained/*")):
            self._plan_weights(folder)
        for study in recorded_studies(theirs.root):
            self._plan_study(study)

    def _plan_run(self, run_id: str) -> None:
        theirs = read_run(self.theirs.root, run_id)  # None: only checkpoints of it are there
        ours = read_run(self.ours.root, run_id)
        found = contradiction(ours, theirs) if ours and theirs else None
        if found:
            self.conflicts.append(f"{_title(run_id, ours, theirs)}: {found}")
            return
        if theirs:
            self._plan_tables(ours, theirs)
        may_continue = ours is None or (theirs and theirs.curve)  # else nothing shows that it continues our curve
        if may_continue and (newer := _newer_checkpoint(self.theirs, self.ours, run_id)):
            self._taken.append(newer)
            self._counts["checkpoints"] += 1

    def _plan_tables(self, ours: RecordedRun | None, theirs: RecordedRun) -> None:
        run_id, here = theirs.run_id, ours or RecordedRun(run_id=theirs.run_id, row=None)
        merged = merge(here, theirs)
        self._counts["added" if ours is None else "kept" if merged == ours else "replaced"] += 1
        if merged.curve is not here.curve:
            self._taken.append(self.theirs.curve(run_id))
        if merged.row is not here.row:
            if merged.row:
                self._taken.append(self.theirs.run(run_id))
            else:
                self._outdated_rows.append(self.ours.run(run_id))

    def _plan_weights(self, folder: Path) -> None:
        here = self.ours.pretrained / folder.name / WEIGHTS
        if not here.is_file():
            self._take(folder, WEIGHTS_FILES)
            self._names["weights"].append(folder.name)
        elif (ours := hash_file(here)) != (theirs := hash_file(folder / WEIGHTS)):
            differ = f"{ours[:16]}... here, {theirs[:16]}... there"
            self.conflicts.append(f"pretrained/{folder.name}: sha256 of {WEIGHTS}: {differ}")

    def _plan_study(self, name: str) -> None:
        if name not in recorded_studies(self.ours.root):
            self._take(self.theirs.study(name), (f"{name}.yaml", *STUDY_FILES))
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
        mlflow = command("export", "--mlflow", "--results", str(self.ours.root))
        return "\n".join([*lines, f"to show them in MLflow: {mlflow}"])


def _title(run_id: str, *records: RecordedRun | None) -> str:
    row = next((run.row for run in records if run and run.row), None)
    return f"{run_id} ({run_title(row)})" if row else run_id


def _conflict_text(location: str, root: Path, conflicts: list[str]) -> str:
    lines = [f"  {conflict}" for conflict in conflicts[:MAX_CONFLICTS]]
    if len(conflicts) > MAX_CONFLICTS:
        lines.append(f"  and {len(conflicts) - MAX_CONFLICTS} more")
    text = "\n".join(lines)
    return (
        f"{location} and {root} contradict each other in {len(conflicts)} places. Nothing was changed.\n{text}\n"
        f"Runs and weights trained on different hardware, on GPUs above all, or with other package versions may "
        f"differ in their last bits; then both are right. To keep both, leave the directories apart. To have the runs "
        f"of {location}, delete those named here in runs/, curves/ and checkpoints/ of {root}, and merge again."
    )


def _grid(results: Results, study: str) -> dict[str, Row]:
    """Return which runs a study wants, by id, without where their data and weights came from."""
    origins = ("pretrained_on", "data_origin")
    rows = read_wanted_rows(results.root, study)
    return {row["run_id"]: {name: row[name] for name in row if name not in origins} for row in rows}
