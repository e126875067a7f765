"""What a driver costs is measured through Tune, and through `run` with its record, MLflow and store."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import read_curves
from lr_sweep.benchmarks import driver_events
from lr_sweep.sweep.store.results import StoredResults

pytestmark = pytest.mark.slow


def test_results_of_live_actors_arrive_while_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_events, "NUM_RESULTS", 20)
    assert driver_events.result_s(tmp_path, num_live=2, num_waiting=3) > 0


def measured(folder: Path, monkeypatch: pytest.MonkeyPatch, least_wait_s: float) -> tuple[driver_events.Fleet, str]:
    """Have 5 trials evaluated twice in 40 s of reports, ten times as fast here; only waits move the clock."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += max(seconds, least_wait_s)

    own = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep, time=time.time, process_time=time.process_time)
    monkeypatch.setattr(driver_events, "time", own)
    monkeypatch.setattr(driver_events, "report_every_s", lambda num_trials: 0.2)
    monkeypatch.setattr(driver_events, "EVALUATE_EVERY_S", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))  # as it is set there
    said: list[str] = []
    return driver_events.measure_fleet(folder, 5, 4.0, said.append), said[-1]


def test_what_a_fleet_reports_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fleet, said = measured(tmp_path, monkeypatch, 0.0)
    assert said.startswith("in all: 100 reports, ")
    assert fleet.num_reports == 100
    assert "5/5 runs done" in capfd.readouterr().out
    root = StoredResults("s3://bucket/fleet").root
    assert sorted(read_curves(root)["step"]) == [2000] * 5 + [4000] * 5
    assert Paths(root).mlflow_database.exists()


def test_each_thread_s_part_of_a_report_s_cost_is_said() -> None:
    """By hand: 0.2 s of CPU for 10 reports are 20 ms each; the system counts in steps of 10 ms."""
    worked, seen = threading.Event(), threading.Event()

    def work() -> None:
        while time.thread_time() < 0.2:
            pass
        worked.set()
        seen.wait()

    before = driver_events.Used.now(0)
    threading.Thread(target=work, name="busy").start()
    worked.wait()
    said = driver_events.Used.now(10).since(before)
    seen.set()
    found = re.match(r"10 reports, .* ms of CPU each \(.*busy ([\d.]+).*\), \d+% of a core", said)
    assert found is not None, said
    assert float(found[1]) == pytest.approx(20, abs=4)


def test_runs_end_with_a_whole_curve_where_the_machine_is_too_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By hand: a report each 0.08 s up to 4.2 s is 53 of 100."""
    fleet, said = measured(tmp_path, monkeypatch, 0.08)
    assert "50% of the real rate" in said
    assert fleet.num_reports == 53
    assert "5/5 runs done" in capfd.readouterr().out
    assert read_curves(StoredResults("s3://bucket/fleet").root)["step"].value_counts()[4000] == 5
