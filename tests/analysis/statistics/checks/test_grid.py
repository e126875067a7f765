"""Checks of a cell's learning rates, of grids and of searches; every number in a message is worked out here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.study import SearchRange
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.tests.support.records import SyntheticRecord, summary_of
from lr_sweep.tests.support.synthetic import all_diverged, by_check, found_in, grid

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.mark.parametrize(
    ("values", "which", "further"),
    [
        ({1e-4: 0.5, 3e-4: 0.51, 1e-3: 0.52, 3e-3: 0.53}, "largest", (1e-2, 3e-2)),
        ({1e-4: 0.6, 1e-3: 0.59, 1e-2: 0.5}, "smallest", (1e-6, 1e-5)),
        ({1e-4: 0.5, 3.16e-4: 0.51, 1e-3: 0.52}, "largest", (3.16e-3, 1e-2)),
    ],
)
def test_best_at_the_edge(tmp_path: Path, values: dict[float, float], which: str, further: tuple[float, ...]) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, values)
    edge = by_check(found_in(made))["edge"]
    assert edge.level == "problem"
    assert f"is the {which} tried" in edge.message
    assert edge.learning_rates == further
    assert f"the {which} rate tried" in edge.condition  # of one seed each nothing says that it does not rise


@pytest.mark.parametrize(("rise", "is_said"), [(0.0, False), (0.01, False), (0.02, True)])
def test_an_edge_that_does_not_clearly_rise_makes_nothing_conditional(
    tmp_path: Path, rise: float, is_said: bool
) -> None:
    """Seeds at 0.5 ± 0.01: two standard errors of the difference are 2 x 0.01 sqrt(2 / 3) = 0.0163."""
    made = SyntheticRecord(tmp_path)
    for rate, mean in ((1e-4, 0.4), (1e-3, 0.5), (1e-2, 0.5001 + rise)):
        for seed, shift in enumerate((-0.01, 0.0, 0.01)):
            made.add(rate, seed, [(300, mean + shift, mean + shift)])
    assert bool(by_check(found_in(made))["edge"].condition) is is_said


@pytest.mark.parametrize("status", ["failed", "missing"])
def test_a_rate_without_values_was_not_tried(tmp_path: Path, status: str) -> None:
    """The best of 1e-4, 1e-3 and 1e-2 is 1e-2, 10 points above 1e-3; no run at 1e-1 has a value."""
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.4, 1e-3: 0.5, 1e-2: 0.6})
    for seed in (0, 1):
        made.want(1e-1, seed)
        if status == "failed":
            made.end(made.wanted[-1], [], "failed", 0, failure="out of memory")
    edge = by_check([each for each in found_in(made) if each.check == "edge"])["edge"]
    assert edge.condition == (
        "as far as the grid reaches: frozen-random still improves at 1e-2, the largest rate tried"
    )
    assert (edge.fix, edge.learning_rates) == ("train the runs at 1e-1, which have no value", ())


def test_a_rate_where_every_run_diverged_was_tried(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.4, 1e-3: 0.5, 1e-2: 0.6})
    all_diverged(made, [3e-2])
    found = by_check(found_in(made))
    assert "edge" not in found
    assert found.keys() == {"diverged"}
    made.end(made.wanted[-1], [], "failed", 0, failure="out of memory")  # one of the two did not diverge
    assert "edge" in {each.check for each in found_in(made)}


def test_two_rates_with_values_of_four_are_not_tuned(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-3: 0.5, 1e-2: 0.6})
    for rate in (1e-4, 1e-1):
        made.want(rate, 0)
    untuned = by_check(found_in(made))["untuned"]
    assert untuned.condition == "as far as tried: frozen-random has values at 2 learning rates only"
    assert (untuned.fix, untuned.learning_rates) == ("train the runs at 1e-1, which have no value", ())


def test_a_mean_that_numpy_and_python_round_apart_is_still_the_best(tmp_path: Path) -> None:
    assert round(0.7360253564165, 12) != np.round(0.7360253564165, 12)  # python takes this half up, numpy down
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.5, 1e-3: 0.7360253564165, 1e-2: 0.6})
    assert "edge" not in by_check(found_in(made))


ONE_VALUE = "1 of 4 learning rates with values, want at least 3: no peak can be seen to lie inside"


@pytest.mark.parametrize(
    ("values", "waiting", "diverged", "message", "further"),
    [
        ({1e-3: 0.5}, (), (), "1 of 1 learning rate with values, want at", (1e-4, 3.16e-4, 3.16e-3, 1e-2)),
        ({1e-3: 0.5, 1e-2: 0.6}, (), (), "2 of 2 learning rates with values, want", (3.16e-3, 3.16e-2, 1e-1)),
        ({1e-4: 0.6}, (), (1e-3, 1e-2, 1e-1), ONE_VALUE, (1e-5, 3.16e-5, 3.16e-4)),
        ({1e-3: 0.5}, (), (1e-4, 1e-2, 1e-1), ONE_VALUE, (3.16e-4, 3.16e-3)),
        ({1e-4: 0.5}, (1e-3,), (1e-2, 1e-1), ONE_VALUE, None),
    ],
)
def test_too_few_rates_to_show_a_peak(
    tmp_path: Path,
    values: dict[float, float],
    waiting: tuple[float, ...],
    diverged: tuple[float, ...],
    message: str,
    further: tuple[float, ...] | None,
) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, values)
    for rate in waiting:
        made.want(rate, 0)
    all_diverged(made, diverged)
    untuned = by_check(found_in(made))["untuned"]
    assert untuned.level == "problem"
    assert untuned.message.startswith(message)
    assert further in (None, untuned.learning_rates)


WIDEN = "raise `rates`, now 3, or widen the range"


def searched_in(
    made: SyntheticRecord, high: float = 1e-2, rates: int = 3, space: Sequence[str] = (), winners: int | None = None
) -> dict[str, CheckFinding]:
    results = made.write()
    searched = SearchRange(sampler="gp", low=1e-5, high=high, rates=rates, space=space)
    summary = replace(summary_of(results), search=searched, winners=winners)
    found = [*check_sweep(summary, record.read_curves(results)), *unequal_tuning(summary)]
    return {each.check: each for each in found}


def searched(folder: Path, values: dict[float, float]) -> SyntheticRecord:
    made = SyntheticRecord(folder)
    grid(made, values)
    return made


def test_best_at_the_edge_of_what_was_tried(tmp_path: Path) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.51, 5e-3: 0.52})
    edge = searched_in(made)["edge"]
    assert edge.message == "the best learning rate, 5e-3, is the largest tried"
    assert (edge.level, edge.fix, edge.learning_rates) == ("problem", WIDEN, ())


def test_a_search_before_its_end_is_missing_rates(tmp_path: Path) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.52, 5e-3: 0.51})
    assert searched_in(made) == {}
    assert searched_in(made, rates=5)["missing"].message == "the search has proposed 3 of 5 learning rates"


def test_rates_to_add_become_more_rates(tmp_path: Path) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.52})
    untuned = searched_in(made, rates=2)["untuned"]
    assert (untuned.fix, untuned.learning_rates) == (WIDEN.replace("3", "2"), ())


def test_winners_that_are_not_chosen_yet_are_missing(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {2e-4: 0.5, 1e-3: 0.6, 5e-3: 0.55}, seeds=1)
    message = "no learning rate has all seeds yet: the winners are not chosen"
    assert searched_in(made, winners=1)["missing"].message == message
    made.add(1e-3, 1, [(300, 0.6, 0.6)])
    assert searched_in(made, winners=1) == {}
