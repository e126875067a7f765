"""What the choice of a rate may have cost, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from lr_sweep.analysis.statistics.comparisons.choice import choice_costs
from lr_sweep.analysis.statistics.comparisons.conditions import with_conditions
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.tests.support.records import SyntheticRecord, add_fresh, summary_of

Values = Sequence[float]


def study(folder: Path, beside: dict[str, float], fresh: dict[str, Values]) -> StudySummary:
    """Variants with validation 0.80 and 0.82 at 1e-3, their best rate, and twice `beside` at 1e-2."""
    made = SyntheticRecord(folder)
    for variant, mean in beside.items():
        for seed, chosen in enumerate((0.80, 0.82)):
            made.add(1e-3, seed, [(300, chosen, chosen)], variant=variant)
            made.add(1e-2, seed, [(300, mean, mean)], variant=variant)
        add_fresh(made, 1e-3, variant, fresh[variant])
    return summary_of(made.write(fresh={"max": 3}))


def test_the_cost_is_the_upper_limit_of_the_gain_of_another_rate(tmp_path: Path) -> None:
    """At 1e-3 0.80, 0.82, 0.79, 0.80, 0.84: mean 0.81, variance 4e-4; error 0.02 sqrt(1/2 + 1/5), t of 4 is 2.1318."""
    (cost,) = choice_costs(study(tmp_path, {"a": 0.80}, {"a": (0.79, 0.80, 0.84)})).values()
    assert cost == pytest.approx(-0.01 + 2.1318 * 0.02 * math.sqrt(0.7), abs=1e-5)


def test_the_costs_of_two_of_three_variants_hold_together(tmp_path: Path) -> None:
    """The same values of three variants: the level of 5% is shared by two, so t of 4 is 2.7764."""
    values = (0.79, 0.80, 0.84)
    costs = choice_costs(study(tmp_path, dict.fromkeys("abc", 0.80), dict.fromkeys("abc", values)))
    assert list(costs.values()) == pytest.approx([-0.01 + 2.7764 * 0.02 * math.sqrt(0.7)] * 3, abs=1e-5)


def test_of_a_rate_far_behind_there_is_no_cost(tmp_path: Path) -> None:
    assert list(choice_costs(study(tmp_path, {"a": 0.1}, {"a": (0.79, 0.80, 0.84)})).values()) == [0.0]


@pytest.mark.parametrize(("beside", "is_certain"), [(0.1, True), (0.80, False)])
def test_a_lead_that_is_no_larger_than_the_cost_is_conditional(tmp_path: Path, beside: float, is_certain: bool) -> None:
    """The fresh seeds of a lead by 1 point with a standard error of 0.08; another rate of b may bring 1.2 points."""
    fresh = {"a": (0.809, 0.810, 0.811), "b": (0.799, 0.800, 0.801)}
    (row,) = with_conditions(study(tmp_path, {"a": 0.1, "b": beside}, fresh)).to_dict("records")
    assert row["distinguishable"]
    expected = "if b has its best learning rate: another may be better by up to 1.2 points"
    assert row["condition"] == ("" if is_certain else expected)
