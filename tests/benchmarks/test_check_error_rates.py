"""The table of error rates, from few studies."""

from __future__ import annotations

import numpy as np
import pytest

from lr_sweep.benchmarks.check_error_rates import FAULTS, PLANTED, share_found, share_passed, sound


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_sound_study_passes(rng: np.random.Generator) -> None:
    assert share_passed(1, 1, rng) == 1.0


@pytest.mark.parametrize("check", FAULTS)
def test_a_planted_fault_is_found(check: str, rng: np.random.Generator) -> None:
    assert share_found(check, 1, rng) == 1.0


def test_the_sound_truth_by_hand(rng: np.random.Generator) -> None:
    """Half a width from its peak a bell of 50 points above chance has lost 50 (1 - exp(-1/8)) points."""
    truth = sound(1, rng)
    truth.best[PLANTED], truth.width[PLANTED], truth.peak[PLANTED] = 0.6, 1.0, -2.5
    middle = len(truth.log_rates) // 2
    assert truth.accuracy[0, -1, middle] == pytest.approx(0.1 + 0.5 * np.exp(-1 / 8))
