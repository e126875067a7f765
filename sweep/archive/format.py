"""The archive that carries results between machines: a plain tar whose first member, a manifest, lists the others.

This file owns the format. `exporter` writes one, `importer` merges one into a results directory.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from lr_sweep.analysis.record.parquet import MAX_DECODED
from lr_sweep.analysis.record.read import FORMAT
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import remove_dead_partials
from lr_sweep.common.text import counted
from lr_sweep.sweep.results.provenance import git_state

ARCHIVE = 1
"""Raised when an older `import` would misread a newer archive, or the other way round."""
MANIFEST = "manifest.json"
"""The first member: {"archive": ARCHIVE, "format": FORMAT, "files": {path: {"sha256", "bytes"}}, ...}."""

CHECKPOINT = re.compile(r"step-([0-9]{9,18})-([0-9a-f]{16})\.safetensors")
"""Name of a checkpoint: its step, and the start of its sha256."""
RUN_ID = re.compile(r"[0-9a-f]{16}")
WEIGHTS_FOLDER = re.compile(r"gpt2-[0-9]+x[0-9]+-[0-9a-f]{12}")
WEIGHTS_FILES = ("config.json", "generation_config.json", "pretraining.json", "model.safetensors")
"""The files of a folder of weights, in the order in which they are moved: the last one makes it complete."""

DAMAGED = (
    *(tarfile.TarError, OSError, EOFError, ValueError, OverflowError),
    *(RecursionError, LookupError, TypeError, AttributeError),
)
"""What Python raises for tar headers, a manifest or files that are not right."""
_UNLIMITED = 1 << 60
_PATHS = {
    rf"runs/{RUN_ID.pattern}\.parquet": 4_000_000,
    rf"curves/{RUN_ID.pattern}\.parquet": MAX_DECODED,
    rf"checkpoints/{RUN_ID.pattern}/{CHECKPOINT.pattern}": _UNLIMITED,
    rf"pretrained/{WEIGHTS_FOLDER.pattern}/[a-z_]+\.json": 1_000_000,
    rf"pretrained/{WEIGHTS_FOLDER.pattern}/model\.safetensors": _UNLIMITED,
    r"studies/[a-z0-9]+(-[a-z0-9]+)*/study\.json": 1_000_000,
    r"studies/(?P<study>[a-z0-9]+(-[a-z0-9]+)*)/(?P=study)\.yaml": 10_000_000,
    r"studies/[a-z0-9]+(-[a-z0-9]+)*/(wanted|planned|proposals|rungs)\.parquet": MAX_DECODED,
}
"""Every path that may be in an archive, with the most bytes it may have: what is read at once must fit in memory."""
_LARGEST_MANIFEST, _MOST_BLANK = 48_000_000, 100_000_000
"""Bytes; that of 100,000 runs with their curves and checkpoints takes 44 million. The second, with its blanks."""
_LARGEST_HEADER = 4096
"""Bytes; the longest name of a study takes 400."""
_FACTS = re.compile(rb'(\{[^{}\[\]]{1,1000}),"files":\{')
_ENTRY = re.compile(rb'"([^"\\]{1,300})":\{"sha256":"([0-9a-f]{64})","bytes":([0-9]{1,18})\}(?:,|\}\})')
"""The manifest as `manifest_text` writes it: JSON of any form could hold millions of lists in a line."""

OpenFile = io.BufferedReader | io.BytesIO


def check_target(target: Path) -> None:
    """Refuse what exists or has no folder; remove what killed exports left beside it."""
    if target.exists():
        raise UserError(f"{target} exists; `export` overwrites nothing. Remove it, or name another path.")
    if not target.parent.is_dir():
        raise UserError(f"there is no folder {target.parent}; make it, or name a path elsewhere.")
    remove_dead_partials(target.parent)


def study_files(study: str) -> tuple[str, ...]:
    """Return the files of a study's folder, in the order in which they are moved: the last one makes it complete."""
    return f"{study}.yaml", "planned.parquet", "proposals.parquet", "rungs.parquet", "wanted.parquet", "study.json"


