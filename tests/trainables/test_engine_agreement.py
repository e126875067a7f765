"""Up to which learning rate the engines are held to have one curve on real data (docs/protocol.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.datasets import digits
from lr_sweep.tests.support.small_runs import plain, run_of, stacked
from lr_sweep.trainables.run import ModelSize

SIZE = ModelSize(layers=2, heads=4, width=64, positions=256)  # the quickstart's
HELD = (1e-5, 1e-4, 1e-3)
"""Losses within 1e-4 and the same step. At higher rates, rounding may grow into another curve."""


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["frozen-random", "unfrozen-random"])
def test_engines_have_one_curve_up_to_the_rate_that_the_docs_name(variant: str) -> None:
    data = digits.load(digits.Options(), Path())
    changes = {"size": SIZE, "evaluate_every": 20, "train_examples_evaluated": 100}
    runs = [run_of(variant, learning_rate=rate, **changes) for rate in HELD]
    for run, slot in zip(runs, stacked(runs, 80, data)[1], strict=True):
        fast, oracle = slot.progress, plain(run, 80, data).progress
        assert [point.step for point in fast.curve] == [point.step for point in oracle.curve] == [20, 40, 60, 80]
        assert fast.best_step == oracle.best_step
        for ours, theirs in zip(fast.curve, oracle.curve, strict=True):
            assert ours.validation_loss == pytest.approx(theirs.validation_loss, rel=1e-4)
            close = pytest.approx(theirs.validation, abs=1 / len(data.validation))
            assert ours.validation == close
