"""Mirrors in the background, so that MLflow, however slow or gone, never slows or stops training."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sweep.mirror import Mirror


class MirrorThread:
    """A daemon thread that brings MLflow in line with the record, run by run, as it is told of changes.

    Args:
        mirror: used by this thread only from now on.
        on_problem: called from the thread with one message when mirroring begins to fail, not again until it works.
        retry_s: seconds until the first retry; they double with each failure in a row, up to `max_retry_s`.
        max_retry_s: longest wait between retries.
    """

    def __init__(
        self, mirror: Mirror, on_problem: Callable[[str], None], *, retry_s: float = 5.0, max_retry_s: float = 300.0
    ) -> None:
        self._mirror = mirror
        self._on_problem = on_problem
        self._retry_s = retry_s
        self._max_retry_s = max_retry_s
        self._wake = threading.Condition()
        self._pending: dict[str, None] = {}  # an ordered set
        self._failing: set[str] = set()
        self._current: str | None = None
        self._mirrored_any = False
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="mlflow-mirror", daemon=True)
        self._thread.start()

    def changed(self, *run_ids: str) -> None:
        """Tell that the record holds more of these runs; returns at once. Told twice before its turn counts once."""
        with self._wake:
            self._pending.update(dict.fromkeys(run_ids))
            self._wake.notify_all()

    def close(self, timeout_s: float) -> list[str]:
        """Try what is left once more, for at most `timeout_s` seconds; return the ids of runs not mirrored fully."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout_s)
        with self._wake:
            current = [self._current] if self._current else []
            return list(dict.fromkeys([*current, *self._pending, *sorted(self._failing)]))

    def _work(self) -> None:
        wait_s = self._retry_s
        while (run_id := self._next()) is not None:
            if self._attempt(run_id):
                wait_s = self._retry_s
            elif not self._closing:
                with self._wake:
                    self._pending[run_id] = None
                    self._wake.wait_for(lambda: self._closing, timeout=wait_s)
                wait_s = min(2 * wait_s, self._max_retry_s)
        if self._mirrored_any and not self._failing:
            self._succeeds(self._mirror.close_study)

    def _next(self) -> str | None:
        """Wait for a run to mirror; None: all is done and we are to close."""
        with self._wake:
            self._wake.wait_for(lambda: self._pending or self._closing)
            self._current = next(iter(self._pending), None)
            if self._current is not None:
                del self._pending[self._current]
            return self._current

    def _attempt(self, run_id: str) -> bool:
        succeeded = self._succeeds(lambda: self._mirror.sync_run(run_id))
        with self._wake:
            self._current = None
            (self._failing.discard if succeeded else self._failing.add)(run_id)
            self._mirrored_any |= succeeded
        return succeeded

    def _succeeds(self, sync: Callable[[], None]) -> bool:
        """Whatever goes wrong, training goes on; the failure is told once and the run stays to be mirrored."""
        try:
            sync()
        except Exception as problem:
            if not self._failing:
                reason = str(problem) or type(problem).__name__
                self._on_problem(f"{reason}; training goes on, and mirroring is tried again")
            return False
        return True
