"""The right to write to a store: one holder, by claims that are renewed.

An object store has no lock that a death releases, so each process that wants to write puts an object of its own, a
claim, and then lists everybody's. Of two that do so at once, the one whose claim came second sees the other's: never do
both go on, though both may give up. A claim that was not renewed for `STALE_S` is a dead process's. Ages are
differences between times that the store put on objects; no machine's clock counts. Claims made from the same working
copy are void at once: that copy's own lock, which the system releases, is held by whoever asks.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from typing import Any

from analysis.store import Stamp, Store
from sweep.errors import UserError

CLAIMS = "writers"
"""Folder of claims in the store: `<id>.wanted` of who asks, `<id>.held` of who may write."""
BEAT_S = 20.0
"""Seconds between renewals."""
STALE_S = 180.0
"""A claim older than this counts for nothing. Its process, back after so long, asks anew before it writes again."""


class Lease:
    """The right to write to a store, asked for, held and given back by one process.

    Args:
        store: to be written to.
        study: what for, for others to read.
        copy: identifies the working copy, whose lock is held.
        stale_s: seconds after which a claim that is not renewed is void.
    """

    def __init__(self, store: Store, study: str, copy: str, *, stale_s: float = STALE_S) -> None:
        self.store, self.stale_s, self._copy = store, stale_s, copy
        self._name = f"{CLAIMS}/{uuid.uuid4().hex}"
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "study": study, "copy": copy}
        self._content = json.dumps(facts).encode()
        self._renewed_ns = 0
        self._renewed_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew it: before anything is written."""
        return time.monotonic() - self._renewed_at > BEAT_S

    def acquire(self) -> None:
        """Ask for the right to write.

        Raises:
            UserError: somebody else has it, or asks for it at the same moment.
            OSError: the store cannot be reached.
        """
        asked = f"{self._name}.wanted"
        try:
            self.store.write(asked, self._content)
            claims = self.store.names(CLAIMS)
            now = claims[asked]
            if others := self._living(claims, now):
                raise self._refused(described(read_claim(self.store, others[0])))
            for name in claims.keys() - {asked}:
                self.store.remove(name)
            self._renewed_ns = now.modified_ns
            self.renew()
        finally:
            self.store.remove(asked)

    def renew(self) -> None:
        """Say that this process lives, and see that nobody took it for dead.

        Raises:
            UserError: somebody did, and writes now.
            OSError: the store cannot be reached.
        """
        before, began, held = self._renewed_ns, time.monotonic(), f"{self._name}.held"
        self.store.write(held, self._content)
        claims = self.store.names(CLAIMS)
        if held not in claims:  # void, and removed just now by who took over
            raise self._lost("another process")
        now = claims[held]
        # Within the time, nobody can have found this claim void: who asks sees it, and leaves.
        late = now.modified_ns - before >= (self.stale_s - 2) * 1e9  # stamps are cut to the second
        if others := [name for name in self._living(claims, now) if late or name.endswith(".held")]:
            self.release()
            raise self._lost(described(read_claim(self.store, others[0])))
        self._renewed_ns, self._renewed_at = now.modified_ns, began

    def release(self) -> None:
        """Give the right back."""
        self.store.remove(f"{self._name}.held")

    def _living(self, claims: dict[str, Stamp], now: Stamp) -> list[str]:
        """Return the claims of other processes that may be alive."""
        young = [name for name, stamp in claims.items() if now.modified_ns - stamp.modified_ns < self.stale_s * 1e9]
        others = [name for name in young if not name.startswith(self._name)]
        return [name for name in others if read_claim(self.store, name).get("copy") != self._copy]

    def _refused(self, holder: str) -> UserError:
        return UserError(
            f"{self.store.uri} is being written to by {holder}. Wait for it, stop it, or use another place with "
            f"--results. If it died without a word, its claim ends {self.stale_s:.0f} s after its last sign of life."
        )

    def _lost(self, holder: str) -> UserError:
        return UserError(
            f"this process was away from {self.store.uri} for so long that it counted as dead: {holder} writes there "
            f"now. What was recorded is intact."
        )


def read_claim(store: Store, claim: str) -> dict[str, Any]:
    """Return what a claim says of its process; empty if it says nothing, or is gone."""
    try:
        found = json.loads(store.read(claim))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def described(holder: dict[str, Any]) -> str:
    """Return `process 12 on host (study x)`."""
    try:
        return f"process {holder['pid']} on {holder['host']} (study {holder['study']})"
    except KeyError:
        return "another process"


def living_claim(store: Store, *, stale_s: float = STALE_S) -> str | None:
    """Return the claim of a process that may write now, as far as this machine's clock can tell; for display alone."""
    held = {name: stamp for name, stamp in store.names(CLAIMS).items() if name.endswith(".held")}
    newest = max(held, key=lambda name: held[name].modified_ns, default=None)
    if newest is None or time.time_ns() - held[newest].modified_ns > stale_s * 1e9:
        return None
    return newest
