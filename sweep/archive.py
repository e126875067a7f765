"""The archive that carries results between machines: a plain tar; its first member says what else is in it.

This file owns the format. `archive_export` writes one, `archive_import` merges one into a results directory.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, BinaryIO

from analysis.record import FORMAT
from sweep.errors import UserError
from sweep.provenance import git_state
from sweep.text import counted

ARCHIVE = 1
"""Raised when an older `import` would misread a newer archive, or the other way round."""
MANIFEST = "manifest.json"
"""The first member: {"archive": ARCHIVE, "format": FORMAT, "files": {path: {"sha256", "bytes"}}, ...}."""
PIECE_BYTES = 1 << 20
"""Members are copied in pieces of this size."""

CHECKPOINT = re.compile(r"step-([0-9]{9,18})-([0-9a-f]{16})\.safetensors")
"""Name of a checkpoint: its step, and the start of its sha256."""
RUN_ID = re.compile(r"[0-9a-f]{16}")
WEIGHTS_FOLDER = re.compile(r"gpt2-[0-9]+x[0-9]+-[0-9a-f]{12}")
WEIGHTS_FILES = ("config.json", "generation_config.json", "pretraining.json", "model.safetensors")
"""What a folder of weights is made of, in the order it is moved: it counts as there once the last file is."""

DAMAGED = (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, RecursionError, LookupError, TypeError)
"""What Python's tarfile raises for headers that are not right."""
_UNLIMITED = 1 << 60
_PATHS = {
    rf"runs/{RUN_ID.pattern}\.parquet": 10_000_000,
    rf"curves/{RUN_ID.pattern}\.parquet": 100_000_000,
    rf"checkpoints/{RUN_ID.pattern}/{CHECKPOINT.pattern}": _UNLIMITED,
    rf"pretrained/{WEIGHTS_FOLDER.pattern}/[a-z_]+\.json": 1_000_000,
    rf"pretrained/{WEIGHTS_FOLDER.pattern}/model\.safetensors": _UNLIMITED,
    r"studies/(?P<study>[a-z0-9]+(-[a-z0-9]+)*)/(study\.json|(wanted|planned)\.parquet|(?P=study)\.yaml)": 100_000_000,
}
"""Every path that may be in an archive, with the most bytes it may have: what is read at once must fit in memory."""
_LARGEST_MANIFEST = 200_000_000


