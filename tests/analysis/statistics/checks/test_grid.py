"""Checks of a cell's learning rates, of grids and of searches; every number in a message is worked out here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.study import SearchRange
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import write_report
from lr_sweep.sweep.study.file import load_study, shipped_studies
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


def test_a_mean_that_numpy_and_python_round_apart_is_still_the_best(tmp_path: Path) -> None:
    assert round(0.7360253564165, 12) != np.round(0.7360253564165, 12)  # python takes this half up, numpy down
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.5, 1e-3: 0.7360253564165, 1e-2: 0.6})
    assert "edge" not in by_check(found_in(made))


ONE_VALUE = "only 1 of 4 learning rates has a value: no peak can be seen to lie inside"


@pytest.mark.parametrize(
    ("values", "waiting", "diverged", "message", "further"),
    [
        ({1e-3: 0.5}, (), (), "only one learning rate, 1e-3, was tried: nothing is", (1e-4, 3.16e-4, 3.16e-3, 1e-2)),
        ({1e-3: 0.5, 1e-2: 0.6}, (), (), "only 2 learning rates were tried: no peak", (1e-5, 1e-4, 1e-1, 1.0)),
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
    assert cliff.message.startswith("no rate above the best one, 1e-3, has a value: the next is ")


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


A, B = "frozen-random", "unfrozen-random"


def unequal_in(made: SyntheticRecord) -> list[CheckFinding]:
    return list(unequal_tuning(summary_of(made.write())))


def tuned(made: SyntheticRecord, variant: str, rates: tuple[float, ...], seeds: int = 2, budget: int = 300) -> None:
    for rate, seed in product(rates, range(seeds)):
        made.add(rate, seed, [(budget, 0.5, 0.5)], variant=variant, budget=budget)


def test_fewer_learning_rates(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, A, (1e-3,))
    tuned(made, B, (1e-4, 1e-3, 1e-2))
    (found,) = unequal_in(made)
    assert (found.check, found.level, found.variant) == ("unequal", "problem", A)
    assert found.message == f"unequal tuning: 1 learning rate, 1e-3; {B} had 3 learning rates from 1e-4 to 1e-2"
    assert found.learning_rates == (1e-4, 1e-2)
    assert found.message in write_report(tmp_path, "small").text


@pytest.mark.parametrize(
    ("rates", "others", "lacking"),
    [
        ((1e-4, 1e-3, 1e-2), (1e-3, 1e-2, 1e-1), {A: (1e-1,), B: (1e-4,)}),  # either lacks an end of the other
        ((1e-4, 1e-3, 1e-2), (1e-4, 1e-3, 1e-2), {}),
        ((1.2e-4, 9e-4, 8.9e-3), (1e-4, 1e-3, 1e-2), {}),  # draws from one range
        ((1.2e-4, 8.9e-3), (1.1e-4, 2e-3, 9.5e-3), {A: ()}),  # fewer draws: other ones will do
    ],
)
def test_ranges_and_numbers_of_rates(
    tmp_path: Path, rates: tuple[float, ...], others: tuple[float, ...], lacking: dict[str, tuple[float, ...]]
) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, A, rates)
    tuned(made, B, others)
    found = unequal_in(made)
    assert {each.variant: each.learning_rates for each in found} == lacking
    assert all("9.5e-3 for it, too" in each.fix for each in found if not each.learning_rates)


def test_fewer_seeds_are_a_note_and_fewer_steps_a_problem(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, A, (1e-3,), seeds=1, budget=300)
    tuned(made, B, (1e-3,), seeds=3, budget=500)
    found = {each.check: each for each in unequal_in(made)}
    assert {check: each.level for check, each in found.items()} == {"unequal": "problem", "unequal-seeds": "note"}
    assert found["unequal"].message == f"unequal tuning: trained for 300 steps, {B} for 500"
    assert found["unequal-seeds"].message == f"unequal tuning: 1 seed per learning rate, {B} has 3"
    assert found["unequal-seeds"].fix == "add 2 seeds"


def test_runs_that_end_early_are_named(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, A, (1e-3, 1e-2), budget=300)
    tuned(made, A, (1e-1,), budget=100)
    (found,) = unequal_in(made)
    assert (found.check, found.level) == ("short", "note")
    assert found.message == "2 of 6 runs end before step 300, with the values they had"


def test_other_tasks_and_models_are_not_compared(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate in (1e-4, 1e-3, 1e-2):
        made.add(rate, 0, [(300, 0.5, 0.5)])
    made.add(1e-3, 0, [(300, 0.5, 0.5)], task="cifar10")
    made.add(1e-3, 0, [(300, 0.5, 0.5)], model="tiny")
    assert unequal_in(made) == []


def wanted_by(name: str) -> pd.DataFrame:
    """The grid of a shipped study, without its data and weights."""
    study = load_study(name)
    rates = (
        [study.search.rate_at(index / study.search.rates) for index in range(study.search.rates)]
        if study.search
        else []
    )
    rows = [
        {
            **{"task": cell.task, "model": cell.model, "variant": cell.variant, "learning_rate": rate, "seed": seed},
            "num_steps": study.tasks[cell.task].num_steps,
        }
        for cell in study.cell_list()
        for rate, seed in product(cell.learning_rates or rates, study.seed_list())
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("name", sorted(shipped_studies()))
def test_no_shipped_study_tunes_unequally(name: str) -> None:
    wanted = wanted_by(name)
    assert list(unequal_tuning(StudySummary(runs=wanted, learning_rates=wanted, cells=wanted))) == []


@pytest.mark.parametrize(("longer", "problems"), [("num-steps-600", []), ("longer", [A + "-num-steps-300"])])
def test_variants_named_by_their_budgets_differ_on_purpose(tmp_path: Path, longer: str, problems: list[str]) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, f"{A}-num-steps-300", (1e-3,))
    tuned(made, f"{A}-{longer}", (1e-3,), budget=600)
    assert [each.variant for each in unequal_in(made)] == problems


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


@pytest.mark.parametrize(
    ("high", "fix"),
    [(1e-2, "set `high: 1e-1` and raise `rates`, now 3"), (1.0, "raise `rates`, now 3: the range has room")],
)
def test_best_at_the_edge_of_what_was_tried(tmp_path: Path, high: float, fix: str) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.51, 5e-3: 0.52})
    edge = searched_in(made, high)["edge"]
    assert (edge.level, edge.fix, edge.learning_rates) == ("problem", fix, ())


def test_a_search_before_its_end_is_missing_rates(tmp_path: Path) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.52, 5e-3: 0.51})
    assert searched_in(made) == {}
    assert searched_in(made, rates=5)["missing"].message == "the search has proposed 3 of 5 learning rates"


def test_rates_to_add_become_more_rates(tmp_path: Path) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.52})
    untuned = searched_in(made, rates=2)["untuned"]
    assert (untuned.fix, untuned.learning_rates) == ("raise `rates`, now 2", ())


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