class Entry(NamedTuple):
    """What the manifest says of a file."""

    sha256: str
    num_bytes: int

    @classmethod
    def of(cls, file: OpenFile) -> Entry:
        """Return the entry of an open file, and rewind it."""
        sha256, num_bytes = hashlib.file_digest(file, "sha256").hexdigest(), file.seek(0, io.SEEK_END)
        file.seek(0)
        return cls(sha256=sha256, num_bytes=num_bytes)


def manifest_text(files: dict[str, Entry], **facts: Any) -> str:
    """Return the manifest of an archive as JSON; `facts` say how it was made."""
    entries = {path: {"sha256": entry.sha256, "bytes": entry.num_bytes} for path, entry in files.items()}
    return json.dumps({"archive": ARCHIVE, "format": FORMAT, **facts, "files": entries}, separators=(",", ":"))


def refused(archive: Path, reason: str) -> UserError:
    """Return the error for an archive that cannot be imported."""
    mend = "It is damaged or no archive of `export`: copy it or export it again. Nothing was changed."
    return UserError(f"{archive}: {reason}. {mend}")


class _File(io.FileIO):
    """A file from which `tarfile` reads headers alone: by itself it takes one of any size, some within each other."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # a pipe has no end

    def read(self, size: int | None = -1, /) -> bytes:
        """Read a header; raises ReadError for what is longer than any that `ArchiveWriter` writes."""
        if size is None or not 0 <= size <= _LARGEST_HEADER:
            raise tarfile.ReadError(f"it has a header of {size} bytes")
        return super().read(size) or b""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read data."""
        self.seek(offset)
        return super().read(size) or b""


class ArchiveReader:
    """An archive opened for reading. Everything in it is refused that the manifest and its path do not allow."""

    def __init__(self, path: Path, file: _File) -> None:
        self.path, self._file = path, file
        with self._refusing("it is no tar file"):  # reads the first header
            self._tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - it opens nothing
        first = self._next()
        if first is None or first.name != MANIFEST or not 0 < first.size <= _MOST_BLANK:
            raise refused(path, f"its first member is not {MANIFEST}")
        text = bytearray()
        for piece in self._pieces(first):
            text += piece.rstrip(b" ") if piece.isspace() else piece
            if len(text) > _LARGEST_MANIFEST:
                raise refused(path, f"its {MANIFEST} has more than {_LARGEST_MANIFEST:,} bytes")
        self.files = self._entries(text)

    def unpack(self, folder: Path) -> None:
        """Copy all members below an empty folder; refuse what is not exactly what the manifest says."""
        left = dict(self.files)
        while (member := self._next()) is not None:
            entry = left.pop(member.name, None)
            if entry is None:
                raise refused(self.path, f"{member.name!r} is not in its manifest, or there twice")
            if member.size != entry.num_bytes:
                raise refused(self.path, f"{member.name} has {member.size} bytes, want {entry.num_bytes}")
            target, digest = folder / member.name, hashlib.sha256()
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                for piece in self._pieces(member):
                    digest.update(piece)
                    file.write(piece)
            if digest.hexdigest() != entry.sha256:
                raise refused(self.path, f"the sha256 of {member.name} is not the one in its manifest")
        if left:
            raise refused(self.path, f"{len(left)} files of its manifest are missing, {min(left)} for one")

    def _next(self) -> tarfile.TarInfo | None:
        with self._refusing("it cannot be read"):
            member = self._tar.next()
            self._tar.members.clear()  # type: ignore[attr-defined]  # it would keep all
        if member is not None and (member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse()):
            raise refused(self.path, f"{member.name!r} is not a plain file")
        return member

    def _pieces(self, member: tarfile.TarInfo) -> Iterator[bytes]:
        read = 0
        while read < member.size:
            with self._refusing("it cannot be read"):  # catches no error of the caller, who writes the pieces
                piece = self._file.read_at(member.offset_data + read, min(member.size - read, 1 << 20))
                if not piece:
                    raise EOFError("unexpected end of data")
            read += len(piece)
            yield piece

    @contextmanager
    def _refusing(self, reason: str) -> Iterator[None]:
        try:
            yield
        except DAMAGED as error:
            raise refused(self.path, f"{reason} ({error})") from error

    def _entries(self, text: bytearray) -> dict[str, Entry]:
        with self._refusing(f"its {MANIFEST} cannot be read"):
            begin = _FACTS.match(text)
            if begin is None:
                raise ValueError("it is not as `export` writes it")
            facts = json.loads(begin[1] + b"}")
            versions = facts["archive"], facts["format"]
        if versions != (ARCHIVE, FORMAT):
            got = f"archive version {versions[0]!r} of record format {versions[1]!r}, want {ARCHIVE} of {FORMAT}"
            raise UserError(f"{self.path}: got {got}: import it with the version of this program that exported it")
        entries, end = dict[str, Entry](), begin.end()
        while found := _ENTRY.match(text, end):
            path, num_bytes, end = found[1].decode(errors="replace"), int(found[3]), found.end()
            if num_bytes > max_bytes(path):
                raise refused(self.path, f"{path!r} of {num_bytes} bytes may not be in an archive")
            entries[path] = Entry(sha256=found[2].decode(), num_bytes=num_bytes)
        if text[end:].strip() not in (b"", b"}}"):
            raise refused(self.path, f"its {MANIFEST} cannot be read (byte {end} on is not as `export` writes it)")
        if sum(entry.num_bytes for entry in entries.values()) > self.path.stat().st_size:
            raise refused(self.path, "it is smaller than the files that its manifest lists")
        return entries


