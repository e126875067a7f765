"""`export`: results of a directory into one archive, also while a sweep goes on there."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, BinaryIO

from analysis.record import check_format, read_study, read_wanted, recorded_studies
from sweep.archive import (
    CHECKPOINT,
    MANIFEST,
    PIECE_BYTES,
    RUN_ID,
    WEIGHTS_FILES,
    WEIGHTS_FOLDER,
    Entry,
    manifest_text,
    study_files,
)
from sweep.errors import UserError
from sweep.merge import RecordedRun, mistakes, read_run
from sweep.provenance import git_state
from sweep.results import Results, storage_problems, whole_file
from sweep.text import counted, gigabytes

LONGEST_CHECKPOINT = "checkpoints/0123456789abcdef/step-000000000000000000-0123456789abcdef.safetensors"


def export(results: Results, target: Path, names: Sequence[str], *, checkpoints: bool) -> str:
    """Write an archive, whole or not at all, and return what is in it, as text.

    Args:
        results: a results directory; nothing of it changes.
        target: the archive to make.
        names: of recorded studies, whose runs are taken; none: all studies, and every run, wanted or not.
        checkpoints: take each run's newest intact checkpoint along, without which it cannot be trained further.

    Raises:
        RecordError: no results directory, no such study, or the record is damaged.
        UserError: the target exists, its folder does not, it cannot be written, or there is nothing to export.
    """
    check_format(results.root)
    if target.exists():
        raise UserError(f"{target} exists; `export` overwrites nothing. Remove it, or name another file.")
    if not target.parent.is_dir():
        raise UserError(f"there is no folder {target.parent}; make it, or name a file elsewhere.")
    studies = list(dict.fromkeys(names)) or recorded_studies(results.root)
    run_ids = _wanted(results, studies) if names else _all_runs(results, checkpoints)
    if not studies and not run_ids:
        raise UserError(f"{results.root} holds nothing to export; `run` a study first, or give its --results.")
    with storage_problems(target), whole_file(target) as partial, partial.open("w+b") as file:
        exporter = _Exporter(results, _Writer(file, _manifest_room(results, studies, run_ids)))
        exporter.add_all(studies, run_ids, checkpoints)
    return f"{target}: {exporter.writer.summary()}; {gigabytes(target.stat().st_size)}"


def _wanted(results: Results, studies: Sequence[str]) -> list[str]:
    """Ids of the runs that studies want and that are here."""
    for study in studies:
        read_study(results.root, study)  # an unknown one is told with the names of those that are here
    wanted = {run_id for study in studies for run_id in read_wanted(results.root, study)["run_id"]}
    return sorted(run_id for run_id in wanted if results.holds(run_id) or results.checkpoints(run_id).is_dir())


def _all_runs(results: Results, checkpoints: bool) -> list[str]:
    paths = [*results.root.glob("runs/*.parquet"), *results.root.glob("curves/*.parquet")]
    paths += results.root.glob("checkpoints/*") if checkpoints else []
    return sorted({path.stem for path in paths if RUN_ID.fullmatch(path.stem)})


def _manifest_room(results: Results, studies: Sequence[str], run_ids: Sequence[str]) -> int:
    """Return bytes that are enough for the manifest, which comes first and is known last."""
    a_study = sum(2 * len(study) + 200 for study in studies)
    a_run = (2 * 200 + 2 * len(LONGEST_CHECKPOINT)) * len(run_ids)
    return 1000 + 3 * a_study + a_run + 200 * len(WEIGHTS_FILES) * len(_weights(results))


def _weights(results: Results) -> list[Path]:
    """Folders of weights that were trained here."""
    paths = sorted(results.pretrained.glob("*/model.safetensors"))
    return [path.parent for path in paths if WEIGHTS_FOLDER.fullmatch(path.parent.name)]


class _Exporter:
    """Puts what is chosen into an archive. Others may write to the directory meanwhile."""

    def __init__(self, results: Results, writer: _Writer) -> None:
        self.results, self.writer = results, writer
        self._weights_wanted: set[str | None] = set()
        """Checksums of weights that runs began from; None: of some it is not known."""

    def add_all(self, studies: Sequence[str], run_ids: Sequence[str], checkpoints: bool) -> None:
        """Add runs, their checkpoints and weights, then the studies; then finish.

        Raises:
            UserError: rows or curves are not as this program writes them; all of them are named.
        """
        wrong = [f"  {run_id}: {mistake}" for run_id in run_ids for mistake in self._add_run(run_id)]
        if wrong:
            raise UserError(
                f"{len(wrong)} mistakes in the record of {self.results.root}; delete these runs' files in runs/ and "
                "curves/ and run the study again, what is missing is made again:\n" + "\n".join(wrong)
            )
        for run_id in run_ids if checkpoints else []:
            self._add_checkpoint(run_id)
        for folder in _weights(self.results):
            self._add_weights(folder)
        for study in studies:
            for name in study_files(study):
                self._add_bytes(self.results.study(study) / name)
        self.writer.finish()

    def _add_run(self, run_id: str) -> list[str]:
        """Add a run's row and curve as they were at one time; return what is wrong with them."""
        row_path, curve_path = self.results.run(run_id), self.results.curve(run_id)
        while True:  # a row speaks of a curve that was there before it; so nothing changed if the row did not
            row, curve = _bytes(row_path), _bytes(curve_path)
            recorded = read_run(self.results.root, run_id)
            if _bytes(row_path) == row:
                break
        for path, content in ((row_path, row), (curve_path, curve)):
            if content is not None:
                self._add(path, io.BytesIO(content), len(content))
        self._weights_wanted.add(_weights_of(recorded))
        return mistakes(recorded) if recorded else []

    def _add_checkpoint(self, run_id: str) -> None:
        """Add the newest checkpoint whose checksum is the one in its name."""
        folder = self.results.checkpoints(run_id)
        while True:
            try:
                for path in sorted(folder.glob("step-*.safetensors"), reverse=True):
                    if (named := CHECKPOINT.fullmatch(path.name)) and self._add_intact(path, named[2]):
                        return
            except FileNotFoundError:  # training removed it, having saved a newer one
                continue
            return

    def _add_intact(self, path: Path, sha256_start: str) -> bool:
        with path.open("rb") as file:
            if not hashlib.file_digest(file, "sha256").hexdigest().startswith(sha256_start):
                return False
            size = file.tell()
            file.seek(0)
            self._add(path, file, size)
            return True

    def _add_weights(self, folder: Path) -> None:
        """Add a folder of weights if a run began from them, or may have: one that has not ended does not say."""
        with (folder / "model.safetensors").open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            if not self._weights_wanted & {checksum, None}:
                return
            for name in WEIGHTS_FILES[:-1]:
                self._add_bytes(folder / name)
            size = file.tell()
            file.seek(0)
            self._add(folder / "model.safetensors", file, size)

    def _add_bytes(self, path: Path) -> None:
        content = _bytes(path)
        if content is not None:
            self._add(path, io.BytesIO(content), len(content))

    def _add(self, path: Path, content: IO[bytes], num_bytes: int) -> None:
        self.writer.add(path.relative_to(self.results.root).as_posix(), content, num_bytes)


