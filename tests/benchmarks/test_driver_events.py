"""The driver's time for a result is measured through Tune and the sweep's own callback."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.benchmarks import driver_events


@pytest.mark.slow
def test_a_trial_s_results_arrive_while_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_events, "NUM_RESULTS", 20)
    assert driver_events.result_s(tmp_path, num_waiting=3) > 0
