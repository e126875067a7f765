"""Tune in a thread: Ctrl-C and SIGTERM stay ours, and it is not waited for when Ray has died under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sweep.ray_session import RayLostError, lost_processes
from sweep.sharing import ShareChangedError
from sweep.terminal import stop_signals

LEAVING_S = 20.0
"""How long Tune may take to leave after Ray has died. Without its GCS, Ray ends this process after 60 s (Ray 2.60)."""


def run_in_thread(work: Callable[[threading.Event], bool], on_stop: Callable[[], None] = lambda: None) -> bool:
    """Run `work` in a thread, with an event that the first Ctrl-C or SIGTERM sets; a second one ends the process.

    Args:
        work: returns whether it came to its end.
        on_stop: called at the first signal, at once.

    Returns:
        What `work` returned; False if it was cut short by Ray's death, or to pack runs anew, when asked to stop anyway.

    Raises:
        RayLostError: Ray died, whether `work` comes back or not.
        Exception: what `work` raised.
    """
    result: list[bool] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work(stop))
        except BaseException as problem:  # carried over to the main thread
            problems.append(problem)

    # Tune takes the signals over when it runs in the main thread; ours save every run before leaving.
    with stop_signals(threading.Event(), on_stop) as stop:
        thread = threading.Thread(target=run, name="tune", daemon=True)
        thread.start()
        problems += _wait(thread)
        asked_to_stop = stop.is_set()
        stop.set()  # a thread that was left behind leaves too, should it come back, and blames no trial
    for problem in problems:
        if isinstance(problem, (RayLostError, ShareChangedError)) and asked_to_stop:
            return False
        raise problem
    return result[0]


def _wait(thread: threading.Thread) -> list[RayLostError]:
    """Wait for the thread to end; return why it was left behind, if it was."""
    lost_at: float | None = None
    while thread.is_alive():
        thread.join(0.2)
        died = lost_processes()
        if not died:
            continue
        lost_at = lost_at or time.monotonic()
        if time.monotonic() - lost_at > LEAVING_S:
            return [RayLostError(f"Ray died ({', '.join(died)} ended unexpectedly) and does not let go")]
    return []
