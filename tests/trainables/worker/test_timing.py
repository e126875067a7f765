"""How long steps and evaluations take, as workers report."""

from __future__ import annotations

import pytest

from lr_sweep.trainables.engine import HALF_LIFE_S, RecentMean


def test_the_latest_minute_counts_twice_as_much_as_the_one_before() -> None:
    """60 steps in a minute, then 30: (60 / 2 + 60) s over (60 / 2 + 30) steps."""
    mean = RecentMean()
    assert mean.value is None
    mean.add(HALF_LIFE_S, 60)
    assert mean.value == pytest.approx(1.0)
    mean.add(HALF_LIFE_S, 30)
    assert mean.value == pytest.approx(90 / 60)
