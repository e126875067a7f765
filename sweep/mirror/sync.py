"""`mlflow sync`: bring MLflow in line with the record, whatever happened to either, and from an empty store, too."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from lr_sweep.analysis.record.read import read_study, recorded_studies
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.mirror.client import MirrorError, shown_uri, tracking_uri
from lr_sweep.sweep.mirror.mirror import Mirror
from lr_sweep.sweep.results.directory import Results, storage_problems

MAX_WRITERS = 4
"""Processes that mirror runs: MLflow makes an object of each point, which keeps a core busy, but a database has one
writer at a time."""
RUNS_PER_WRITER = 20
"""Fewer are mirrored sooner by one process: another takes seconds to start."""
GARBAGE_THRESHOLDS = (50_000, 20, 100)
"""Far above Python's: looking for garbage among MLflow's objects took a seventh of the time, and there is little."""

_mirror: Mirror
"""What this process writes with, if it is one of the writers."""


def sync(results: Results, names: Sequence[str]) -> str:
    """Mirror the named studies, or all, and return what MLflow holds now, as text; the same command resumes from there.

    Raises RecordError, MirrorError, and UserError if nothing was ever recorded or a sweep is running, which mirrors.
    """
    studies = list(names) or recorded_studies(results.root)
    for study in studies:
        read_study(results.root, study)
    if not studies:
        raise UserError(f"{results.root} holds no study yet; `run` one first, or give its --results.")
    uri = tracking_uri(results.root)
    with storage_problems(results.root), results.writing("mlflow sync"):
        lines = []
        for study in studies:
            mirror_in_parallel(results.root, study, uri)
            mirror = Mirror(results.root, study, uri)
            lines.append(f"{study}: {mirror.sync_all()} runs")
            if (folder := results.report(study)).is_dir():
                mirror.log_report(folder)
    return "\n".join([*lines, f"MLflow at {shown_uri(uri)} holds what the record holds"])


def mirror_report(results: Results, study: str) -> str:
    """Put a study's report into MLflow, if there is a store; return a line about it, or nothing.

    Not while a sweep runs, which does it at its end, nor from a copy of an object store's results.
    """
    own = results.mlflow_database
    if results.uri is not None or results.being_written() or not (own.exists() or "MLFLOW_TRACKING_URI" in os.environ):
        return ""
    try:
        Mirror(results.root, study, tracking_uri(results.root)).log_report(results.report(study))
    except MirrorError as error:
        return f"MLflow     does not have this report: {error}"
    return "MLflow     has it, too, as an artifact of the study"


def mirror_in_parallel(results: Path, study: str, uri: str) -> None:
    """Mirror a study's missing runs in several processes; does nothing where they are few.

    What MLflow refuses is left for `Mirror.sync_all`, which reports it. Raises RecordError for a damaged file.
    """
    missing = Mirror(results, study, uri).missing()
    number = min(MAX_WRITERS, os.cpu_count() or 1, len(missing) // RUNS_PER_WRITER)
    if number < 2:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(number, context, _start_writer, (results, study, uri)) as pool:
        try:
            # All writers start here and inherit the mask: a terminal sends Ctrl-C to them, too.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                written = pool.map(_write, missing)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            list(written)
        except (MirrorError, BrokenProcessPool):
            pass
        except KeyboardInterrupt:
            for writer in multiprocessing.active_children():
                writer.terminate()  # in the middle of a run: the database rolls back what is not complete
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _start_writer(results: Path, study: str, uri: str) -> None:
    global _mirror
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    _mirror = Mirror(results, study, uri)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _write(run_id: str) -> None:
    _mirror.sync_run(run_id)
