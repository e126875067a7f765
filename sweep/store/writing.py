"""Writing to a store: one process at a time, which uploads what a `run` writes to the working copy.

The lock is an object that names the writer, put only if no other process has put it since. S3 compares and puts in one
step (`If-None-Match`, `If-Match`). The holder puts the object again every `RENEW_EVERY_S`; one that was not put for
`STALE_S`, by the server's clock, may be replaced. A holder that was replaced fails to put it again, and stops before
its next write.

Files that changed since the last pass are found by size and time, and uploaded in an order in which they may be read.
So nothing that writes results need know of the store, and a pass that failed is simply made again.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lr_sweep.common.background import BackgroundWorker
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.common.working_copy import FORMAT_FILE, LOCK
from lr_sweep.sweep.results.directory import described

RENEW_EVERY_S = 20.0
STALE_S = 180.0
"""Seconds without renewal after which another process may take the lock."""
EVERY_S = 5.0
"""Seconds between two passes. A pass that finds nothing reads two folders: 0.1 s for 10,000 runs."""
ENDING_S = 5.0
"""Seconds that the end waits for an upload that is under way."""

Files = dict[str, tuple[int, int]]
"""Size and time of change, by name, of files of the copy: another content has another pair."""


class StoreLock:
    """The right to write to a store, held by one process at a time, which shows others its `study`.

    `copy` identifies the working copy. The caller holds its lock, so another holder with the same copy is dead.
    """

    def __init__(
        self, store: ObjectStore, study: str, copy: str, *, stale_s: float = STALE_S
    ) -> None:
        self._store, self._copy, self._stale_s = store, copy, stale_s
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "study": study, "copy": copy}
        self._facts = facts | {"lock": uuid.uuid4().hex}
        self._version: str | None = None
        self._renewed_at = 0.0

    def acquire(self) -> None:
        """Take the lock; raises UserError if another process has it, or the server ignores conditions of a write."""
        lock = self._store.find(LOCK)
        holder = lock.facts() if lock else {}
        if lock and holder and holder.get("copy") != self._copy and lock.age_s < self._stale_s:
            raise self._held()
        self._version = lock.version if lock else None
        if not self._put():
            raise self._held()
        if self._store.write_if(None, LOCK, b"{}") is not None:
            raise UserError(
                f"the server of {self._store.uri} ignores `If-None-Match`, so it cannot keep two writers apart: use "
                f"one that supports S3's conditional writes, or a directory"
            )

    def renew_if_due(self) -> None:
        """Renew the lock, if that was not done for `RENEW_EVERY_S`; call it before every write."""
        if time.monotonic() - self._renewed_at > RENEW_EVERY_S:
            self.renew()

    def renew(self) -> None:
        """Show that this process lives; raises UserError if another process has taken the lock."""
        if not self._put():
            raise UserError(
                f"this process did not renew its lock of {self._store.uri} for so long that it counted as dead: "
                f"{self._holder()} writes there now. What was recorded is intact."
            )

    def release(self) -> None:
        """Let others write; nothing happens if another process has taken the lock."""
        self._put(released=True)

    def _put(self, *, released: bool = False) -> bool:
        """Replace the lock, if it is as this process last saw it. Its content differs each time, and so its ETag."""
        began = time.monotonic()
        content = (
            b"{}" if released else json.dumps(self._facts | {"renewal": uuid.uuid4().hex}).encode()
        )
        while (version := self._store.write_if(self._version, LOCK, content)) is None:
            lock = self._store.find(LOCK)
            if lock is not None and lock.content == content:  # it arrived, its answer was lost
                version = lock.version
                break
            if lock is None or lock.facts().get("lock") != self._facts["lock"]:
                return False
            self._version = lock.version  # an earlier renewal arrived, and its answer was lost
        self._version, self._renewed_at = version, began
        return True

    def _holder(self) -> str:
        lock = self._store.find(LOCK)
        return described(lock.facts() if lock else {})

    def _held(self) -> UserError:
        return UserError(
            f"{self._store.uri} is being written to by {self._holder()}. Wait for it, stop it, or name another "
            f"--results. If it was killed, its lock can be taken {self._stale_s:.0f} s after its last renewal."
        )


def current_writer(store: ObjectStore, *, stale_s: float = STALE_S) -> dict[str, Any]:
    """Return what is known of the process that holds the lock; empty if none does, or it no longer renews."""
    lock = store.find(LOCK)
    return lock.facts() if lock is not None and lock.age_s < stale_s else {}


class PushThread:
    """Passes over the working copy in the background, and renews the lock that is held, until it is closed.

    The copy was just pulled.
    """

    def __init__(
        self, store: ObjectStore, copy: Path, lock: StoreLock, *, every_s: float = EVERY_S
    ) -> None:
        self._store, self._copy, self._lock = store, copy, lock
        self._pushed: Files = {}
        for folder in (
            "runs",
            "curves",
            "studies",
            "pretrained",
        ):  # workers upload the checkpoints that they write
            there = store.names(folder)
            self._pushed |= {
                name: stamp for name, stamp in self._files(folder).items() if name in there
            }
        store.patience_s = 0.0  # from here on the next pass tries again
        self._news: deque[str] = deque()
        self._failing = self._closed = False
        self._lost: UserError | None = None
        self._worker = BackgroundWorker(
            "store-push", self._pass, self._report, retry_s=every_s, always="pass", every_s=every_s
        )

    def news(self) -> list[str]:
        """Return the messages since the last call; raises UserError if another process has taken the lock."""
        if self._lost is not None:
            raise self._lost
        return [self._news.popleft() for _ in range(len(self._news))]

    def flush(self, timeout_s: float) -> bool:
        """Wait until the store holds all that was written before the call; False: not within the time."""
        self._worker.submit("pass")
        return self._worker.wait(["pass"], timeout_s) and self._lost is None

    def close(self, timeout_s: float) -> bool:
        """Flush, and end the thread; it may yet be in an upload that does not end."""
        complete = self.flush(timeout_s)
        self._closed = True
        self._worker.close(min(timeout_s, ENDING_S))
        return complete

    @property
    def ended(self) -> bool:
        """Whether nothing more is written: only then may another process write."""
        return self._worker.ended

    def _report(self, problem: Exception) -> None:
        self._failing = True
        uri, why = self._store.uri, reason(problem)
        self._news.append(f"cannot write to {uri} ({why}); training continues; uploads are retried")

    def _pass(self, _: str) -> None:
        if self._lost is not None or self._closed:
            return
        try:
            self._before_write()
            self._push()
        except UserError as lost:
            self._lost = lost
            return
        if self._failing:
            self._news.append(f"{self._store.uri} has everything again")
        self._failing = False

    def _before_write(self) -> None:
        if self._closed:  # the lock may be another process's by now
            raise InterruptedError("closed")
        self._lock.renew_if_due()

    def _push(self) -> None:
        """Make one pass: at any moment of it, each row in the store has its curve, and each study its list of runs."""
        rows, curves, contents = self._consistent()
        others = self._files("pretrained") | self._files("studies")
        others[FORMAT_FILE] = _stamp((self._copy / FORMAT_FILE).stat())
        here = rows | curves | others
        gone = [
            name for name in self._pushed if name not in here and not name.startswith("pretrained/")
        ]
        for name in [
            *self._changed(rows),
            *sorted(gone, key=lambda name: not name.startswith("runs/")),
        ]:
            if name in self._pushed:  # rows first: one never refers to a curve that is not there
                self._remove(name)
        for name in sorted(self._changed(others), key=_order):
            self._before_write()
            with suppress(FileNotFoundError):  # removed since
                stamp = _stamp((self._copy / name).stat())
                self._store.upload(self._copy / name, name)
                self._pushed[name] = stamp
        for name in [*curves, *rows]:
            if name in contents:
                self._before_write()
                self._store.write(name, contents[name])
                self._pushed[name] = here[name]

    def _consistent(self) -> tuple[Files, Files, dict[str, bytes]]:
        """Return all rows and curves, and the content of changed ones, as of one moment, while `run` writes more."""
        while True:
            rows = self._files("runs")
            contents = self._contents(self._changed(rows))
            curves = self._files("curves")
            contents |= self._contents(self._changed(curves))
            gone = any(name.startswith("curves/") and name not in curves for name in self._pushed)
            if not (contents or gone) or self._files("runs") == rows:
                return rows, curves, contents

    def _files(self, folder: str) -> Files:
        return dict(_walk(str(self._copy / folder), folder))

    def _contents(self, names: list[str]) -> dict[str, bytes]:
        contents = {}
        for name in names:
            with suppress(FileNotFoundError):  # removed since
                contents[name] = (self._copy / name).read_bytes()
        return contents

    def _changed(self, here: Files) -> list[str]:
        return [name for name, stamp in here.items() if self._pushed.get(name) != stamp]

    def _remove(self, name: str) -> None:
        self._before_write()
        self._store.remove(name)
        del self._pushed[name]


def _order(name: str) -> tuple[bool, bool, bool, bool, str]:
    """Order files so that each comes after what it refers to."""
    kinds = (
        name != FORMAT_FILE,
        "/report/" in name,
        name.endswith("/study.json"),
        name.endswith(".safetensors"),
    )
    return *kinds, name


def _walk(folder: str, name: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the files below a folder, by names that begin with `name`; those being written are left out."""
    with suppress(FileNotFoundError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(".") or ".partial-" in entry.name:
                continue
            if entry.is_dir():
                yield from _walk(entry.path, f"{name}/{entry.name}")
                continue
            with suppress(FileNotFoundError):  # removed since
                yield f"{name}/{entry.name}", _stamp(entry.stat())


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
