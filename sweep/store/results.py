"""A results directory in an object store: a working copy on this machine, and the lock of the store."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_bytes, write_json
from lr_sweep.common.object_store import PATIENCE_S as READING_PATIENCE_S
from lr_sweep.common.object_store import ObjectStore, checked, local_path, reachable
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.common.working_copy import pull, refresh, working_copy
from lr_sweep.sweep.results.directory import Results

from .writing import PushThread, StoreLock, current_writer

PATIENCE_S = 120.0
"""Seconds for which a sweep waits for the store at its start and its end."""
IMPATIENCE_S = 5.0
"""Seconds for which a sweep that failed waits for the store at its end."""


class StoredResults(Results):
    """The copy of a store's results on this machine, else in the cache; fetched by `refresh` and `writing` alone."""

    def __init__(self, uri: str, copy: Path | None = None) -> None:
        super().__init__(copy or working_copy(uri))
        self.uri: str = checked(uri)
        self._written_elsewhere = False
        self._thread: PushThread | None = None

    def refresh(
        self, *, weights: bool = False, curves: bool = True, patience_s: float = READING_PATIENCE_S
    ) -> None:
        """Make the copy what the store holds, and note which process writes there; arguments as of `refresh`."""
        refresh(self.uri, weights=weights, curves=curves, patience_s=patience_s)
        with reachable(self.uri):
            writer = current_writer(ObjectStore(self.uri, patience_s=patience_s))
        is_written_here = super().being_written()
        self._written_elsewhere = bool(writer) and not is_written_here
        if self._written_elsewhere:
            write_json(self.holder, writer)

    def being_written(self) -> bool:
        """Return whether a process, here or elsewhere, held the lock when this was last refreshed."""
        return self._written_elsewhere or super().being_written()

    @contextmanager
    def writing(self, study: str) -> Iterator[None]:
        """Hold the locks of the copy and the store, and upload all that is written, or raise UserError."""
        with super().writing(study):
            store = ObjectStore(self.uri, patience_s=PATIENCE_S)
            lock = StoreLock(store, study, _copy_id(self.root))
            with reachable(self.uri):
                lock.acquire()
            try:
                with FileLock(self.root / ".pull.lock"):
                    pull(store, self.root, weights=True)
                self.prepare()
                with reachable(self.uri):
                    self._thread = PushThread(store, self.root, lock)
                try:
                    yield
                except BaseException:
                    self._thread.close(IMPATIENCE_S)
                    raise
                if not self._thread.close(PATIENCE_S):
                    raise self._behind(self._thread)
            finally:
                if (
                    self._thread is None or self._thread.ended
                ):  # else it can be taken once it is old
                    with suppress(OSError):
                        lock.release()
                self._thread = None

    def settle(self) -> None:
        """Wait until the store holds what was written so far."""
        assert self._thread is not None, "not within `writing`"
        if not self._thread.flush(PATIENCE_S):
            raise self._behind(self._thread)

    def news(self) -> list[str]:
        """Return messages about the store since the last call; raises UserError if another process took the lock."""
        return self._thread.news() if self._thread is not None else []

    def _behind(self, thread: PushThread) -> UserError:
        news = "; ".join(thread.news())  # raises if another process has taken the lock
        return UserError(
            f"could not upload everything to {self.uri} within {PATIENCE_S:.0f} s ({news or 'no answer'}). What is "
            f"recorded there is intact; once it answers, the same command resumes from the runs' checkpoints."
        )


def _copy_id(copy: Path) -> str:
    """Return an id that no other working copy has, on this machine or elsewhere; the caller holds the copy's lock."""
    path = copy / ".copy-id"
    if not path.exists():
        write_bytes(path, uuid.uuid4().hex.encode())
    return path.read_text()


def results_here(
    location: str,
    *,
    weights: bool = False,
    curves: bool = True,
    patience_s: float = READING_PATIENCE_S,
) -> Results:
    """Return a results directory by path or URI, for reading: of a store, as it is now; arguments as of `refresh`."""
    path = local_path(location)
    if path is not None:
        return Results(path)
    results = StoredResults(location)
    results.refresh(weights=weights, curves=curves, patience_s=patience_s)
    return results


def directory_at(location: str, command: str) -> Results:
    """Return a results directory by path, for a command that takes no store; raises UserError for one."""
    path = local_path(location)
    if path is None:
        raise UserError(
            f"`{command}` works on a directory, got {location}: use it on one, or the store's own tools"
        )
    return Results(path)


@contextmanager
def fetched(location: str) -> Iterator[Results]:
    """Give a results directory as it is; of a store, a new copy without checkpoints, which is removed at the end."""
    path = local_path(location)
    if path is not None:
        yield Results(path)
        return
    with scratch_folder("copy-") as folder:
        store, copy = ObjectStore(location), StoredResults(location, folder)
        pull(store, copy.root, weights=True)
        with reachable(location):
            copy._written_elsewhere = bool(current_writer(store))
        yield copy
