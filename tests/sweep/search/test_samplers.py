"""The learning rates that samplers propose for a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import get_args

import pytest

from lr_sweep.analysis.statistics.rates.refinement import Observation
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.study.search import Point, Search

CELL = ("digits", "tiny", "frozen-random")
OTHER = ("digits", "tiny", "unfrozen-random")
GP = pytest.param("gp", marks=pytest.mark.slow)
SAMPLERS = [GP if name == "gp" else name for name in get_args(Search.model_fields["sampler"].annotation)]


def search_of(sampler: str, rates: int = 8) -> Search:
    return Search.model_validate({"sampler": sampler, "low": 1e-5, "high": 1e-1, "rates": rates})


def measured(rate: float, best: float = 1e-3) -> Observation:
    """A value that falls by 0.1 per decade from the best rate."""
    return Observation(rate, "measured", 0.9 - 0.1 * abs(math.log10(rate / best)))


def next_rates(
    search: Search, cell: Sequence[str], observed: Sequence[Observation], number: int, *, maximise: bool, seed: int = 0
) -> list[float]:
    """The rates of a search without a space."""
    tried = [(Point(each.learning_rate), each) for each in observed]
    return [point.learning_rate for point in next_points(search, cell, tried, number, maximise=maximise, seed=seed)]


def searched(
    search: Search, cell: Sequence[str] = CELL, observe: Callable[[float], Observation] = measured, size: int = 2
) -> list[Observation]:
    """All rounds of a search."""
    observed: list[Observation] = []
    while len(observed) < search.rates:
        rates = next_rates(search, cell, observed, min(size, search.rates - len(observed)), maximise=True)
        observed += map(observe, rates)
    return observed


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_seed_proposes_the_same_and_the_first_rates_are_those_of_every_cell(
    sampler: str,
) -> None:
    """So cells compare at equal rates; samplers that read values part after four."""
    search = search_of(sampler, rates=6)
    found = searched(search)
    assert found == searched(search)
    assert all(search.low <= each.learning_rate <= search.high for each in found)
    rates, others = ([each.learning_rate for each in searched(search, cell)] for cell in (CELL, OTHER))
    assert len(set(rates)) == 6
    assert rates[:4] == others[:4]
    assert (rates == others) == (sampler in ("random", "quasi-random"))
    assert rates[:4] != next_rates(search_of(sampler), CELL, [], 4, maximise=True, seed=1)


def test_quasi_random_rates_have_one_in_each_part_of_the_range() -> None:
    rates = [each.learning_rate for each in searched(search_of("quasi-random"))]
    assert sorted(int(4 * (math.log10(rate) + 5) / 4) for rate in rates[:4]) == [0, 1, 2, 3]
    assert sorted(int(8 * (math.log10(rate) + 5) / 4) for rate in rates) == list(range(8))


@pytest.mark.parametrize(("sampler", "rates"), [pytest.param("gp", 10, marks=pytest.mark.slow), ("tpe", 30)])
def test_adaptive_samplers_come_closer(sampler: str, rates: int) -> None:
    """The last six rates are closer to the best one than the first four, in decades; TPE takes far more to do so."""

    def distance(rate: float, best: float) -> float:
        return abs(math.log10(rate / best))

    before, after = [], []
    for best in (1e-4, 1e-3, 1e-2):
        found = searched(search_of(sampler, rates), observe=lambda rate, best=best: measured(rate, best), size=3)
        distances = [distance(each.learning_rate, best) for each in found]
        before += distances[:4]
        after += distances[-6:]
    assert sum(after) / len(after) < 0.75 * sum(before) / len(before)


@pytest.mark.parametrize("sampler", ["tpe", GP])
def test_a_rate_that_diverged_counts_as_the_worst_of_the_cell(sampler: str) -> None:
    """And not as nothing: the same proposals follow a value as low as the worst one."""
    observed = [measured(rate) for rate in (2e-5, 3e-4, 2e-3)]
    worst = min(each.value for each in observed if each.value is not None)
    lost = Observation(5e-2, "diverged", None), Observation(5e-2, "measured", worst), Observation(5e-2, "lost", None)
    diverged, as_worst, ignored = (
        next_rates(search_of(sampler), CELL, [*observed, each], 2, maximise=True) for each in lost
    )
    assert diverged == as_worst
    assert ignored != diverged


@pytest.mark.parametrize("sampler", ["tpe", GP])
@pytest.mark.parametrize("outcome", ["diverged", "lost"])
def test_a_cell_without_a_value_is_searched_on(sampler: str, outcome: str) -> None:
    search = search_of(sampler, rates=6)
    found = searched(search, observe=lambda rate: Observation(rate, outcome, None))  # type: ignore[arg-type]
    assert len({each.learning_rate for each in found}) == 6


def test_observations_outside_a_narrower_range_are_left_out() -> None:
    narrow = Search(sampler="tpe", low=1e-3, high=1e-1, rates=8)
    observed = [measured(rate) for rate in (2e-5, 3e-4, 2e-3, 5e-2)]
    assert all(1e-3 <= rate <= 1e-1 for rate in next_rates(narrow, CELL, observed, 2, maximise=True))


def test_a_metric_to_minimise() -> None:
    losses = [each._replace(value=1 - (each.value or 0)) for each in map(measured, (2e-5, 3e-4, 2e-3, 5e-2))]
    accuracies = [measured(rate) for rate in (2e-5, 3e-4, 2e-3, 5e-2)]
    down = next_rates(search_of("tpe"), CELL, losses, 2, maximise=False)
    assert down == next_rates(search_of("tpe"), CELL, accuracies, 2, maximise=True)
