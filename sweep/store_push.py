"""The store follows the working copy: what a `run` writes here is put there, in an order in which it may be read.

By comparison, not by orders: whatever changed since the last pass is found by size and time. So nothing that writes
results need know of the store, and a pass that failed is simply made again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from analysis.store import Store
from analysis.working_copy import FORMAT_FILE
from sweep.errors import UserError
from sweep.store_lease import Lease

EVERY_S = 5.0
"""Seconds between passes. A pass that finds nothing reads two folders: 0.1 s for 10,000 runs."""

Files = dict[str, tuple[int, int]]
"""Names of files of the copy with size and time of change: another content has another pair."""


class Push:
    """Passes over the working copy.

    Args:
        store: to be brought in line.
        copy: the working copy, just pulled.
        before_write: called before anything is written, and again and again.
    """

    def __init__(self, store: Store, copy: Path, before_write: Callable[[], None]) -> None:
        self.store, self.copy, self._before_write = store, copy, before_write
        there = {FORMAT_FILE} if store.stamp(FORMAT_FILE) else set()
        there |= {name for folder in ("runs", "curves", "studies", "pretrained") for name in store.names(folder)}
        self._pushed: Files = {name: stamp for name, stamp in self._everything().items() if name in there}

    def __call__(self) -> None:
        """Make one pass: at any moment of it, each row in the store has its curve, and each study its runs' list.

        Raises:
            OSError: the store cannot be reached; the next pass does what this one did not.
        """
        rows, curves, contents = self._consistent()
        others = self._files("pretrained") | self._files("studies")
        for name in self._changed(rows) + self._gone("runs", rows):
            if name in self._pushed:  # first: a row never speaks of a curve that is not there
                self._remove(name)
        for folder, here in (("curves", curves), ("studies", others)):
            for name in self._gone(folder, here):
                self._remove(name)
        for name in self._changed({FORMAT_FILE: _stamp(self.copy / FORMAT_FILE)}):
            self._write(name, (self.copy / name).read_bytes(), _stamp(self.copy / name))
        for name in sorted(self._changed(others), key=_place):
            self._write_file(name)
        for name, stamp in (curves | rows).items():
            if name in contents:
                self._write(name, contents[name], stamp)

    def _consistent(self) -> tuple[Files, Files, dict[str, bytes]]:
        """Return all rows and curves, and the content of those that changed, of one moment: `run` goes on meanwhile."""
        while True:
            rows = self._files("runs")
            contents = self._contents(self._changed(rows))
            curves = self._files("curves")
            contents |= self._contents(self._changed(curves))
            nothing_to_do = not contents and not self._gone("curves", curves)
            if nothing_to_do or self._files("runs") == rows:
                return rows, curves, contents

    def _everything(self) -> Files:
        found = {FORMAT_FILE: _stamp(self.copy / FORMAT_FILE)}
        for folder in ("runs", "curves", "studies", "pretrained"):
            found |= self._files(folder)
        return found

    def _files(self, folder: str) -> Files:
        return dict(_walk(str(self.copy / folder), folder))

    def _contents(self, names: list[str]) -> dict[str, bytes]:
        found = {}
        for name in names:
            try:
                found[name] = (self.copy / name).read_bytes()
            except FileNotFoundError:  # removed since
                continue
        return found

    def _changed(self, here: Files) -> list[str]:
        return [name for name, stamp in here.items() if self._pushed.get(name) != stamp]

    def _gone(self, folder: str, here: Files) -> list[str]:
        return [name for name in self._pushed if name.startswith(f"{folder}/") and name not in here]

    def _remove(self, name: str) -> None:
        self._before_write()
        self.store.remove(name)
        del self._pushed[name]

    def _write_file(self, name: str) -> None:
        """Put a file that may be large."""
        try:
            stamp = _stamp(self.copy / name)
            with pa.memory_map(str(self.copy / name)) as content:
                self._write(name, content.read_buffer(), stamp)
        except FileNotFoundError:  # removed since
            return

    def _write(self, name: str, content: bytes | pa.Buffer, stamp: tuple[int, int]) -> None:
        self._before_write()
        self.store.write(name, content)
        self._pushed[name] = stamp


def _place(name: str) -> tuple[bool, bool, bool, str]:
    """Order files so that each comes after what it speaks of."""
    return "/report/" in name, name.endswith("/study.json"), name.endswith(".safetensors"), name


def _walk(folder: str, name: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the files below a folder, by names that begin with `name`; those being written are left out."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.startswith(".") or ".partial-" in entry.name:
            continue
        if entry.is_dir():
            yield from _walk(entry.path, f"{name}/{entry.name}")
            continue
        try:
            stamp = entry.stat()
        except FileNotFoundError:  # removed since
            continue
        yield f"{name}/{entry.name}", (stamp.st_size, stamp.st_mtime_ns)


def _stamp(path: Path) -> tuple[int, int]:
    stamp = path.stat()
    return stamp.st_size, stamp.st_mtime_ns


class PushThread:
    """Makes passes in the background and keeps the lease, until it is closed.

    Args:
        store: to be brought in line.
        copy: the working copy, just pulled.
        lease: held; renewed here.
        every_s: seconds between passes.
    """

    def __init__(self, store: Store, copy: Path, lease: Lease, *, every_s: float = EVERY_S) -> None:
        self._store, self._lease, self._every_s = store, lease, every_s
        self._push = Push(store, copy, self._renew)
        self._wake = threading.Condition()
        self._asked = self._done = 0
        """Numbers of passes that somebody asked for."""
        self._closing = self._failing = False
        self._news: list[str] = []
        self._problem: UserError | None = None
        self._thread = threading.Thread(target=self._work, name="store-push", daemon=True)
        self._thread.start()

    def news(self) -> list[str]:
        """Return what is to be told since the last call.

        Raises:
            UserError: somebody else writes to the store now.
        """
        if self._problem is not None:
            raise self._problem
        with self._wake:
            told, self._news = self._news, []
        return told

    def flush(self, timeout_s: float) -> bool:
        """Wait until the store holds all that was written before the call; False: not within the time."""
        with self._wake:
            self._asked += 1
            asked = self._asked
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._done >= asked or self._problem is not None, timeout_s)
            return self._done >= asked

    def close(self, timeout_s: float) -> bool:
        """Flush, and end the thread."""
        complete = self.flush(timeout_s)
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout_s if complete else 0)
        return complete

    def _work(self) -> None:
        while not self._closing and self._problem is None:
            asked = self._asked
            if self._attempt():
                with self._wake:
                    self._done = asked
                    self._wake.notify_all()
                    self._wake.wait_for(lambda: self._closing or self._asked > self._done, self._every_s)
            else:
                with self._wake:
                    self._wake.wait_for(lambda: self._closing, self._every_s)

    def _attempt(self) -> bool:
        try:
            self._renew()
            self._push()
        except UserError as problem:
            with self._wake:
                self._problem = problem
                self._wake.notify_all()
            return False
        except (OSError, pa.ArrowException) as problem:
            if not self._failing:
                reason = (str(problem).splitlines() or [type(problem).__name__])[0]
                self._tell(f"{self._store.uri} takes nothing ({reason}); training goes on, and it is tried again")
            self._failing = True
            return False
        if self._failing:
            self._tell(f"{self._store.uri} has everything again")
        self._failing = False
        return True

    def _renew(self) -> None:
        if self._lease.is_due:
            self._lease.renew()

    def _tell(self, message: str) -> None:
        with self._wake:
            self._news.append(message)