def _weights_of(run: RecordedRun | None) -> str | None:
    """Return the checksum of the weights a run began from, "" for random ones; None: not known before it has ended."""
    return (run.row["weights_checksum"] or "") if run and run.row else None


def _bytes(path: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return None


class _Writer:
    """A tar whose first member, the manifest, is filled in at the end."""

    def __init__(self, file: BinaryIO, manifest_room: int) -> None:
        self._file, self._room = file, manifest_room
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by finish
        self._tar.addfile(_member(MANIFEST, manifest_room), io.BytesIO(b" " * manifest_room))
        self.files: dict[str, Entry] = {}

    def add(self, path: str, content: IO[bytes], num_bytes: int) -> None:
        """Add a file. Modes, times and owners are left out: equal results make equal members."""
        hashing = _Hashing(content)
        self._tar.addfile(_member(path, num_bytes), hashing)
        self.files[path] = Entry(sha256=hashing.digest.hexdigest(), num_bytes=num_bytes)

    def finish(self) -> None:
        """Write the manifest and the end of the tar."""
        self._tar.close()
        commit, changed = git_state()
        made = {"made_at": datetime.now(UTC).isoformat(timespec="seconds"), "git_commit": commit, "git_dirty": changed}
        text = manifest_text(self.files, **made).encode()
        assert len(text) <= self._room
        self._file.seek(tarfile.BLOCKSIZE)  # behind the header of the first member
        self._file.write(text.ljust(self._room))

    def summary(self) -> str:
        """Return what was added, in words."""
        parts = [Path(path).parts for path in self.files]
        ended, begun = ({name for folder, *_, name in parts if folder == kind} for kind in ("runs", "curves"))
        checkpoints = sum(folder == "checkpoints" for folder, *_ in parts)
        told = [
            f"{counted(len(ended | begun), 'run')} ({len(begun - ended)} not ended)",
            *(f"study {name}" for name in sorted({rest[0] for folder, *rest in parts if folder == "studies"})),
            *(f"weights {name}" for name in sorted({rest[0] for folder, *rest in parts if folder == "pretrained"})),
            *([counted(checkpoints, "checkpoint")] if checkpoints else []),
        ]
        return ", ".join(told)


def _member(path: str, num_bytes: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.size, member.mode = num_bytes, 0o644
    return member


class _Hashing:
    """A file that is hashed as it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int = PIECE_BYTES) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece
