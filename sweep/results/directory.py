"""The results directory: where everything of it is, who writes to it, and writing whole files."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lr_sweep.analysis.record.columns import Columns, table
from lr_sweep.analysis.record.parquet import FORMAT, parquet_bytes
from lr_sweep.analysis.record.paths import Paths, RecordError
from lr_sweep.analysis.record.read import MAX_JSON, check_format
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import (
    FULL,
    Fields,
    check_held,
    held,
    is_locked,
    read_plain,
    remove_dead_partials,
    remove_tree,
    write_bytes,
    write_json,
)

STORAGE_ERRORS = (
    *FULL,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.ESTALE,
    errno.ELOOP,
)
"""Failures to write that trying again will not mend."""
_MENDS: Mapping[int | None, str] = {
    **dict.fromkeys(FULL, "Free some space"),
    errno.EFBIG: "Raise the limit of the size of files (`ulimit -f`)",
    errno.ESTALE: "Move it back, or give its new place with --results",
}
LOCK_PATIENCE_S = 1.0
"""`status` takes the lock for a moment to see whether a process holds it; a `run` that starts just then waits."""


class Results(Paths):
    """A results directory: its paths, its format, its one writer."""

    uri: str | None = None
    """The object store that the directory is a working copy of (`sweep.store.results`); None: there is none."""

    def __init__(self, root: Path) -> None:
        super().__init__(root.expanduser().resolve())

    def holds(self, run_id: str) -> bool:
        """Return whether a run has a row or a curve."""
        return self.run(run_id).exists() or self.curve(run_id).exists()

    @property
    def id(self) -> str:
        """The id that no other results directory has; empty: none was made, or an earlier version made it."""
        return str(read_state(self.format).get("id", ""))

    def exists(self) -> bool:
        """Return whether it is a results directory."""
        return self.format.is_file()

    def check(self) -> None:
        """Raise UserError for a file, a directory of something else, or of another version; it may be missing."""
        if self.exists():
            try:
                check_format(self.root)
            except RecordError as error:
                raise UserError(str(error)) from error
            return
        mend = "Choose a new or empty directory with --results."
        if self.root.exists() and not self.root.is_dir():
            raise UserError(f"{self.root} is a file. {mend}")
        if self.root.is_dir() and any(path.name[0] != "." for path in self.root.iterdir()):
            raise UserError(
                f"{self.root} is not empty and holds no record of ours (no format.json). {mend}"
            )

    def prepare(self) -> None:
        """Create the directory, or check that it can be written to; raises as `check`, and if it cannot be."""
        self.check()
        with storage_problems(self.root):
            # Written first: a process that dies after it leaves a results directory, which earlier versions refuse.
            write_json(self.format, {"format": FORMAT, "id": self.id or secrets.token_hex(8)})
            for folder in (self.runs, self.curves, self.logs, self.pretrained):
                folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass

    @contextmanager
    def writing(self, study: str) -> Iterator[None]:
        """Hold the writers' lock, or raise UserError; the system releases the lock of a process that died."""
        try:
            locked = FileLock(self.writer_lock).acquire(timeout=LOCK_PATIENCE_S)
        except Timeout as error:
            raise UserError(
                f"{self.root} is being written to by {described(read_state(self.holder))}. Wait for it, stop it, or "
                f"use another directory with --results; `status` shows how far it is."
            ) from error
        with locked, held(self.root):
            if self.holder.exists():  # its process was killed
                remove_dead_partials(*self.written_folders())
            holder = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "study": study,
                "since": time.time(),
            }
            try:
                write_json(self.holder, holder)
                self.pretraining_progress.unlink(missing_ok=True)  # of a process that died
                remove_tree(self.stop_requests)
                yield
            finally:
                with suppress(OSError):  # another directory is in its place
                    check_held(self.root)
                    remove_tree(self.stop_requests)
                    self.holder.unlink(missing_ok=True)

    def request_stop(self, what: str) -> None:
        """Leave a file for workers which ends a run, by its id; `sweep`: for the live page, which says so."""
        self.stop_requests.mkdir(exist_ok=True)
        (self.stop_requests / what).touch()

    def written_folders(self) -> list[Path]:
        """Return the folders in which files are written by way of partial ones."""
        return [self.root, self.runs, self.curves, self.pretrained, *self.study_folders()]

    def being_written(self) -> bool:
        """Return whether a process holds the writers' lock now."""
        try:
            return is_locked(self.writer_lock)
        except OSError:  # the lock may not be opened, for example in another user's directory
            return self.holder.exists()

    def latest_progress(self, holder: Mapping[str, Any]) -> Fields:
        """Return the progress that the sweep in `writer.json` wrote last; empty: none yet, but an earlier sweep may."""
        progress = read_state(self.progress(str(holder["study"])))
        return progress if progress.get("updated_at", 0.0) >= holder.get("since", 0.0) else {}

    @property
    def location(self) -> str:
        """Return where it is, as `--results` takes it."""
        return self.uri or str(self.root)

    def refresh(self) -> None:
        """Make a copy what its store holds now; a disk needs none."""

    def settle(self) -> None:
        """Wait until all machines can see what was written so far: on a disk they do."""

    def news(self) -> list[str]:
        """Return what the store has to report since the last call; nothing, for a disk."""
        return []

    def free_bytes(self) -> int:
        """Return the free space of the disk the directory is, or will be, on."""
        return shutil.disk_usage(
            next(path for path in (self.root, *self.root.parents) if path.exists())
        ).free


def read_state(path: Path) -> Fields:
    """Read what a running sweep writes of itself; empty if it is not there."""
    try:
        content = json.loads(read_plain(path, MAX_JSON, through_link=False))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def described(holder: Mapping[str, Any]) -> str:
    """Return `process 12 on host (study x)` of the content of a `writer.json`."""
    try:
        return f"process {holder['pid']} on {holder['host']} (study {holder['study']})"
    except KeyError:
        return "another process"


@contextmanager
def storage_problems(path: Path) -> Iterator[None]:
    """Raise UserError for a full, read-only or forbidden disk; let other problems pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in STORAGE_ERRORS:
            raise
        mend = _MENDS.get(error.errno, "Make it writable")
        raise UserError(
            f"cannot write to {error.filename or path}: {error.strerror or error}. {mend}; what is recorded is intact, "
            f"and the same command resumes from it."
        ) from error


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], columns: Columns) -> None:
    """Write a table of the record, whole or not at all."""
    write_bytes(path, parquet_bytes(table(rows, columns)))
