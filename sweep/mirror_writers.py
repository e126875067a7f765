"""Processes that mirror runs side by side: MLflow makes an object of each point, which keeps a core busy."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from sweep.mirror import Mirror
from sweep.mlflow_store import MirrorError

MAX_WRITERS = 4
"""A database takes one writer at a time; more would wait for it."""
RUNS_A_WRITER = 20
"""Fewer are mirrored sooner by one process: another takes seconds to start."""

GARBAGE_THRESHOLDS = (50_000, 20, 100)
"""Far above Python's: looking for garbage among MLflow's objects took a seventh of the time, and there is little."""

_mirror: Mirror
"""Of this process, if it is one of the writers."""


def mirror_beside(results: Path, study: str, uri: str) -> None:
    """Mirror as many of a study's missing runs as possible, at best all; nothing happens where they are few.

    What MLflow refuses is left for the next `Mirror.sync_all` to find, which tells of it.

    Raises:
        MirrorError: as `Mirror.sync_run`, before anything is mirrored.
        RecordError: a file of the record is damaged.
    """
    missing = Mirror(results, study, uri).missing()
    number = min(MAX_WRITERS, os.cpu_count() or 1, len(missing) // RUNS_A_WRITER)
    if number < 2:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(number, context, _begin, (results, study, uri)) as pool:
        try:
            with _ctrl_c_held_back():  # all writers start here and inherit it: a terminal sends Ctrl-C to them, too
                written = pool.map(_write, missing)
            for _ in written:
                pass
        except (MirrorError, BrokenProcessPool):
            pass
        except KeyboardInterrupt:
            for writer in multiprocessing.active_children():
                writer.terminate()  # in the middle of a run: the database takes back what is not whole
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _begin(results: Path, study: str, uri: str) -> None:
    global _mirror
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    _mirror = Mirror(results, study, uri)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _write(run_id: str) -> None:
    _mirror.sync_run(run_id)
