"""The table of error rates, from few studies."""

from __future__ import annotations

import numpy as np
import pytest

from lr_sweep.benchmarks.check_error_rates import FAULTS, judged, share_found
from lr_sweep.benchmarks.simulated_studies import Setting, drawn, faulty, sound

SETTING = Setting(num_tasks=1, num_seeds=3, num_rates=5, step=0.5, noise=0.005, num_evaluations=12)


def test_a_sound_study_passes() -> None:
    rng = np.random.default_rng(0)
    assert [each for each in judged(drawn(sound(SETTING, rng), rng)) if each.level == "problem"] == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    assert share_found(*FAULTS[name], 1, np.random.default_rng(0))[1] == 1.0


def test_the_sound_truth_by_hand() -> None:
    """Half a width from its peak a bell of 50 points above chance has lost 50 (1 - exp(-1/8)) points."""
    truth = faulty(sound(SETTING, np.random.default_rng(0)), best=0.6, width=1.0, peak=-2.5)
    assert truth.accuracy[0, -1, 2] == pytest.approx(0.1 + 0.5 * np.exp(-1 / 8))
