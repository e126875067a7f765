"""`export`: what verifies of a results directory into one archive, also while a sweep is running there."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from analysis.access import closed_folder, is_folder, unreadable
from analysis.columns import PLANNED
from analysis.record import RecordError, check_format, planned_path, read_rows, read_study, read_wanted_rows
from sweep.archive import RUN_ID, WEIGHTS_FILES, WEIGHTS_FOLDER, ArchiveWriter, most_bytes, study_files
from sweep.archive_content import NOT_A_CHECKPOINT, check_checkpoint
from sweep.errors import UserError
from sweep.merge import RecordedRun, mistakes, read_run
from sweep.results import Results, storage_problems, whole_file
from sweep.text import counted, gigabytes
from sweep.verify import study_problems
from sweep.verify_checks import Row, curve_problems, row_problems
from trainables.pretrained import weights_damage

LONGEST_CHECKPOINT = "checkpoints/0123456789abcdef/step-000000000000000000-0123456789abcdef.safetensors"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export did."""

    text: str
    """For the terminal: what is in the archive, and what is not."""
    left_out: tuple[str, ...]
    """What does not verify or cannot be read, each with its reason and what to do."""


def export(results: Results, target: Path, names: Sequence[str], *, checkpoints: bool) -> Exported:
    """Write what verifies into an archive, whole or not at all; `import` takes it.

    Args:
        results: a results directory; nothing of it changes.
        target: the archive to make.
        names: of recorded studies, whose runs are taken; none: all studies, and every run, wanted or not.
        checkpoints: take each run's newest intact checkpoint along, without which it cannot be trained further.

    Raises:
        RecordError: no results directory, or no such study.
        UserError: the target exists, its folder does not, it cannot be written, or there is nothing to export.
    """
    check_format(results.root)
    if target.exists():
        raise UserError(f"{target} exists; `export` overwrites nothing. Remove it, or name another file.")
    if not target.parent.is_dir():
        raise UserError(f"there is no folder {target.parent}; make it, or name a file elsewhere.")
    studies = list(dict.fromkeys(names)) or _all_studies(results)
    run_ids = _wanted(results, studies) if names else _all_runs(results, checkpoints)
    if not studies and not run_ids:
        raise UserError(f"{results.root} holds nothing to export; `run` a study first, or give its --results.")
    with storage_problems(target), whole_file(target) as partial, partial.open("w+b") as file:
        exporter = _Exporter(results, ArchiveWriter(file, _manifest_room(results, studies, run_ids)))
        exporter.add_all(studies, run_ids, checkpoints)
    left_out = tuple(exporter.left_out)
    lines = [
        f"{target}: {exporter.writer.summary()}; {gigabytes(target.stat().st_size)}",
        *([] if checkpoints else _without_checkpoints(results, run_ids)),
        *_left_out_lines(left_out),
    ]
    return Exported(text="\n".join(lines), left_out=left_out)


def _without_checkpoints(results: Results, run_ids: Iterable[str]) -> list[str]:
    number = sum(any(results.checkpoints(run_id).glob("step-*")) for run_id in run_ids)
    if not number:
        return []
    return [
        f"without the checkpoints of {counted(number, 'run')}: to train these further where the archive is imported, "
        f"export with --checkpoints"
    ]


def _left_out_lines(left_out: Sequence[str]) -> list[str]:
    if not left_out:
        return []
    return [
        *(f"left out: {text}" for text in left_out),
        f"{len(left_out)} left out, since they do not verify; the archive holds the rest and can be imported",
    ]


def _all_studies(results: Results) -> list[str]:
    """Return the names of studies, damaged or not; one that a sweep has only begun to write is none yet."""
    folders = sorted(path for path in results.root.glob("studies/[!.]*") if path.is_dir())
    whole = not results.being_written()
    return [path.name for path in folders if whole or closed_folder(path) or (path / "study.json").exists()]


def _wanted(results: Results, studies: Sequence[str]) -> list[str]:
    """Ids of the runs that studies want and that are here."""
    wanted: set[str] = set()
    for study in studies:
        if not results.study(study).is_dir():
            read_study(results.root, study)  # raises, with the names of those that are here
        with suppress(RecordError):  # named when the study is added
            wanted |= {row["run_id"] for row in read_wanted_rows(results.root, study)}
    return sorted(run_id for run_id in wanted if results.holds(run_id) or is_folder(results.checkpoints(run_id)))


