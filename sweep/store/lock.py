"""One writer for a store: an object that names the writer, put only if no other process has put it since.

S3 compares and puts in one step (`If-None-Match`, `If-Match`). The holder puts the object again every
`RENEW_EVERY_S`; one that was not put for `STALE_S`, by the server's clock, may be replaced. A holder that was replaced
fails to put it again, and stops before its next write.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from typing import Any

from lr_sweep.common.errors import UserError
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.common.working_copy import LOCK
from lr_sweep.sweep.results.directory import described

RENEW_EVERY_S = 20.0
STALE_S = 180.0
"""Seconds without renewal after which another process may take the lock."""


class StoreLock:
    """The right to write to a store, held by one process at a time, which shows others its `study`.

    `copy` identifies the working copy. The caller holds its lock, so another holder with the same copy is dead.
    """

    def __init__(self, store: ObjectStore, study: str, copy: str, *, stale_s: float = STALE_S) -> None:
        self._store, self._copy, self._stale_s = store, copy, stale_s
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "study": study, "copy": copy}
        self._facts = facts | {"lock": uuid.uuid4().hex}
        self._version: str | None = None
        self._renewed_at = 0.0

    def acquire(self) -> None:
        """Take the lock; raises UserError if another process has it, or the server ignores conditions of a write."""
        found = self._store.find(LOCK)
        holder = found.facts() if found else {}
        if found and holder and holder.get("copy") != self._copy and found.age_s < self._stale_s:
            raise self._held()
        self._version = found.version if found else None
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
        content = b"{}" if released else json.dumps(self._facts | {"renewal": uuid.uuid4().hex}).encode()
        while (version := self._store.write_if(self._version, LOCK, content)) is None:
            found = self._store.find(LOCK)
            if found is not None and found.content == content:  # it arrived, and the answer was lost
                version = found.version
                break
            if found is None or found.facts().get("lock") != self._facts["lock"]:
                return False
            self._version = found.version  # an earlier renewal arrived, and its answer was lost
        self._version, self._renewed_at = version, began
        return True

    def _holder(self) -> str:
        found = self._store.find(LOCK)
        return described(found.facts() if found else {})

    def _held(self) -> UserError:
        return UserError(
            f"{self._store.uri} is being written to by {self._holder()}. Wait for it, stop it, or name another "
            f"--results. If it was killed, its lock can be taken {self._stale_s:.0f} s after its last renewal."
        )


def current_writer(store: ObjectStore, *, stale_s: float = STALE_S) -> dict[str, Any]:
    """Return what is known of the process that holds the lock; empty if none does, or it no longer renews."""
    found = store.find(LOCK)
    return found.facts() if found is not None and found.age_s < stale_s else {}
