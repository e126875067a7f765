"""Tune in a thread, where it cannot take the signals over; it is not waited for when Ray has died under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sweep.ray_session import RayLostError, lost_processes
from sweep.sharing import ShareChangedError

LEAVING_S = 20.0
"""How long Tune may take to leave after Ray has died. Without its GCS, Ray ends this process after 60 s (Ray 2.60)."""


def run_in_thread(work: Callable[[threading.Event], bool], stop: threading.Event) -> bool:
    """Run `work` in a thread.

    Args:
        work: returns whether it came to its end. It is passed an event, and leaves early once that is set.
        stop: when set, `work` is asked to leave.

    Returns:
        What `work` returned; False if it was cut short by Ray's death, or to pack runs anew, when asked to stop anyway.

    Raises:
        RayLostError: Ray died, whether `work` comes back or not.
        Exception: what `work` raised.
    """
    result: list[bool] = []
    problems: list[BaseException] = []
    leave = threading.Event()

    def run() -> None:
        try:
            result.append(work(leave))
        except BaseException as problem:  # carried over to the main thread
            problems.append(problem)

    thread = threading.Thread(target=run, name="tune", daemon=True)
    thread.start()
    problems += _wait(thread, stop, leave)
    leave.set()  # a thread that was left behind leaves too, should it come back, and blames no trial
    for problem in problems:
        if isinstance(problem, (RayLostError, ShareChangedError)) and stop.is_set():
            return False
        raise problem
    return result[0]


def _wait(thread: threading.Thread, stop: threading.Event, leave: threading.Event) -> list[RayLostError]:
    """Wait for the thread to end, and hand a stop on; return why it was left behind, if it was."""
    lost_at: float | None = None
    while thread.is_alive():
        thread.join(0.2)
        if stop.is_set():
            leave.set()
        died = lost_processes()
        if not died:
            continue
        lost_at = lost_at or time.monotonic()
        if time.monotonic() - lost_at > LEAVING_S:
            return [RayLostError(f"Ray died ({', '.join(died)} ended unexpectedly) and does not let go")]
    return []
