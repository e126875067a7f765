"""The store follows the working copy: what a `run` writes here is uploaded, in an order in which it may be read.

Files that changed since the last pass are found by size and time. So nothing that writes results need know of the
store, and a pass that failed is simply made again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lr_sweep.common.background import BackgroundWorker
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.common.working_copy import FORMAT_FILE
from lr_sweep.sweep.store.lock import StoreLock

EVERY_S = 5.0
"""Seconds between two passes. A pass that finds nothing reads two folders: 0.1 s for 10,000 runs."""
ENDING_S = 5.0
"""Seconds that the end waits for an upload that is under way."""

Files = dict[str, tuple[int, int]]
"""Size and time of change, by name, of files of the copy: another content has another pair."""


class PushThread:
    """Passes over the working copy in the background, and renews the lock that is held, until it is closed.

    The copy was just pulled.
    """

    def __init__(self, store: ObjectStore, copy: Path, lock: StoreLock, *, every_s: float = EVERY_S) -> None:
        self._store, self._copy, self._lock = store, copy, lock
        self._pushed: Files = {}
        for folder in ("runs", "curves", "studies", "pretrained"):  # workers upload the checkpoints that they write
            there = store.names(folder)
            self._pushed |= {name: stamp for name, stamp in self._files(folder).items() if name in there}
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
        gone = [name for name in self._pushed if name not in here and not name.startswith("pretrained/")]
        for name in [*self._changed(rows), *sorted(gone, key=lambda name: not name.startswith("runs/"))]:
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
        found = {}
        for name in names:
            with suppress(FileNotFoundError):  # removed since
                found[name] = (self._copy / name).read_bytes()
        return found

    def _changed(self, here: Files) -> list[str]:
        return [name for name, stamp in here.items() if self._pushed.get(name) != stamp]

    def _remove(self, name: str) -> None:
        self._before_write()
        self._store.remove(name)
        del self._pushed[name]


def _order(name: str) -> tuple[bool, bool, bool, bool, str]:
    """Order files so that each comes after what it refers to."""
    kinds = (name != FORMAT_FILE, "/report/" in name, name.endswith("/study.json"), name.endswith(".safetensors"))
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


def _stamp(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns
