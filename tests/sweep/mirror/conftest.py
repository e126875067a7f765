"""A record of one complete run, and a mirror of it that is empty so far."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.tests.support.file_modes import umask
from lr_sweep.tests.support.mirrored_record import empty_store, one_complete_run


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of a user whose umask is 002."""
    with umask(0o002):
        return empty_store(tmp_path_factory.mktemp("template"))


@pytest.fixture
def results(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record, with a copy of the database."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return one_complete_run(tmp_path / "results", store)
