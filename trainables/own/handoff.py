"""Two threads of which one runs at a time: the session's, and that of the training function."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SessionClosedError(BaseException):
    """Raised inside a training function whose run ends here; not an Exception, so that no `except` of its stops it."""


class Handoff:
    """Calls a function in a thread of its own, which runs only inside `resume`, until it calls `pause` or ends."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._closing = False
        self.error: BaseException | None = None
        """What the function raised."""
        self.ended = False
        # A daemon: a process that saved its runs and exits does not wait for the function.
        self._thread = threading.Thread(target=self._run, name="training-function", daemon=True)

    def resume(self) -> None:
        """Let the function run until it pauses or ends; the calling thread waits."""
        assert not self.ended, "there is nothing left to run"
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()

    def pause(self) -> None:
        """Hand back to the thread that called `resume`, until it does so again; called by the function.

        Raises:
            SessionClosedError: by `close`.
        """
        self._back.release()
        self._go.acquire()
        if self._closing:
            raise SessionClosedError

    def close(self) -> None:
        """End the function where it pauses; its `finally` blocks run."""
        if self._thread.ident is not None and not self.ended:
            self._closing = True
            self.resume()

    def _run(self) -> None:
        try:
            self._work()
        except SessionClosedError:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True
            self._back.release()
