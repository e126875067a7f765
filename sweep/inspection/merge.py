"""`merge`: the ended runs, studies and weights of another results directory into this one, all of them or nothing.

Nothing in the other directory is trusted: its files are copied aside on the disk of this directory, checked there as
`verify` checks them, and moved once all of them agree with what is here.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lr_sweep.analysis.record.paths import RecordError, closed_folder, unreadable
from lr_sweep.analysis.record.read import check_format, read_wanted_rows, recorded_studies
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import hash_file, make_folder, open_plain, remove_tree
from lr_sweep.common.text import command, counted, gigabytes
from lr_sweep.sweep.inspection.verify import Verification
from lr_sweep.sweep.results.directory import Results, described, read_state, storage_problems
from lr_sweep.sweep.results.run_state import Row, read_run, recorded_ids, run_title
from lr_sweep.sweep.results.validation import contradiction, is_further
from lr_sweep.sweep.store.results import fetched
from lr_sweep.trainables.pretraining.weights import WEIGHTS

WEIGHTS_FILES = ("config.json", "generation_config.json", "pretraining.json", WEIGHTS)
"""Files of a folder of weights, in the order in which they are moved: the last one makes it complete."""
STUDY_FILES = ("proposals.parquet", "rungs.parquet", "wanted.parquet", "study.json")
"""Files of a study's folder besides its YAML, in the order in which they are moved: the last one makes it complete."""
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
            if problem := next(Verification(copy).problems(), None):
                raise UserError(
                    f"nothing was merged: {problem.replace(str(copy.root), theirs.location)}\n"
                    f"`{command('verify', '--results', theirs.location)}` names all that is damaged there"
                )
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
    paths = list(_candidates(theirs))
    needed, free = sum(path.stat().st_size for path in paths if path.exists()), ours.free_bytes()
    if needed > free:
        raise UserError(
            f"{ours.root} has {gigabytes(free)} free and {theirs.location} holds {gigabytes(needed)}. Free some space, "
            f"or use another disk with --results."
        )
    for left in ours.root.glob(".merge-*"):
        remove_tree(left)
    folder = ours.root / f".merge-{os.getpid()}"
    folder.mkdir()
    try:
        for path in paths:
            _copy(path, folder / path.relative_to(theirs.root))
        yield Results(folder)
    finally:
        remove_tree(folder)


def _candidates(theirs: Results) -> Iterator[Path]:
    """Yield the files of the other record, but the curves of runs that have not ended, and no checkpoints."""
    rows = _listed(theirs.runs, "[!.]*.parquet")
    yield from rows
    ended = {path.name for path in rows}
    yield from (path for path in _listed(theirs.curves, "[!.]*.parquet") if path.name in ended)
    for top, names in ((theirs.studies, STUDY_FILES), (theirs.pretrained, WEIGHTS_FILES)):
        for folder in _listed(top, "[!.]*"):
            yield from (path for path in _listed(folder, "*") if path.name in (*names, f"{folder.name}.yaml"))


def _listed(folder: Path, pattern: str) -> list[Path]:
    """Return what is in a folder; raises RecordError if this user may not look, else it would seem to be empty."""
    if closed := closed_folder(folder):
        raise RecordError(closed)
    return sorted(folder.glob(pattern))


def _copy(path: Path, target: Path) -> None:
    if path.resolve() != path:
        raise RecordError(f"{path} is a link, or in one, and none is followed: put what it leads to in its place")
    make_folder(target.parent)
    try:
        source = open_plain(path)
    except OSError as error:
        raise RecordError(unreadable(path, error)) from error
    with source, target.open("xb") as file:
        shutil.copyfileobj(source, file)


class _Merger:
    def __init__(self, theirs: Results, ours: Results) -> None:
        """Compare all that was copied with what is here."""
        self.theirs, self.ours = theirs, ours
        self.conflicts: list[str] = []
        self._taken: list[Path] = []
        """Files of the copy to move; those of one folder in this order."""
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
        theirs, ours = read_run(self.theirs.root, run_id), read_run(self.ours.root, run_id)
        assert theirs is not None
        assert theirs.row is not None, "runs without a row are not copied"
        if ours and (found := contradiction(ours, theirs)):
            self.conflicts.append(f"{run_id} ({run_title(theirs.row)}): {found}")
        elif ours and not is_further(theirs, ours):
            self._counts["kept"] += 1
        else:
            self._counts["replaced" if ours else "added"] += 1
            self._taken += [self.theirs.curve(run_id)] if theirs.curve else []
            self._taken.append(self.theirs.run(run_id))

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
        for folder in ("pretrained", "curves", "runs", "studies"):
            for path in self._taken:
                if path.is_relative_to(self.theirs.root / folder):
                    self._move(path)

    def _move(self, path: Path) -> None:
        target = self.ours.root / path.relative_to(self.theirs.root)
        make_folder(target.parent)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(target)

    def summary(self) -> str:
        """Return what was done, a line each."""
        counts, names = self._counts, self._names
        added = counted(counts["added"], "run")
        lines = [f"{added} added, {counts['replaced']} replaced by longer ones, {counts['kept']} already here"]
        listed = {"added": "studies added", "kept": "studies already here", "weights": "pretrained weights added"}
        lines += [f"{what}: {', '.join(names[key])}" for key, what in listed.items() if names[key]]
        different = "is here with another grid, which is kept; the runs were added"
        lines += [f"study {name} {different}" for name in names["differ"]]
        mlflow = command("export", "--mlflow", "--results", str(self.ours.root))
        return "\n".join([*lines, f"to show them in MLflow: {mlflow}"])


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
