"""How long steps and evaluations take, as workers report."""

from __future__ import annotations

import pytest

from lr_sweep.trainables.engine import HALF_LIFE_S, Pace, RecentMean


def test_the_latest_minute_counts_twice_as_much_as_the_one_before() -> None:
    """60 steps in a minute, then 30: (60 / 2 + 60) s over (60 / 2 + 30) steps."""
    mean = RecentMean()
    assert mean.value is None
    mean.add(HALF_LIFE_S, 60)
    assert mean.value == pytest.approx(1.0)
    mean.add(HALF_LIFE_S, 30)
    assert mean.value == pytest.approx(90 / 60)


def test_a_checkpoint_is_part_of_what_it_follows() -> None:
    pace = Pace(steps_per_evaluation=90.0)
    assert pace.as_event() == {"step_s": None, "evaluation_s": None}
    pace.steps.add(1.0, 10)
    pace.overhead(1.0, of_evaluation=False)
    predicted = pace.as_event()
    assert predicted["step_s"] == pytest.approx(0.2, rel=0.02)
    assert predicted["evaluation_s"] == pytest.approx(0.2 * 90 / 3, rel=0.02), "forward passes alone, as many examples"
    pace.evaluations.add(8.0, 4)
    pace.overhead(2.0, of_evaluation=True)
    assert pace.as_event()["evaluation_s"] == pytest.approx(2.5, rel=0.02)
