"""Up to which learning rate the engines are held to have one curve on real data (docs/protocol.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.benchmarks.engine_agreement import RATES, VARIANTS, differences, plain, stacked, sweep
from lr_sweep.datasets import digits

HELD = 1e-3
"""Rates up to this one: losses within 1e-4 and the same step. Above, rounding may grow into another curve."""
NUM_STEPS = 80


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_engines_have_one_curve_up_to_the_rate_that_the_docs_name(variant: str) -> None:
    data = digits.load(digits.Options(), Path())
    runs = [run for run in sweep(variant, num_seeds=1, evaluate_every=20) if run.learning_rate <= HELD]
    assert [run.learning_rate for run in runs] == [rate for rate in RATES if rate <= HELD]
    for run, fast in zip(runs, stacked(runs, data, NUM_STEPS), strict=True):
        oracle = plain(run, data, NUM_STEPS)
        assert [point.step for point in fast] == [point.step for point in oracle] == [20, 40, 60, 80]
        loss, accuracy, is_other_step = differences(oracle, fast)
        assert loss < 1e-4, run.learning_rate
        assert accuracy <= 1 / len(data.validation), run.learning_rate
        assert not is_other_step
