"""`search` in a study file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.statistics.rates.further_rates import three_digits
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.plan.plan import Plan, plan_on
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.search import Search
from lr_sweep.tests.support.scripted_trials import searched
from lr_sweep.tests.support.study_example import mistakes_in

SEARCH = "{sampler: tpe, low: 1e-5, high: 1e-1, rates: 6}"


def test_a_search_takes_the_place_of_the_learning_rates(tmp_path: Path) -> None:
    study = load_study(searched(tmp_path, SEARCH))
    assert study.search == Search(sampler="tpe", low=1e-5, high=1e-1, rates=6)
    assert (study.learning_rates, study.learning_rate_grid()) == (None, ())


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("{low: 1e-3, high: 1e-1, rates: 3}", "search.rates: got 3, want more than 4: the first 4 of tpe are quasi-"),
        ("{low: 1e-3, high: 1.5e-3, rates: 8}", "search.high: got 1.5e-3, want at least twice low = 1e-3"),
        ("{low: 1.2345e-3, high: 1e-1, rates: 8}", "search.low: 0.0012345 has more than 3 significant digits; 1.23e-3"),
        ("{low: 1e-3, high: 1e-1, rates: 101}", "search.rates: got 101, want less than or equal to 100"),
        ("{sampler: tpee, low: 1e-3, high: 1e-1, rates: 8}", "search.sampler: got \"tpee\", want 'tpe', 'gp', 'quasi"),
        ("{low: 1e-3, high: 1e-1, rates: 8, per_decade: 2}", "search.per_decade: unknown key 'per_decade'"),
        ("null", "learning_rates: missing; write `learning_rates: {low: 1e-4, high: 1e-1}`, a list, or a `search`"),
        (f"{SEARCH}\nlearning_rates: [1e-3]", "learning_rates: the study has a `search`, too; leave one of them out"),
        (f"{SEARCH}\ncells: [{{learning_rates: [1e-3]}}]", "cells[0].learning_rates: the study has a `search`; leave"),
    ],
)
def test_mistakes(tmp_path: Path, search: str, message: str) -> None:
    (line,) = mistakes_in(searched(tmp_path, search))
    assert message in line


@given(st.integers(0, 60), st.integers(-18, 0), st.floats(2, 10), st.data())
def test_rates_are_distinct_and_within_the_range(number: int, exponent: int, ratio: float, data: st.DataObject) -> None:
    low = three_digits(10.0**exponent)
    search = Search(sampler="random", low=low, high=max(three_digits(low * ratio), 2 * low), rates=100)
    tried: list[float] = []
    for _ in range(number):
        position = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
        tried.append(search.untried(search.range.at(position), tried))
    assert len(set(tried)) == number
    assert all(search.low <= rate <= search.high and rate == three_digits(rate) for rate in tried)


def test_the_nearest_rates_of_three_digits() -> None:
    search = Search(sampler="random", low=1e-3, high=1e-1, rates=100)
    assert search.untried(0.01234, ()) == 1.23e-2
    assert search.untried(1e-2, (1e-2,)) == 9.9e-3
    assert search.untried(1e-3, (1e-3,)) == 1.01e-3
    assert search.untried(0.1, (0.1, 0.099)) == 9.89e-2


def test_a_plan_counts_what_is_not_proposed_yet(tmp_path: Path) -> None:
    study, results = load_study(searched(tmp_path, SEARCH)), Results(tmp_path / "results")
    plan = Plan(study, Placement(resources=study.resources), results, tmp_path)
    text = plan_on(plan, {"CPU": 2.0})
    assert "search     tpe, 6 learning rates from 1e-5 to 1e-1, 2 at once; 2 cells and 1 seed: 12 runs" in text
    assert "rates      0 of 12 proposed so far" in text
    assert "to train   12 runs in 12 trials" in text
