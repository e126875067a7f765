"""What a driver costs is measured through `run`, with its Ray, Tune, record, MLflow and store."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import read_curves
from lr_sweep.benchmarks import driver_events
from lr_sweep.sweep.store.results import StoredResults

pytestmark = pytest.mark.slow


def test_what_live_actors_report_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Five trials that two actors report for, in 20 s; a busy machine reports less, but every curve gets to its end."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said: list[str] = []
    watch = driver_events.measure_fleet(tmp_path, num_trials=5, num_live=2, minutes=1 / 3, say=said.append)
    assert said[-1].startswith(f"in all: {watch.num_reports} reports, ")
    assert f"; {watch.num_reports / 50:.1%} of the real rate; " in said[-1]
    assert 0 < watch.num_reports <= 50
    assert "5/5 runs done" in capfd.readouterr().out
    root = StoredResults("s3://bucket/fleet").root
    assert sorted(read_curves(root)["step"]) == [2000] * 5
    assert Paths(root).mlflow_database.exists()
