"""The sequential test, on values made by hand, which pairs may get another look, and how many seeds that takes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.statistics.comparisons.decide import (
    ENOUGH,
    EQUAL,
    FIRST,
    SECOND,
    SKEWED,
    SPENDING,
    UNDECIDED,
    UNEQUAL,
    Pairs,
    Settings,
    _compared,
    judge_pairs,
    nominal_levels,
    num_failed,
)
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.statistics.comparisons.noise import Noise
from lr_sweep.analysis.statistics.selection.best import Cell, Floats

TWO = Pairs.all_of(["task", "task"])
ONE_DEVIATION = np.array([-1.0, 1.0] * 10) / math.sqrt(20 / 19)


def known(number: int, deviation: float = 1.0) -> Noise:
    return Noise(np.full(number, deviation**2), np.full(number, 6.0))


def fresh(*means: float, seeds: int = 20) -> Floats:
    """Return values of standard deviation 1 around means; the first `seeds` of them are there."""
    values = np.array([mean + ONE_DEVIATION for mean in means])
    values[:, seeds:] = math.nan
    return values


def test_one_look_has_the_whole_error() -> None:
    assert nominal_levels(0.05, 5, 5) == pytest.approx([0.05])


def test_two_looks_have_it_together() -> None:
    """At half of the seeds the correlation of both statistics is sqrt(1 / 2)."""
    first, second = nominal_levels(0.05, 1, 2)
    assert first == pytest.approx(0.05 * 0.5**SPENDING)
    bounds = norm.isf(np.array([first, second]) / 2)
    both = multivariate_normal([0, 0], [[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]])
    assert both.cdf(bounds, lower_limit=-bounds) == pytest.approx(0.95, abs=1e-4)


def changed(values: Floats, cell: int, first_seed: int, shift: float) -> Floats:
    values[cell, first_seed:] += shift
    return values


NOT_KNOWN = Noise(np.full(2, math.nan), np.zeros(2))
LIMIT = Settings(min_difference=1.5)


@pytest.mark.parametrize(
    ("values", "pairs", "settings", "earlier", "outcomes"),
    [
        (fresh(10.0, 0.0, seeds=2), TWO, Settings(), known(2), [FIRST]),
        (fresh(0.0, 10.0, seeds=2), TWO, Settings(), known(2), [SECOND]),
        (fresh(0.0, 0.0, seeds=4), TWO, LIMIT, known(2), [UNDECIDED]),
        (fresh(0.0, 0.0), TWO, LIMIT, known(2), [EQUAL]),
        (fresh(0.0, 0.0), TWO, Settings(), known(2), [UNDECIDED]),  # without a limit none are equal
        (fresh(0.0, 0.0, -20.0, seeds=3), Pairs.all_of("ttt"), Settings(), known(3), [UNDECIDED, FIRST, FIRST]),
        (fresh(0.0, 20.0, 40.0, seeds=2), Pairs.named([(0, 2)]), Settings(), known(3), [SECOND]),
        (changed(fresh(10.0, 0.0), 0, 5, -20.0), TWO, Settings(), known(2), [FIRST]),  # a decision stays
        (changed(fresh(10.0, 0.0), 1, 1, math.nan), TWO, Settings(), known(2), [UNDECIDED]),  # one cell alone: no look
        (fresh(10.0, 0.0), TWO, Settings(), NOT_KNOWN, [FIRST]),
        (fresh(2.0, 0.0, seeds=4), TWO, Settings(), known(2, deviation=0.01), [UNDECIDED]),  # fresh seeds are noisier
        (np.array([[1.0] * 20, [0.0] * 20]), TWO, Settings(), known(2, deviation=0.1), [FIRST]),  # no spread of theirs
        (2.0**40 * np.array([[0.1] * 3, [0.3] * 3]), TWO, Settings(), NOT_KNOWN, [UNDECIDED]),  # spread by rounding
    ],
)
def test_what_is_decided(values: Floats, pairs: Pairs, settings: Settings, earlier: Noise, outcomes: list[int]) -> None:
    assert judge_pairs(values, pairs, settings, earlier).outcome.tolist() == outcomes


def test_how_many_seeds_a_decision_takes() -> None:
    clear = judge_pairs(fresh(10.0, 0.0), TWO, Settings(), known(2))
    assert (clear.num_seeds.tolist(), clear.difference.tolist()) == ([2], pytest.approx([10.0]))
    assert 4 < judge_pairs(fresh(0.0, 0.0), TWO, LIMIT, known(2)).num_seeds[0] < 20
    assert judge_pairs(fresh(10.0, 0.0), TWO, Settings(), NOT_KNOWN).num_seeds[0] > 2


@pytest.mark.parametrize(
    ("noisy", "caution"),
    [
        ([11.0, 11.0, 11.0, 7.0], 1 + UNEQUAL + SKEWED / math.sqrt(3)),  # skewness -2 / sqrt(3), of the other one 0
        ([-9.0, -9.0, -9.0, -13.0], 1 + UNEQUAL),  # what is missing would make the difference larger
    ],
)
def test_unequal_and_skewed_noise_by_hand(noisy: list[float], caution: float) -> None:
    values = np.array([noisy, [0.0] * 4])
    assert _compared(values, TWO, NOT_KNOWN)[-1].tolist() == pytest.approx([caution])
    assert _compared(fresh(10.0, 0.0), TWO, known(2))[-1].tolist() == pytest.approx([1.0])


def test_failed_runs_by_hand() -> None:
    """Medians are 2, 2 and 10, median deviations 1, 1 and 0; three runs do not show which of them failed."""
    some = np.array(
        [[1, 2, 3, 4, -6.1], [1, 2, 3, 4, -5.9], [10, 10, 10, 9.9, math.nan], [1, 2, -99, math.nan, math.nan]]
    )
    assert num_failed(some, True).tolist() == [1, 0, 1, 0]
    assert num_failed(some, False).tolist() == [1, 0, 0, 0]  # 0.1 is less than 2% of 10
    assert num_failed(some[:, :3], True).tolist() == [0, 0, 0, 0]


def test_a_breakdown_beside_the_chosen_rate_costs_seeds_but_no_decision() -> None:
    """Earlier runs with a hundred times the deviation are contradicted by eight fresh seeds."""
    loud = judge_pairs(fresh(10.0, 0.0), TWO, Settings(), known(2, deviation=100.0))
    assert (loud.outcome.tolist(), loud.num_seeds.tolist()) == ([FIRST], [ENOUGH])
    assert loud.high[0] - loud.low[0] < 1.5


A, B = ("task", "model", "a"), ("task", "model", "b")


def decision(num_values: tuple[int, int], num_used: tuple[int, int], max_seeds: int = 8) -> Decision:
    """Two equal variants of much noise: no look decides them."""
    values = np.full((2, max(num_values)), np.nan)
    for row, number in zip(values, num_values, strict=True):
        row[:number] = np.resize([0.0, 1.0], number)
    nothing = np.zeros(2)
    return Decision(
        cells=(A, B),
        rates=(1e-3, 1e-3),
        values=values,
        num_used=np.array(num_used),
        pairs=Pairs.named([(0, 1)]),
        known=Noise(nothing, nothing, nothing),
        tuned=np.full((2, 3), 0.5),
        settings=Settings(max_seeds=max_seeds),
        metric=ACCURACY,
    )


def test_failures_are_named_with_those_among_the_seeds_that_chose() -> None:
    assert "a variant with 9 runs may still fail in up to 28%" in decision((6, 6), (6, 6)).failures()  # 0.72^9 = 0.05
    found = replace(decision((6, 6), (6, 6)), tuned=np.array([[0.5, 0.5, -20.0], [0.5, 0.5, 0.5]]))
    assert found.failures().startswith("runs far below the others: a 1 of 9, b 0 of 9; ")
    assert found.table()[["num_failed", "num_other_failed"]].values.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("num_values", "num_used", "next_", "next_four"),
    [
        ((0, 0), (0, 0), {A: 2, B: 2}, {A: 4, B: 4}),
        ((3, 3), (3, 3), {A: 1, B: 1}, {A: 4, B: 4}),
        ((5, 3), (5, 3), {B: 1}, {A: 2, B: 4}),
        ((6, 6), (6, 6), {A: 1, B: 1}, {A: 2, B: 2}),
        ((8, 4), (8, 4), {B: 1}, {B: 4}),  # the first has no seed left, and the second can catch up
        ((8, 4), (8, 6), {B: 1}, {B: 2}),  # two runs had no value
        ((8, 4), (8, 8), {}, {}),
        ((6, 6), (8, 6), {}, {}),
        ((8, 8), (8, 8), {}, {}),
    ],
)
def test_the_cell_with_fewer_values_gets_the_next_seeds(
    num_values: tuple[int, int], num_used: tuple[int, int], next_: dict[Cell, int], next_four: dict[Cell, int]
) -> None:
    found = decision(num_values, num_used)
    assert found.next_seeds() == next_
    assert found.next_seeds(4) == next_four
    assert found.outcomes == ["open" if next_ else "undecided"]
