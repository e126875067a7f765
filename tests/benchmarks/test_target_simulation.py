"""Claims of speed are seldom wrong: the short form of the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from lr_sweep.benchmarks.target_simulation import Setting, drawn, judged

NUMBER = 200
OFF = 3 * 0.0154
"""Three standard errors of a share of 5%."""


@pytest.mark.parametrize("setting", [Setting(), Setting(reached=0.97, seeds=10)])
def test_intervals_are_right_and_equal_variants_stay_equal(setting: Setting) -> None:
    values, short = drawn(setting, 1.0, NUMBER, np.random.default_rng(0))
    is_right, *faster = judged(values, short, 1.0)
    assert is_right > 0.95 - OFF
    assert sum(faster) < 0.05 + OFF
