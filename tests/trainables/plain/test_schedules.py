from __future__ import annotations

import pytest

from lr_sweep.tests.support.small_runs import run_of
from lr_sweep.trainables.plain.schedules import depends_on_budget, learning_rate_at, rate_factor
from lr_sweep.trainables.run import Protocol


def factors(num_steps: int | None, steps: range, **options: object) -> list[float]:
    protocol = Protocol(**options)  # type: ignore[arg-type]
    return [rate_factor(protocol, step, num_steps) for step in steps]


def test_constant_is_one_after_the_warm_up() -> None:
    assert factors(None, range(1, 4)) == [1.0, 1.0, 1.0]
    assert factors(None, range(1, 7), warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_from_one_by_half_a_period() -> None:
    # Four steps at 0, 45, 90 and 135 degrees: (1 + cos) / 2.
    cosine = [1.0, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]
    assert factors(4, range(1, 5), schedule="cosine") == pytest.approx(cosine, abs=1e-12)
    warm = factors(6, range(1, 7), schedule="cosine", warmup_steps=2)
    assert warm == pytest.approx([0.5, 1.0, *cosine], abs=1e-12)


def test_warmup_stable_decay_falls_linearly_at_the_end() -> None:
    found = factors(10, range(1, 11), schedule="warmup-stable-decay", warmup_steps=2, decay_fraction=0.4)
    assert found == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    default = factors(10, range(1, 11), schedule="warmup-stable-decay")
    assert default == [1.0] * 9 + [0.5]


@pytest.mark.parametrize("schedule", ["cosine", "warmup-stable-decay"])
def test_beyond_the_budget_the_factor_is_zero(schedule: str) -> None:
    """A measurement of a step's duration may take more steps than a short budget has."""
    assert factors(10, range(11, 40, 14), schedule=schedule) == [0.0] * 3


def test_the_learning_rate_is_the_run_s_times_the_factor() -> None:
    run = run_of(learning_rate=0.1, schedule="cosine", schedule_steps=4)
    assert learning_rate_at(run, 3) == pytest.approx(0.05)
    assert learning_rate_at(run_of(learning_rate=0.1), 10**9) == 0.1


def test_which_schedules_depend_on_the_budget() -> None:
    assert depends_on_budget(Protocol(schedule="cosine"))
    assert depends_on_budget(Protocol(schedule="warmup-stable-decay"))
    assert not depends_on_budget(Protocol(warmup_steps=100))
