"""What is asked of a clone of the original code; its speed is for machines that have one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.benchmarks import original_speed
from lr_sweep.benchmarks.engine_cases import CELLS


def test_a_folder_without_the_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        original_speed.main([str(tmp_path)])
    assert ended.value.code == 2
    assert "lacks universal_computation/fpt.py, universal_computation/trainer.py" in capsys.readouterr().err


def test_batches_are_those_of_the_engines() -> None:
    batches = original_speed.Batches(CELLS["tiny-frozen"])
    inputs, labels = batches.get_batch(8, train=True)
    assert inputs.shape == (8, 4, 16)
    assert labels.shape == (8,)
    assert -1 <= inputs.min() < inputs.max() < 1
