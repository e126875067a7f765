"""The times predicted for GPUs, beside those measured on one."""

from __future__ import annotations

import pytest

from lr_sweep.benchmarks import gpu_predictions


def test_predictions_are_of_what_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    gpu_predictions.main(["h100"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("| base-frozen bf16 | 27 | ") for line in lines)
    assert any(line.endswith("| does not fit |") for line in lines)
