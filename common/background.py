"""Work that is done beside the main thread, tried again until it succeeds, and never stops the program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
MOST_REST_S = 2.0


class BackgroundWorker(Generic[K]):
    """A daemon thread that calls an action with each submitted key; a key submitted twice before its turn runs once.

    An action that raises is called again, after the other keys and a wait of `retry_s`, which doubles up to
    `max_retry_s`; `on_problem` gets the first error of a row. `always` is submitted whenever there was no work for
    `every_s`. After each action the thread rests `rest` times as long as it took, until `close`.
    """

    def __init__(
        self,
        name: str,
        action: Callable[[K], None],
        on_problem: Callable[[Exception], None],
        *,
        retry_s: float,
        max_retry_s: float | None = None,
        always: K | None = None,
        every_s: float = 0.0,
        rest: float = 0.0,
    ) -> None:
        self._name, self._action, self._on_problem = name, action, on_problem
        self._retry_s, self._max_retry_s = retry_s, max_retry_s or retry_s
        self._always, self._every_s, self._rest = always, every_s, rest
        self._changed = threading.Condition()
        self._pending: dict[K, None] = {}  # an ordered set
        self._current: K | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self.failing: dict[K, Exception] = {}
        """Keys whose last call failed, with its error."""
        if always is not None:
            self.submit(always)

    def submit(self, *keys: K) -> None:
        """Have the action called with these keys; returns at once."""
        with self._changed:
            self._pending.update(dict.fromkeys(keys))
            self._changed.notify_all()
            if self._thread is None and self._pending:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()

    def wait(self, keys: Collection[K], timeout_s: float) -> bool:
        """Wait until the action has succeeded with these keys since they were submitted; False: not in this time."""
        with self._changed:
            return self._changed.wait_for(lambda: not {*self._left()} & {*keys}, timeout_s)

    def close(self, timeout_s: float) -> list[K]:
        """Call the action once more with each key that is left, and return those that did not succeed in time."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None, timeout_s)
            return self._left()

    @property
    def ended(self) -> bool:
        """Whether no action is under way, and none will be unless a key is submitted."""
        return self._thread is None

    def _left(self) -> list[K]:
        current = [] if self._current is None else [self._current]
        return list(dict.fromkeys([*current, *self._pending, *self.failing]))

    def _work(self) -> None:
        wait_s = self._retry_s
        while (key := self._next()) is not None:
            problem, began_s = None, time.monotonic()
            try:
                self._action(key)
            except Exception as error:  # the main thread continues; `on_problem` reports it
                problem = error
                if not self.failing:
                    self._on_problem(problem)
            with self._changed:
                self._current = None
                if problem is None:
                    self.failing.pop(key, None)
                    wait_s = self._retry_s
                    self._changed.notify_all()
                    rest_s = min(self._rest * (time.monotonic() - began_s), MOST_REST_S)
                    self._changed.wait_for(lambda: self._closing, rest_s)
                    continue
                self.failing[key] = problem
                if not self._closing:
                    self._pending[key] = None
                    self._changed.wait_for(lambda: self._closing, wait_s)
                wait_s = min(2 * wait_s, self._max_retry_s)

    def _next(self) -> K | None:
        """Return the key to work on; None: there is none, and the thread is to end."""
        with self._changed:
            if self._always is not None:
                self._changed.wait_for(lambda: self._pending or self._closing, self._every_s)
                if not self._closing:
                    self._pending.setdefault(self._always)
            self._current = next(iter(self._pending), None)
            if self._current is not None:
                del self._pending[self._current]
            else:
                self._thread = None
                self._changed.notify_all()
            return self._current