def study_files(study: str) -> tuple[str, ...]:
    """Return what a study's folder is made of, in the order it is moved: it counts as there once the last file is."""
    return f"{study}.yaml", "planned.parquet", "wanted.parquet", "study.json"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the manifest says of a file."""

    sha256: str
    num_bytes: int


def manifest_text(files: dict[str, Entry], **facts: Any) -> str:
    """Return the manifest of an archive as JSON; `facts` say who made it."""
    entries = {path: {"sha256": entry.sha256, "bytes": entry.num_bytes} for path, entry in files.items()}
    return json.dumps({"archive": ARCHIVE, "format": FORMAT, **facts, "files": entries}, separators=(",", ":"))


def refused(archive: Path, reason: str) -> UserError:
    """Return the error of an archive that cannot be taken."""
    return UserError(
        f"{archive}: {reason}. It is damaged or no archive of `python -m sweep export`: copy it or export it again. "
        f"Nothing was changed."
    )


class ArchiveReader:
    """An archive opened for reading. Whatever is in it is refused unless the manifest and its path allow it."""

    def __init__(self, path: Path, tar: tarfile.TarFile) -> None:
        self.path, self._tar = path, tar
        first = self._next()
        if first is None or first.name != MANIFEST or not 0 < first.size <= _LARGEST_MANIFEST:
            raise refused(path, f"its first member is not {MANIFEST}")
        self.files = self._entries(b"".join(self._pieces(first)))
        """Files by path."""

    def unpack(self, folder: Path) -> None:
        """Copy all members below an empty folder, checked against the manifest.

        Raises:
            UserError: a member is missing, not allowed, there twice, or not what the manifest says.
            OSError: the disk is full or not writable.
        """
        left = dict(self.files)
        while (member := self._next()) is not None:
            entry = left.pop(member.name, None)
            if entry is None:
                raise refused(self.path, f"{member.name!r} is not in its manifest, or there twice")
            if member.size != entry.num_bytes:
                raise refused(self.path, f"{member.name} has {member.size} bytes, want {entry.num_bytes}")
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if self._copy(member, target) != entry.sha256:
                raise refused(self.path, f"the sha256 of {member.name} is not the one in its manifest")
        if left:
            raise refused(self.path, f"{len(left)} files of its manifest are missing, {min(left)} for one")

    def _copy(self, member: tarfile.TarInfo, target: Path) -> str:
        digest = hashlib.sha256()
        with target.open("xb") as file:
            for piece in self._pieces(member):
                digest.update(piece)
                file.write(piece)
        return digest.hexdigest()

    def _next(self) -> tarfile.TarInfo | None:
        """Return the next member, a plain file for certain; None at the end."""
        with self._problems():
            member = self._tar.next()
        if member is not None and (member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse()):
            raise refused(self.path, f"{member.name!r} is not a plain file")
        return member

    def _pieces(self, member: tarfile.TarInfo) -> Iterator[bytes]:
        with self._problems():
            file = self._tar.extractfile(member)
        assert file is not None, "only plain files get here"
        while piece := self._read(file):
            yield piece

    def _read(self, file: IO[bytes]) -> bytes:
        with self._problems():
            return file.read(PIECE_BYTES)

    @contextmanager
    def _problems(self) -> Iterator[None]:
        try:
            yield
        except DAMAGED as error:
            raise refused(self.path, f"it cannot be read ({error})") from error

    def _entries(self, text: bytes) -> dict[str, Entry]:
        try:
            manifest = json.loads(text)
            versions = manifest["archive"], manifest["format"]
            entries = {
                str(path): Entry(sha256=str(entry["sha256"]), num_bytes=int(entry["bytes"]))
                for path, entry in manifest["files"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise refused(self.path, f"its {MANIFEST} cannot be read") from error
        if versions != (ARCHIVE, FORMAT):
            raise UserError(
                f"{self.path}: got archive version {versions[0]!r} of record format {versions[1]!r}, want {ARCHIVE} of "
                f"{FORMAT}: import it with the version of this program that exported it"
            )
        for path, entry in entries.items():
            if not 0 <= entry.num_bytes <= most_bytes(path):
                raise refused(self.path, f"{path!r} of {entry.num_bytes} bytes may not be in an archive")
        if sum(entry.num_bytes for entry in entries.values()) > self.path.stat().st_size:
            raise refused(self.path, "it is smaller than the files that its manifest lists")
        return entries


@contextmanager
def open_archive(path: Path) -> Iterator[ArchiveReader]:
    """Open an archive and read its manifest.

    Raises:
        UserError: there is no such file, it is no archive of ours, or of another version.
    """
    try:
        tar = tarfile.open(path, "r:")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}. Give an archive made by `export`.") from error
    except DAMAGED as error:  # its first header is read here already
        raise refused(path, f"it is no tar file ({error})") from error
    with tar:
        yield ArchiveReader(path, tar)


def most_bytes(path: str) -> int:
    """Return how large a file of an archive may be; -1: it may not be in one."""
    return next((limit for pattern, limit in _PATHS.items() if re.fullmatch(pattern, path)), -1)


class ArchiveWriter:
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
        packed = [
            f"{counted(len(ended | begun), 'run')} ({len(begun - ended)} not ended)",
            *(f"study {name}" for name in sorted({rest[0] for folder, *rest in parts if folder == "studies"})),
            *(f"weights {name}" for name in sorted({rest[0] for folder, *rest in parts if folder == "pretrained"})),
            *([counted(checkpoints, "checkpoint")] if checkpoints else []),
        ]
        return ", ".join(packed)


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