def _all_runs(results: Results, checkpoints: bool) -> list[str]:
    paths = [*results.root.glob("runs/*.parquet"), *results.root.glob("curves/*.parquet")]
    paths += results.root.glob("checkpoints/*") if checkpoints else []
    return sorted({path.stem for path in paths if RUN_ID.fullmatch(path.stem)})


def _manifest_room(results: Results, studies: Sequence[str], run_ids: Sequence[str]) -> int:
    """Return bytes that are enough for the manifest, which comes first and is known last."""
    a_study = sum(2 * len(study) + 200 for study in studies)
    a_run = (2 * 200 + 2 * len(LONGEST_CHECKPOINT)) * len(run_ids)
    return 1000 + 4 * a_study + a_run + 200 * len(WEIGHTS_FILES) * len(_weights(results))


def _weights(results: Results) -> list[Path]:
    """Folders of weights that were trained here."""
    return sorted(path for path in results.pretrained.glob("gpt2-*") if WEIGHTS_FOLDER.fullmatch(path.name))


class _Exporter:
    """Puts what is chosen into an archive. Others may write to the directory meanwhile."""

    def __init__(self, results: Results, writer: ArchiveWriter) -> None:
        self.results, self.writer = results, writer
        self.left_out: dict[str, None] = {}
        """Texts that name what is not in the archive though it was to be, in order."""
        self._weights_wanted: set[str | None] = set()
        """Checksums of weights that runs began from; None: of some it is not known."""

    def add_all(self, studies: Sequence[str], run_ids: Sequence[str], checkpoints: bool) -> None:
        """Add runs with their checkpoints, weights, then the studies; then finish.

        Raises:
            UserError: none of them verifies.
        """
        if checkpoints and (closed := closed_folder(self.results.root / "checkpoints")):
            self.left_out[f"checkpoints: {closed}"] = None
            checkpoints = False
        for run_id in run_ids:
            began_from = None  # not known of a run that is left out
            with self._named(f"run {run_id}"):
                began_from = self._add_run(run_id)
                if checkpoints:
                    self._add_checkpoint(run_id)
            self._weights_wanted.add(began_from)
        if self._weights_wanted - {""}:
            self._add_all_weights()
        for study in studies:
            with self._named(f"study {study}"):
                self._add_study(study)
        if not self.writer.files:
            raise UserError("\n".join(["nothing was exported, since nothing verifies:", *self.left_out]))
        self.writer.finish()

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Leave out what a reader finds wrong or may not read; nothing of it has been added by then."""
        try:
            yield
        except (RecordError, OSError) as error:
            self._leave_out(what, error)

    def _leave_out(self, what: str, error: RecordError | OSError) -> None:
        if isinstance(error, OSError) and error.filename is None:  # of the archive that is written
            raise error
        reason = unreadable(Path(error.filename), error) if isinstance(error, OSError) else error
        self.left_out[f"{what}: {reason}"] = None

    def _add_run(self, run_id: str) -> str | None:
        """Add a run's row and curve as they were at one time; return `_weights_of` it."""
        paths = [self.results.run(run_id), self.results.curve(run_id)]
        while True:  # a row speaks of a curve that was there before it; so nothing changed if the row did not
            contents = [_bytes(path) for path in paths]
            recorded = read_run(self.results.root, run_id)
            if _bytes(paths[0]) == contents[0]:
                break
        files = {path: content for path, content in zip(paths, contents, strict=True) if content is not None}
        if recorded and (wrong := _mistakes(recorded)):
            here = " and ".join(map(str, files))
            raise RecordError(f"{'; '.join(wrong)}: delete {here} and run the study again")
        self._add_files(files)
        return _weights_of(recorded)

    def _add_checkpoint(self, run_id: str) -> None:
        """Add the newest intact checkpoint; damaged ones that are newer are named."""
        folder = self.results.checkpoints(run_id)
        if closed := closed_folder(folder):
            raise RecordError(closed)
        while True:
            try:
                if any(self._added(path) for path in sorted(folder.glob("step-*.safetensors"), reverse=True)):
                    return
            except FileNotFoundError:  # training removed it, having saved a newer one
                continue
            return

    def _added(self, path: Path) -> bool:
        """Add a checkpoint if it is intact; name it otherwise.

        Raises:
            FileNotFoundError: it is gone.
        """
        try:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                try:
                    check_checkpoint(path, sha256)
                except NOT_A_CHECKPOINT as error:
                    mend = "delete it; its run resumes from an earlier one, or from step 0"
                    raise RecordError(f"{path}: {error}: {mend}") from error
                size = file.tell()
                file.seek(0)
                self._add(path, file, size)
        except FileNotFoundError:
            raise
        except (RecordError, OSError) as error:
            self._leave_out(f"checkpoint of run {path.parent.name}", error)
            return False
        return True

    def _add_all_weights(self) -> None:
        if closed := closed_folder(self.results.pretrained):
            self.left_out[f"weights: {closed}"] = None
            return
        for folder in _weights(self.results):
            with self._named(f"weights {folder.name}"):
                self._add_weights(folder)

    def _add_weights(self, folder: Path) -> None:
        """Add a folder of weights if a run began from them, or may have: one that has not ended does not say."""
        if closed := closed_folder(folder):
            raise RecordError(closed)
        if problem := weights_damage(folder) or _json_problem(folder):
            recorded = _recorded_checksum(folder)
            if recorded is None or self._weights_wanted & {recorded, None}:
                raise RecordError(f"{folder}: {problem}: delete it; `run` and `pretrain` make it again")
            return
        with (folder / "model.safetensors").open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            if not self._weights_wanted & {checksum, None}:
                return
            self._add_files({folder / name: (folder / name).read_bytes() for name in _facts(folder)})
            size = file.tell()
            file.seek(0)
            self._add(folder / "model.safetensors", file, size)

    def _add_study(self, name: str) -> None:
        """Add a study's files; what it was planned to cost, and its YAML, may be left out alone."""
        if problems := list(study_problems(self.results, name)):
            raise RecordError("; ".join(problems))
        for path in [self.results.study(name) / part for part in study_files(name)]:
            with self._named(f"study {name}"):
                if path == planned_path(self.results.root, name):
                    read_rows(path, PLANNED)
                content = _bytes(path)
                self._add_files({path: content} if content is not None else {})

    def _add_files(self, contents: Mapping[Path, bytes]) -> None:
        for path, content in contents.items():
            if len(content) > most_bytes(self._name(path)):
                raise RecordError(f"{path}: no archive takes a file of this name and {len(content)} bytes: rename it")
        for path, content in contents.items():
            self._add(path, io.BytesIO(content), len(content))

    def _add(self, path: Path, content: IO[bytes], num_bytes: int) -> None:
        self.writer.add(self._name(path), content, num_bytes)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.results.root).as_posix()


def _mistakes(run: RecordedRun) -> list[str]:
    """Return what `import`, or else `verify`, would find wrong in the record of a run."""
    points = cast("list[Row]", run.curve.to_dict("records"))
    row = row_problems(run.run_id, [run.row]) if run.row else []
    return mistakes(run) or row or (curve_problems(run.run_id, points, run.row) if points else [])


def _weights_of(run: RecordedRun | None) -> str | None:
    """Return the checksum of the weights a run began from, "" for random ones; None: not known before it has ended."""
    return (run.row["weights_checksum"] or "") if run and run.row else None


def _facts(folder: Path) -> list[str]:
    """Return the names of the JSON files in a folder of weights."""
    return [name for name in WEIGHTS_FILES if name.endswith(".json") and (folder / name).exists()]


def _json_problem(folder: Path) -> str | None:
    if not (folder / "config.json").exists():
        return "it has no config.json"
    for name in _facts(folder):
        try:
            json.loads((folder / name).read_text(encoding="utf-8"))
        except ValueError as error:
            return f"{name} cannot be read ({error})"
    return None


def _recorded_checksum(folder: Path) -> str | None:
    """Return the checksum that damaged weights had; None: that is not known, either."""
    try:
        return str(json.loads((folder / "pretraining.json").read_text(encoding="utf-8"))["weights_sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _bytes(path: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return None
