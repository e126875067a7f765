"""Checks of a cell's learning rates, one synthetic cell each; every number in a message is worked out here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.synthetic import all_diverged, by_check, found_in, grid, of_check


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
