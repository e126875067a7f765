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
from lr_sweep.tests.support.synthetic import all_diverged, by_check, found_in, grid, of_check

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
    assert found["cliff"].condition == ""
    made.end(made.wanted[-1], [], "failed", 0, failure="out of memory")  # one of the two did not diverge
    assert "edge" in {each.check for each in found_in(made)}


def test_two_rates_with_values_of_four_are_not_tuned(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-3: 0.5, 1e-2: 0.6})
    for rate in (1e-4, 1e-1):
        made.want(rate, 0)
    untuned = by_check(found_in(made))["untuned"]
    assert untuned.condition == "as far as tried: frozen-random has values at 2 learning rates only"
    assert (untuned.fix, untuned.learning_rates) == ("train the runs at 1e-4, 1e-1, which have no value", ())


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
        ({1e-3: 0.5, 1e-2: 0.6}, (), (), "2 of 2 learning rates with values, want", (1e-5, 1e-4, 1e-1, 1.0)),
        ({1e-4: 0.6}, (), (1e-3, 1e-2, 1e-1), ONE_VALUE, (1e-6, 1e-5, 3.16e-4)),
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


@pytest.mark.parametrize(
    ("values", "gain"),
    [
        ((0.20, 0.60, 0.60, 0.20), "5.0"),  # a parabola of 20 points a decade, its peak in the middle
        ((0.40, 0.55, 0.60, 0.55, 0.40), None),  # as steep, and its peak is on the grid
        ((0.58, 0.60, 0.60, 0.58), None),  # 0.25 points are to be had
        ((0.59, 0.60, 0.60, 0.10), None),  # a plateau and a cliff: no parabola
        ((0.595, 0.995, 0.995, 0.595), None),  # as the first, with half a point to 100%
    ],
    ids=["between two rates", "on a rate", "flat", "cliff", "no room"],
)
def test_a_coarse_grid(tmp_path: Path, values: tuple[float, ...], gain: str | None) -> None:
    """A parabola through y at -1.5, -0.5, 0.5, 1.5 decades: its peak is an eighth of the fall in a decade above y."""
    made = SyntheticRecord(tmp_path)
    rates = [10.0 ** (index - 5) for index in range(len(values))]
    grid(made, dict(zip(rates, values, strict=True)))
    found = by_check(found_in(made))
    assert ("narrow" in found) == (gain is not None)
    if gain is not None:
        assert found["narrow"].level == "problem"
        assert found["narrow"].message == (
            "the grid is coarse at 1e-4: by a parabola through its neighbours a rate near 3.16e-4 is better by "
            f"{gain} points (at least {gain} points)"
        )
        assert found["narrow"].learning_rates == (3.16e-5, 3.16e-4)


def test_rates_at_which_runs_explode_ask_for_no_finer_grid(tmp_path: Path) -> None:
    """A parabola through losses of 3.2, 3.0 and 54 to 135 would have its peak far below the least of them."""
    made = SyntheticRecord(tmp_path)
    exploded = (88, 72, 29, 54, 134)
    for rate, losses in ((1e-4, [3.6] * 5), (3e-4, [3.2] * 5), (1e-3, [3.0] * 5), (3e-3, exploded), (1e-2, exploded)):
        for seed, loss in enumerate(losses):
            made.add(rate, seed, [(300, loss + 0.01 * (seed - 2), loss)])
    results = made.write(metric={"name": "loss", "higher_is_better": False, "is_fraction": False})
    assert "narrow" not in by_check(check_sweep(summary_of(results), record.read_curves(results)))


