"""The results directory: where everything of it is, who writes to it, and writing whole files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from analysis.checksum import parquet_bytes
from analysis.columns import Columns, table
from analysis.record import FORMAT, RecordError, check_format, curve_path, new_index, run_path, study_dir
from analysis.run_index import index_path
from sweep.errors import UserError

STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)
"""Failures to write that trying again will not mend."""

LOCK_PATIENCE_S = 1.0
"""`status` takes the lock for a moment to see whether somebody holds it; a `run` that starts just then waits."""


class Results:
    """All paths below a results directory."""

    uri: str | None = None
    """Of the store that the directory is a copy of (`sweep.stored_results`); None: it is the thing itself."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().resolve()
        self.pretrained = self.root / "pretrained"
        self.tune = self.root / "tune"
        self.logs = self.root / "logs"
        self.holder = self.root / "writer.json"
        self.pretraining_progress = self.root / "pretraining-progress.json"

    def run(self, run_id: str) -> Path:
        """Return the file of a finished run's row."""
        return run_path(self.root, run_id)

    def curve(self, run_id: str) -> Path:
        """Return the file of a run's evaluations."""
        return curve_path(self.root, run_id)

    def checkpoints(self, run_id: str) -> Path:
        """Return the folder of a run's checkpoints."""
        return self.root / "checkpoints" / run_id

    def holds(self, run_id: str) -> bool:
        """Tell whether anything of a run is recorded."""
        return self.run(run_id).exists() or self.curve(run_id).exists()

    def study(self, name: str) -> Path:
        """Return the folder of a study: what it wants, its progress, its report."""
        return study_dir(self.root, name)

    def progress(self, study: str) -> Path:
        """Return the file that `status` reads while a sweep is going."""
        return self.study(study) / "progress.json"

    def exists(self) -> bool:
        """Tell whether anything was ever recorded here."""
        return (self.root / "format.json").is_file()

    def check(self) -> None:
        """Refuse a directory that is not ours, or a record that this version cannot read; one may be missing.

        Raises:
            UserError: it is a file, is not empty and not ours, or was written by an incompatible version.
        """
        if self.root.exists() and not self.root.is_dir():
            raise UserError(f"{self.root} is a file. Choose a new or empty directory with --results.")
        if self.root.is_dir() and not self.exists() and any(path.name[0] != "." for path in self.root.iterdir()):
            raise UserError(
                f"{self.root} is not empty and holds no record of ours (no format.json). "
                f"Choose a new or empty directory with --results."
            )
        if self.exists():
            try:
                check_format(self.root)
            except RecordError as error:
                raise UserError(str(error)) from error

    def prepare(self) -> None:
        """Create the directory, or check that it is one of ours and can be written to.

        Raises:
            UserError: it cannot be written to, is not empty and not ours, or is of another format.
        """
        self.check()
        with storage_problems(self.root):
            if not self.exists():  # written first: whatever dies after it leaves a directory that is ours
                write_json(self.root / "format.json", {"format": FORMAT})
            for folder in (self.root / "runs", self.root / "curves", self.logs, self.pretrained):
                folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass

    @contextmanager
    def writing(self, study: str) -> Iterator[None]:
        """Hold the right to write; one process at a time. The system takes it back from a process that died.

        Raises:
            UserError: somebody else holds it.
        """
        lock = FileLock(self.root / "writer.lock")
        try:
            lock.acquire(timeout=LOCK_PATIENCE_S)
        except Timeout as error:
            raise UserError(
                f"{self.root} is being written to by {self._holder()}. Wait for it, stop it, or use another "
                f"directory with --results; `python -m sweep status` shows how far it is."
            ) from error
        try:
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "study": study, "since": time.time()}
            write_json(self.holder, holder)
            self.pretraining_progress.unlink(missing_ok=True)  # of a process that died
            yield
            self.write_index()
        finally:
            self.holder.unlink(missing_ok=True)
            lock.release()

    def write_index(self) -> None:
        """Bring the index of rows up to date, where there are so many that it has a use; for who writes here."""
        with suppress(OSError):  # what is recorded can be read without
            content = new_index(self.root, time.time_ns())
            if content is not None:
                with whole_file(index_path(self.root)) as partial:
                    partial.write_bytes(content)

    def being_written(self) -> bool:
        """Tell whether a process holds the right to write now."""
        path = self.root / "writer.lock"
        if not path.exists():
            return False
        try:
            with FileLock(path, timeout=0):
                return False
        except Timeout:
            return True
        except OSError:  # we may not open the lock, in somebody else's directory for one
            return self.holder.exists()

    def _holder(self) -> str:
        try:
            holder = json.loads(self.holder.read_text())
            return f"process {holder['pid']} on {holder['host']} (study {holder['study']})"
        except (OSError, ValueError, KeyError):
            return "another process"

    @property
    def location(self) -> str:
        """Where it is, as `--results` takes it."""
        return self.uri or str(self.root)

    def settle(self) -> None:
        """Wait until all machines can see what was written so far: on a disk they do."""

    def news(self) -> list[str]:
        """Return what is to be told of where results are kept, since the last call: of a disk, nothing."""
        return []

    def free_bytes(self) -> int:
        """Return the free space of the disk the directory is, or will be, on."""
        folder = self.root
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free


@contextmanager
def storage_problems(path: Path) -> Iterator[None]:
    """Turn a full, read-only or forbidden disk into a message; let other problems pass.

    Raises:
        UserError: in place of such an OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in STORAGE_ERRORS:
            raise
        reason = error.strerror or str(error)
        mend = "Free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Make it writable"
        raise UserError(
            f"cannot write to {error.filename or path}: {reason}. {mend}; what is recorded is intact, and the same "
            f"command goes on from it."
        ) from error


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], columns: Columns) -> None:
    """Write a table of the record, whole or not at all."""
    with whole_file(path) as partial:
        partial.write_bytes(parquet_bytes(table(rows, columns)))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(content, indent=2) + "\n")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a path to write to, and put what was written there in the place of `path` when done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
