"""How long steps and evaluations take: as `plan --measure` times them, and as workers report."""

from __future__ import annotations

import pytest

from lr_sweep.tests.support.small_runs import CPU, random_weights, real_valued_task, run_of
from lr_sweep.trainables.engine import HALF_LIFE_S, Pace, RecentMean
from lr_sweep.trainables.worker import timing
from lr_sweep.trainables.worker.timing import REPEATS, time_engine, time_evaluations, time_steps


class Work:
    """Takes 0.1 s a step, and 2 s more when it is first asked; an evaluation takes 1 ms an example of each split."""

    def __init__(self, step_s: float = 0.1) -> None:
        self.now, self.step_s = 0.0, step_s
        self.asked: list[int] = []

    def clock(self) -> float:
        return self.now

    def train(self, number: int) -> None:
        self.now += number * self.step_s + (0.0 if self.asked else 2.0)
        self.asked.append(number)

    def evaluate(self, number: int) -> float:
        self.asked.append(number)
        self.now += 0.001 * min(number, 1000)
        return min(number, 1000) / 1000


@pytest.mark.parametrize(("step_s", "number"), [(0.1, 4), (0.001, 50), (3.0, 1)])
def test_the_first_steps_are_not_timed_and_short_ones_are_timed_together(step_s: float, number: int) -> None:
    """4 x 0.1 s make 0.4 s; of steps of a millisecond a chunk of 50 is enough."""
    work = Work(step_s)
    assert time_steps(work.train, work.clock) == pytest.approx([step_s] * REPEATS)
    assert work.asked == [3, 1] + [number] * REPEATS


def test_a_long_evaluation_is_timed_in_part_and_scaled_up() -> None:
    """64, 128 and 256 examples take less than 0.4 s, 512 take longer; all 1000 take 1 s."""
    work = Work()
    assert time_evaluations(work.evaluate, 1000, work.clock) == pytest.approx([1.0] * REPEATS)
    assert work.asked == [64, 64, 128, 256, 512] + [512] * REPEATS


def test_a_short_evaluation_is_timed_whole() -> None:
    work = Work()
    assert time_evaluations(work.evaluate, 60, work.clock) == pytest.approx([1.0] * REPEATS)
    assert work.asked == [64] * (1 + REPEATS)


@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_both_engines_can_be_timed(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "REPEAT_S", 0.01)
    data = real_valued_task()
    weights = random_weights() if variant.endswith("-pretrained") else None
    runs = [run_of(variant, learning_rate=rate) for rate in (1e-3, 1e-2)]
    for plain in (False, True):
        timed = time_engine(runs, data, weights, CPU, plain=plain)
        assert len(timed.step_s) == len(timed.evaluation_s) == REPEATS
        assert min(timed.step_s + timed.evaluation_s) > 0


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
