"""A record of two runs in an object store, and locks of it."""

from __future__ import annotations

from pathlib import Path

from lr_sweep.common.object_store import ObjectStore
from lr_sweep.sweep.store.lock import StoreLock
from lr_sweep.sweep.store.results import StoredResults
from lr_sweep.tests.support.records import SyntheticRecord

URI = "s3://bucket/sweeps/one"


def add_runs(folder: Path, rates: tuple[float, ...] = (1e-3, 1e-2)) -> SyntheticRecord:
    """Write a study with a complete run for each rate."""
    record = SyntheticRecord(folder, "small")
    for rate in rates:
        record.add(rate, 0, [(100, 0.4, 0.3), (300, 0.5 + rate, 0.4)])
    record.write()
    return record


def filled() -> StoredResults:
    """Write a study into the store as `run` does: below the working copy, by code that knows of directories alone."""
    results = StoredResults(URI)
    results.prepare()
    with results.writing("small"):
        add_runs(results.root)
    return results


def lock_of(name: str, copy: str | None = None, stale_s: float = 180.0) -> StoreLock:
    return StoreLock(ObjectStore(URI), name, copy or f"{name}'s copy", stale_s=stale_s)
