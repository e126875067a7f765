"""How long steps and evaluations take: as `plan --measure` times them, and as workers report."""

from __future__ import annotations

import pytest

from lr_sweep.tests.support.small_runs import CPU, random_weights, real_valued_task, run_of
from lr_sweep.trainables.engine import HALF_LIFE_S, RecentMean
from lr_sweep.trainables.worker import timing
from lr_sweep.trainables.worker.timing import REPEATS, repeated, time_engine


@pytest.mark.parametrize(
    ("piece_s", "first", "longest", "asked"),
    [
        (0.15, 1, 50, [1, 2, 4]),  # 4 x 0.15 s are more than 0.4 s
        (0.001, 1, 50, [1, 2, 4, 8, 16, 32, 50]),
        (3.0, 1, 50, [1]),
        (0.001, 64, 1000, [64, 128, 256, 512]),
        (0.001, 64, 60, [64]),
    ],
)
def test_short_work_is_timed_together_and_the_first_is_not_timed(
    piece_s: float, first: int, longest: int, asked: list[int]
) -> None:
    """The work takes 2 s more when it is first asked."""
    now, numbers = 0.0, []

    def work(number: int) -> float:
        nonlocal now
        now += number * piece_s + (0.0 if numbers else 2.0)
        numbers.append(number)
        return number

    assert repeated(work, first, longest, lambda: now) == pytest.approx([piece_s] * REPEATS)
    tried = [number for number in asked if number < longest]
    assert numbers == [first, *tried] + [asked[-1]] * REPEATS


@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_both_engines_can_be_timed(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "REPEAT_S", 0.01)
    data = real_valued_task()
    weights = random_weights() if variant.endswith("-pretrained") else None
    runs = [run_of(variant, learning_rate=rate) for rate in (1e-3, 1e-2)]
    for plain in (False, True):
        step_s, evaluation_s = time_engine(runs, data, weights, CPU, plain=plain)
        assert len(step_s) == len(evaluation_s) == REPEATS
        assert min(step_s + evaluation_s) > 0


def test_the_latest_minute_counts_twice_as_much_as_the_one_before() -> None:
    """60 steps in a minute, then 30: (60 / 2 + 60) s over (60 / 2 + 30) steps."""
    mean = RecentMean()
    assert mean.value is None
    mean.add(HALF_LIFE_S, 60)
    assert mean.value == pytest.approx(1.0)
    mean.add(HALF_LIFE_S, 30)
    assert mean.value == pytest.approx(90 / 60)
