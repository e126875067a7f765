"""`export`: what verifies of a results directory into one archive, also while a sweep is running there."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.access import closed_folder, unreadable
from lr_sweep.analysis.record.columns import PLANNED
from lr_sweep.analysis.record.parquet import MAX_BYTES
from lr_sweep.analysis.record.read import RecordError
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import open_plain, read_plain, whole_file
from lr_sweep.common.text import counted, gigabytes
from lr_sweep.sweep.archive.format import (
    RUN_ID,
    WEIGHTS_FILES,
    WEIGHTS_FOLDER,
    ArchiveWriter,
    Entry,
    OpenFile,
    check_target,
    max_bytes,
    study_files,
)
from lr_sweep.sweep.archive.merge import read_run
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import recorded_ids
from lr_sweep.sweep.results.validation import check_options, checkpoint_problem, study_problems
from lr_sweep.trainables.checkpoint import checkpoints as checkpoint_files
from lr_sweep.trainables.pretraining.weights import CONFIG, FACTS, MAX_JSON, WEIGHTS, weights_damage


class Exported(NamedTuple):
    """What an export did, as text for the terminal; what it left out, each with its reason and what to do."""

    text: str
    left_out: tuple[str, ...]


def export(results: Results, target: Path, names: Sequence[str], *, checkpoints: bool) -> Exported:
    """Write what verifies into an archive, whole or not at all, for `import`; nothing in the results changes.

    Args:
        target: the archive to make.
        names: of recorded studies, whose runs are taken; none: all studies, and every run, wanted or not.
        checkpoints: take each run's newest intact checkpoint along, without which it cannot be trained further.
    """
    record.check_format(results.root)
    check_target(target)
    studies = list(dict.fromkeys(names)) or _all_studies(results)
    run_ids = _wanted(results, studies) if names else list(filter(RUN_ID.fullmatch, recorded_ids(results)))
    run_ids = [each for each in run_ids if names or checkpoints or results.holds(each)]
    if not studies and not run_ids:
        raise UserError(f"{results.root} holds nothing to export; `run` a study first, or give its --results.")
    with storage_problems(target), whole_file(target) as partial, partial.open("w+b") as file:
        # The manifest comes first and is known last: room for the most files there can be, with the longest names.
        num_files = 3 * len(run_ids) + len(WEIGHTS_FILES) * len(_weights(results))
        exporter = _Exporter(results, ArchiveWriter(file, 1000 + 250 * num_files + 700 * 5 * len(studies)))
        exporter.add_all(studies, run_ids, checkpoints)
    left_out = tuple(exporter.left_out)
    lines = [f"{target}: {exporter.writer.summary()}; {gigabytes(target.stat().st_size)}"]
    if not checkpoints and (saved := [each for each in run_ids if any(results.checkpoints(each).glob("step-*"))]):
        further = "to train these further where the archive is imported, export with --checkpoints"
        lines.append(f"without the checkpoints of {counted(len(saved), 'run')}: {further}")
    if left_out:
        lines += [f"left out: {text}" for text in left_out]
        rest = "the archive holds the rest and can be imported"
        lines.append(f"{len(left_out)} left out, since they do not verify; {rest}")
    return Exported("\n".join(lines), left_out)


def _all_studies(results: Results) -> list[str]:
    """Return the names of studies, damaged or not, but for one whose folder a sweep is just writing."""
    folders = sorted(path for path in results.root.glob("studies/[!.]*") if path.is_dir() or path.is_symlink())
    whole = not results.being_written()
    return [path.name for path in folders if whole or closed_folder(path) or (path / "study.json").exists()]


def _wanted(results: Results, studies: Sequence[str]) -> list[str]:
    """Return the ids of the runs that studies want and that are here."""
    wanted: set[str] = set()
    for study in studies:
        if not results.study(study).is_dir():
            record.read_study(results.root, study)  # raises, with the names of those that are here
        with suppress(RecordError):  # named when the study is added
            wanted |= {row["run_id"] for row in record.read_wanted_rows(results.root, study)}
    return sorted(wanted.intersection(recorded_ids(results)))


def _weights(results: Results) -> list[Path]:
    """Return the folders of weights that were pretrained here."""
    return sorted(path for path in results.pretrained.glob("gpt2-*") if WEIGHTS_FOLDER.fullmatch(path.name))


class _Exporter:
    """Puts what is chosen into an archive. Other processes may write to the directory meanwhile."""

    def __init__(self, results: Results, writer: ArchiveWriter) -> None:
        self.results, self.writer = results, writer
        self.left_out: dict[str, None] = {}
        """What is not in the archive though it was to be, with the reasons, in order."""
        self._began_from: set[str | None] = set()
        """Checksums of the weights that runs began from, "" for random ones; None: it is not known of some run."""

    def add_all(self, studies: Sequence[str], run_ids: Sequence[str], checkpoints: bool) -> None:
        """Add runs with their checkpoints, weights, then the studies, then the manifest."""
        if checkpoints and (closed := closed_folder(self.results.all_checkpoints)):
            self.left_out[f"checkpoints: {closed}"] = None
            checkpoints = False
        for run_id in run_ids:
            began_from = None
            with self._named(f"run {run_id}"):
                began_from = self._add_run(run_id)
                if checkpoints:
                    self._add_checkpoint(run_id)
            self._began_from.add(began_from)
        if self._began_from - {""}:
            if closed := closed_folder(self.results.pretrained):
                self.left_out[f"weights: {closed}"] = None
            for folder in [] if closed else _weights(self.results):
                with self._named(f"weights {folder.name}"):
                    self._add_weights(folder)
        for study in studies:
            with self._named(f"study {study}"):
                self._add_study(study)
        if not self.writer.files:
            raise UserError("\n".join(["nothing was exported, since nothing verifies:", *self.left_out]))
        self.writer.finish()

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Leave out, with a reason, what is damaged or may not be read; nothing of it has been added by then."""
        try:
            yield
        except (RecordError, OSError) as error:
            if isinstance(error, OSError) and error.filename is None:  # of the archive that is written
                raise
            reason = unreadable(Path(error.filename), error) if isinstance(error, OSError) else error
            self.left_out[f"{what}: {reason}"] = None

    def _add_run(self, run_id: str) -> str | None:
        """Add a run's row and curve as they were at one time; return the checksum for `_began_from`."""
        paths = [self.results.run(run_id), self.results.curve(run_id)]
        while True:  # a curve is written before its row: nothing has changed between if the row has not
            contents = {path: _bytes(path) for path in paths}
            recorded = read_run(self.results.root, run_id)
            if _bytes(paths[0]) == contents[paths[0]]:
                break
        if recorded and (problems := recorded.problems()):
            here = " and ".join(str(path) for path, content in contents.items() if content is not None)
            raise RecordError(f"{'; '.join(problems)}: delete {here} and run the study again")
        self._add_bytes(contents)
        return (recorded.row["weights_checksum"] or "") if recorded and recorded.row else None

    def _add_checkpoint(self, run_id: str) -> None:
        """Add the newest intact checkpoint; damaged ones that are newer are left out by name."""
        folder = self.results.checkpoints(run_id)
        if closed := closed_folder(folder):
            raise RecordError(closed)
        for path in checkpoint_files(folder):
            with self._named(f"checkpoint of run {run_id}"):
                try:
                    with open_plain(path) as file:
                        entry = Entry.of(file)
                        if problem := checkpoint_problem(str(path), entry.sha256):
                            raise RecordError(problem)
                        self._add({path: (file, entry)})
                except FileNotFoundError:
                    if path.is_symlink():  # it leads nowhere
                        raise
                    self._add_checkpoint(run_id)  # training has removed it, having saved a newer one
                return

    def _add_weights(self, folder: Path) -> None:
        """Add a folder of weights if a run began from them, or may have: one that has not ended does not say."""
        if closed := closed_folder(folder):
            raise RecordError(closed)
        recorded = _recorded_checksum(folder)
        if recorded is not None and not self._began_from & {recorded, None}:
            return
        if problem := weights_damage(folder) or ("" if (folder / CONFIG).exists() else f"it has no {CONFIG}"):
            raise RecordError(f"{folder}: {problem}: delete it; `run` and `pretrain` make it again")
        facts = {folder / name: _bytes(folder / name) for name in WEIGHTS_FILES if name != WEIGHTS}
        with open_plain(folder / WEIGHTS) as file:
            entry = Entry.of(file)
            if self._began_from & {entry.sha256, None}:
                self._add_bytes(facts)
                self._add({folder / WEIGHTS: (file, entry)})

    def _add_study(self, name: str) -> None:
        """Add a study's files; what it was planned to cost, and its YAML, may be left out alone."""
        if closed := closed_folder(self.results.study(name)):
            raise RecordError(closed)
        if problems := study_problems(self.results, name):
            raise RecordError("; ".join(problems))
        for path in [self.results.study(name) / part for part in study_files(name)]:
            with self._named(f"study {name}"):
                if path == self.results.planned(name):
                    record.read_rows(path, PLANNED)
                self._add_bytes({path: check_options(path) if path.suffix == ".yaml" else _bytes(path)})

    def _add_bytes(self, contents: Mapping[Path, bytes | None]) -> None:
        """Add the contents of files, all or none of them; None: there is no such file."""
        files = {path: io.BytesIO(content) for path, content in contents.items() if content is not None}
        self._add({path: (file, Entry.of(file)) for path, file in files.items()})

    def _add(self, files: Mapping[Path, tuple[OpenFile, Entry]]) -> None:
        names = {path: path.relative_to(self.results.root).as_posix() for path in files}
        for path, (_, entry) in files.items():
            if (size := entry.num_bytes) > max_bytes(names[path]):
                raise RecordError(f"{path}: an archive cannot hold a file of this name with {size} bytes: rename it")
        for path, (file, entry) in files.items():
            self.writer.add(names[path], file, entry)


def _recorded_checksum(weights: Path) -> str | None:
    """Return the checksum that weights had when they were trained; None: it is not known."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(read_plain(weights / FACTS, MAX_JSON))["weights_sha256"])
    return None


def _bytes(path: Path) -> bytes | None:
    try:
        return read_plain(path, MAX_BYTES)
    except FileNotFoundError:
        if path.is_symlink():  # it leads nowhere
            raise
        return None
