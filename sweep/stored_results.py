"""A results directory in an object store: a copy of it here, and the right to write there."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from analysis.store import Store, checked, local_path, told
from analysis.working_copy import pull, refresh, working_copy, write_whole
from sweep.errors import UserError
from sweep.results import Results
from sweep.store_lease import Lease, living_claim, read_claim
from sweep.store_push import PushThread

PATIENCE_S = 120.0
"""How long the beginning and the end of a sweep wait for the store."""
IMPATIENCE_S = 5.0
"""The same, of one that ends by an error."""


class StoredResults(Results):
    """The copy of a store's results on this machine. While `writing`, the store follows it."""

    def __init__(self, uri: str, copy: Path | None = None) -> None:
        """Name a store; nothing is fetched yet.

        Args:
            uri: of the store.
            copy: where the copy is; None: in the user's cache.

        Raises:
            StoreError: it is no store's URI.
        """
        super().__init__(copy or working_copy(uri))
        self.uri: str = checked(uri)
        self._written_elsewhere = False
        self._thread: PushThread | None = None

    def refresh(self, *, weights: bool = False) -> None:
        """Make the copy what the store holds, and look who writes there.

        Raises:
            StoreError: the store cannot be reached.
        """
        refresh(self.uri, weights=weights)
        store = Store(self.uri)
        with told(self.uri):
            claim = living_claim(store)
            self._written_elsewhere = claim is not None and not super().being_written()
            if claim is not None and self._written_elsewhere:
                self.holder.write_text(json.dumps(read_claim(store, claim)))

    def being_written(self) -> bool:
        """Tell whether a process, here or elsewhere, held the right to write when this was last refreshed."""
        return self._written_elsewhere or super().being_written()

    @contextmanager
    def writing(self, study: str) -> Iterator[None]:
        """Hold the right to write, here and in the store, which gets what is written before this ends.

        Raises:
            UserError: somebody else holds it, or took this process for dead; or the store did not take everything.
            StoreError: the store cannot be reached.
        """
        with super().writing(study):
            store = Store(self.uri)
            lease = Lease(store, study, copy_id(self.root))
            with told(self.uri):
                lease.acquire()
            try:
                with FileLock(self.root / ".pull.lock"):
                    pull(store, self.root, weights=True)
                self.prepare()
                with told(self.uri):
                    self._thread = PushThread(store, self.root, lease)
                yield from self._followed(self._thread)
            finally:
                self._thread = None
                with suppress(OSError):  # it ends by itself, later
                    lease.release()

    def _followed(self, thread: PushThread) -> Iterator[None]:
        try:
            yield
        except BaseException:
            thread.close(IMPATIENCE_S)
            raise
        if not thread.close(PATIENCE_S):
            raise self._behind(thread)

    def settle(self) -> None:
        """Wait until the store holds what was written so far."""
        assert self._thread is not None, "only who writes waits for it"
        if not self._thread.flush(PATIENCE_S):
            raise self._behind(self._thread)

    def news(self) -> list[str]:
        """Return what is to be told of the store since the last call.

        Raises:
            UserError: somebody else writes there now.
        """
        return self._thread.news() if self._thread is not None else []

    def _behind(self, thread: PushThread) -> UserError:
        told = "; ".join(thread.news())  # raises if somebody else writes
        return UserError(
            f"{self.uri} did not take everything within {PATIENCE_S:.0f} s ({told or 'no answer'}). What is recorded "
            f"there is intact; once it answers, the same command makes the rest again from the runs' checkpoints."
        )


def copy_id(copy: Path) -> str:
    """Return what tells a working copy from any other, on this machine or elsewhere; the lock of the copy is held."""
    path = copy / ".copy-id"
    if not path.exists():
        write_whole(path, uuid.uuid4().hex.encode())
    return path.read_text()


def results_at(location: str) -> Results:
    """Return a results directory by path or URI; nothing is fetched.

    Raises:
        StoreError: no such kind of URI.
    """
    path = local_path(location)
    return StoredResults(location) if path is None else Results(path)


def results_here(location: str, *, weights: bool = False) -> Results:
    """Return a results directory by path or URI, for reading: of a store, as it is now.

    Raises:
        StoreError: the store cannot be reached, or is none.
    """
    results = results_at(location)
    if isinstance(results, StoredResults):
        results.refresh(weights=weights)
    return results


def directory_at(location: str, command: str) -> Results:
    """Return a results directory by path, for a command that takes no store.

    Raises:
        UserError: it is a store.
    """
    path = local_path(location)
    if path is None:
        raise UserError(f"`{command}` works on a directory, got {location}: use it on one, or the store's own tools")
    return Results(path)


@contextmanager
def fetched(location: str) -> Iterator[Results]:
    """Give a results directory as it is; of a store, all of it but checkpoints, fetched anew and thrown away after."""
    results = results_at(location)
    if not isinstance(results, StoredResults):
        yield results
        return
    with tempfile.TemporaryDirectory(prefix="lr-sweep-") as folder:
        store, copy = Store(location), StoredResults(location, Path(folder))
        pull(store, copy.root, weights=True)
        with told(location):
            copy._written_elsewhere = living_claim(store) is not None
        yield copy