@contextmanager
def open_archive(path: Path) -> Iterator[ArchiveReader]:
    """Open an archive and read its manifest; raises UserError if it is none, or of another version."""
    try:
        file = _File(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}. Give an archive made by `export`.") from error
    with file:
        yield ArchiveReader(path, file)


def max_bytes(path: str) -> int:
    """Return how large a file of an archive may be; -1: it may not be in one."""
    return next((limit for pattern, limit in _PATHS.items() if re.fullmatch(pattern, path)), -1)


class ArchiveWriter:
    """A tar whose first member, the manifest of at most `manifest_room` bytes, is filled in at the end."""

    def __init__(self, file: BinaryIO, manifest_room: int) -> None:
        self._file, self._room = file, manifest_room
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by finish
        self.files: dict[str, Entry] = {}
        blank = io.BytesIO(b" " * manifest_room)
        self.add(MANIFEST, blank, Entry.of(blank))
        del self.files[MANIFEST]

    def add(self, path: str, file: OpenFile, entry: Entry) -> None:
        """Add a file. Modes, times and owners are left out: equal results make equal members."""
        member = tarfile.TarInfo(path)
        member.size, member.mode = entry.num_bytes, 0o644
        self._tar.addfile(member, file)
        self.files[path] = entry

    def finish(self) -> None:
        """Write the manifest and the end of the tar."""
        self._tar.close()
        commit, changed = git_state()
        made = {"made_at": datetime.now(UTC).isoformat(timespec="seconds"), "git_commit": commit, "git_dirty": changed}
        text = manifest_text(self.files, **made).encode()
        if len(text) > _LARGEST_MANIFEST:
            raise UserError(f"{len(self.files):,} files are more than an archive holds: export studies one by one")
        assert len(text) <= self._room
        self._file.seek(tarfile.BLOCKSIZE)  # behind the header of the first member
        self._file.write(text.ljust(self._room))

    def summary(self) -> str:
        """Return what was added, in words."""
        names: dict[str, set[str]] = defaultdict(set)
        for path in self.files:
            folder, name, *_ = Path(path).parts
            names[folder].add(name)
        num_checkpoints = sum(path.startswith("checkpoints/") for path in self.files)
        runs = counted(len(names["runs"] | names["curves"]), "run")
        packed = [f"{runs} ({len(names['curves'] - names['runs'])} not ended)"]
        packed += [f"study {name}" for name in sorted(names["studies"])]
        packed += [f"weights {name}" for name in sorted(names["pretrained"])]
        if num_checkpoints:
            packed.append(counted(num_checkpoints, "checkpoint"))
        return ", ".join(packed)