def test_a_gain_that_changes_no_order_is_a_note(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for variant, top in (("frozen-random", 0.30), ("unfrozen-random", 0.60)):
        grid(made, {1e-5: top - 0.2, 1e-4: top, 1e-3: top, 1e-2: top - 0.2}, variant=variant)
    found = of_check(made, "narrow")
    assert [each.level for each in found.values()] == ["note", "note"]
    assert found["frozen-random"].message.endswith("; the nearest variant is 30.0 points away, so the order stays")


def test_a_gain_within_the_noise_is_none(tmp_path: Path) -> None:
    """The same 5 points, between seeds that are 20 points apart: SEM 0.1 of each mean."""
    made = SyntheticRecord(tmp_path)
    for rate, mean in zip((1e-5, 1e-4, 1e-3, 1e-2), (0.2, 0.6, 0.6, 0.2), strict=True):
        for seed, value in enumerate((mean - 0.1, mean + 0.1)):
            made.add(rate, seed, [(300, value, value)])
    assert found_in(made) == []


@pytest.mark.parametrize(
    ("values", "lost", "level", "further"),
    [
        ({1e-4: 0.5, 3e-4: 0.55, 1e-3: 0.6}, (3e-3, 1e-2), "problem", (1.73e-3,)),  # rises by 5 points a half decade
        ({1e-4: 0.59, 3e-4: 0.595, 1e-3: 0.6}, (3e-3, 1e-2), "note", ()),  # a quarter of a point is to be had
        ({1e-5: 0.59, 1e-4: 0.595, 1e-3: 0.6}, (1e-2,), "problem", (3.16e-3,)),  # a step of a decade
    ],
    ids=["rising", "flat", "wide"],
)
def test_a_cliff_above_the_best_rate(
    tmp_path: Path, values: dict[float, float], lost: tuple[float, ...], level: str, further: tuple[float, ...]
) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, values)
    all_diverged(made, lost)
    cliff = by_check(found_in(made))["cliff"]
    assert (cliff.level, cliff.learning_rates) == (level, further)
    assert cliff.message.startswith("every run above the best rate, 1e-3, diverged; the next is ")


@pytest.mark.parametrize(("others", "level"), [((0.70, 0.71), "problem"), ((0.601, 0.605), "note")])
def test_a_choice_that_avoids_a_rate_where_a_seed_diverged(
    tmp_path: Path, others: tuple[float, float], level: str
) -> None:
    """Of three seeds two have 70 and 71% at 1e-3: 10.5 points above the chosen rate, far beyond the noise."""
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-5: 0.5, 1e-4: 0.6, 1e-2: 0.59}, seeds=3)
    made.add(1e-3, 0, [], "diverged", 9, 9)
    for seed, value in enumerate(others, start=1):
        made.add(1e-3, seed, [(300, value, value)])
    unstable = by_check(found_in(made))["unstable"]
    assert unstable.level == level
    assert unstable.message.startswith("1 of 3 seeds have no value at 1e-3, where the others are better than at the")
    assert unstable.learning_rates == ((3.16e-4,) if level == "problem" else ())


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
    assert edge.message == "the best learning rate, 5e-3, is the largest tried; the search's range ends at 1e-2"
    assert (edge.level, edge.fix, edge.learning_rates) == ("problem", WIDEN, ())


def test_a_search_before_its_end_is_missing_rates(tmp_path: Path) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.52, 5e-3: 0.51})
    assert searched_in(made) == {}
    assert searched_in(made, rates=5)["missing"].message == "the search has proposed 3 of 5 learning rates"


def test_rates_to_add_become_more_rates(tmp_path: Path) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.52})
    untuned = searched_in(made, rates=2)["untuned"]
    assert (untuned.fix, untuned.learning_rates) == (WIDEN.replace("3", "2"), ())


def test_rates_with_options_of_their_own_show_no_peak(tmp_path: Path) -> None:
    """By a parabola the peak is halfway between 1e-3 and 1e-2, 2.5 points higher: 60, 80, 80, 60 at -1, 0, 1, 2."""
    made = searched(tmp_path, {1e-4: 0.6, 1e-3: 0.8, 1e-2: 0.799, 1e-1: 0.6})
    assert set(searched_in(made, 1e-1, 4)) == {"narrow"}
    assert searched_in(made, 1e-1, 4, space=["batch_size"]) == {}


def test_winners_that_are_not_chosen_yet_are_missing(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {2e-4: 0.5, 1e-3: 0.6, 5e-3: 0.55}, seeds=1)
    message = "no learning rate has all seeds yet: the winners are not chosen"
    assert searched_in(made, winners=1)["missing"].message == message
    made.add(1e-3, 1, [(300, 0.6, 0.6)])
    found = searched_in(made, winners=1)
    assert found.keys() == {"winners"}
    assert found["winners"].message == "1 of 3 learning rates, the best of the first seed, have all seeds"
