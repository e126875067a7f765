"""The optimum of a curve, against parabolas whose tops are known, and how often its interval holds."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lr_sweep.analysis.statistics.rates.optimum import is_lopsided, optima, optimum
from lr_sweep.analysis.statistics.rates.refinement import Curve
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.benchmarks.law_simulation import SHAPES, Grid, covered
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

NAN = math.nan


def curve(log_rates: Floats, means: Floats, deviation: float = 0.01, seeds: int = 3) -> Curve:
    size = len(log_rates)
    variances = np.full(size, deviation**2 if seeds > 1 else NAN)
    return Curve(np.asarray(log_rates, float), np.asarray(means, float), variances, np.full(size, seeds))


HALF_DECADES = np.arange(-4, 0.1, 0.5)


def test_the_top_of_a_parabola() -> None:
    """Without noise, what other exponents than 2 would give is left: half of the distance between rates."""
    found = optimum(curve(HALF_DECADES, 80 - 8 * (HALF_DECADES + 2.3) ** 2))
    assert found.at == pytest.approx(-2.3, abs=0.025)
    assert HALF_DECADES[0] < found.low < -2.3 < found.high < HALF_DECADES[-1]
    assert found.high - found.low < 0.3
    assert not found.note
    assert found.error == pytest.approx(0.24 * max(found.high - found.at, found.at - found.low))


def test_two_sides_may_bend_differently_and_a_cliff_is_not_fitted() -> None:
    """The rate beyond the cliff would draw a parabola to the left; it only ends the interval."""
    away = HALF_DECADES + 2.2
    bent = optimum(curve(HALF_DECADES, 80 - np.where(away < 0, 5, 20) * away**2))
    assert bent.at == pytest.approx(-2.2, abs=0.02)
    cut_off = optimum(curve(HALF_DECADES, np.where(HALF_DECADES > -1, 10, 80 - 5 * (HALF_DECADES + 2.1) ** 2)))
    assert cut_off.at == pytest.approx(-2.1, abs=0.05)
    assert cut_off.high <= -1


def test_values_at_the_edge_of_floating_point_have_an_optimum() -> None:
    """Rounding left the misfit of a bend that explains all minus infinity."""
    means = np.array([np.nan, np.nan, 7.37250874e-301, 7.39698613e-301, 5.33968266e-301])
    variances = np.array([np.nan, np.nan, 0.0, np.nan, np.nan])
    found = optimum(Curve(np.arange(-4.0, 1.0), means, variances, np.array([0, 0, 2, 1, 1])))
    assert -2 <= found.at <= 0


@pytest.mark.parametrize("unit", [1e-9, 1e9])
@pytest.mark.parametrize("deviation", [0.01, 0.0])
def test_the_unit_of_the_means_moves_no_optimum(unit: float, deviation: float) -> None:
    x = np.arange(-4, 0.1, 0.5)
    y = 80 - np.where(x < -2.2, 5, 20) * (x + 2.2) ** 2
    one, other = optimum(curve(x, y, deviation)), optimum(curve(x, unit * y, unit * deviation))
    assert other[:3] == pytest.approx(one[:3], abs=0.02)
    assert other.note == one.note


@pytest.mark.parametrize(
    ("means", "at"),
    [
        ([1, 3, 2], -2 + 1 / 6),  # by hand: slope 0.5, bend -1.5; the top is at 0.5 / 3
        ([0, 1, 3, 2], -1 + 1 / 6),
        ([2, 3, 2, 0], -2),
    ],
)
def test_of_three_and_four_rates_the_parabola_through_three(means: list[float], at: float) -> None:
    found = optimum(curve(np.arange(-3.0, -3.0 + len(means)), np.array(means)))
    assert found.at == pytest.approx(at)
    assert "too few" in found.note
    assert len(means) > 3 or (found.low, found.high) == pytest.approx((-3, -1))  # all between the worse ones


@pytest.mark.parametrize(
    ("means", "lopsided"),
    [
        ([60, 70, 76, 79, 80, 76, 70], False),  # two steps below 80 it is 76, one step above it: as a parabola
        ([60, 70, 76, 79, 80, 67, 10], True),  # 13 is more than 3 times 4
        ([60, 70, 76, 79, 80, 70, 10], True),  # 10 is not, but 70 is more than 3 times 10, the third one below
        ([10, 67, 80, 79, 76, 70, 60], True),  # the other way round
        ([60, 70, 76, 79, 80, NAN, NAN], True),
        ([NAN, 79, 80, NAN, NAN], False),  # the same on both sides
        ([79, 80, 75], False),  # 5 is less than 3 times 2, which a line falls by in two steps
        ([80 - 0.01, 80, 80 - 0.02], False),  # all are within the noise
    ],
)
def test_a_curve_is_lopsided(means: list[float], lopsided: bool) -> None:
    assert is_lopsided(curve(np.arange(float(len(means))), np.array(means), 0.02)) == lopsided


def test_beside_a_cliff_the_optimum_is_between_the_worse_rates() -> None:
    """1 decade to each side, as both neighbours are worse by more than the noise; it is anywhere within a step."""
    found = optimum(curve(np.arange(-5.0, 2), np.array([60, 70, 76, 79, 80, 40, 30])))
    assert (found.low, found.at, found.high) == (-2, -1, 0)
    assert found.error == pytest.approx(1 / math.sqrt(12))
    assert found.note == "the fit does not hold: between worse rates"


def test_rates_where_runs_explode_say_nothing_of_the_noise() -> None:
    """Half of the runs' losses at the two largest rates are thousands: the others still have an optimum."""
    x, calm = np.arange(-4.0, 1.0), curve(np.arange(-4.0, 1.0), np.array([-2.6, -2.2, -2.0, -1500, -1700]))
    found = optimum(calm._replace(variances=np.where(x > -2, 1e6, calm.variances)))
    assert (found.low, found.high) == pytest.approx((-3, -1))


@pytest.mark.parametrize(
    ("means", "note"),
    [
        ([1, 2, 3, 4, 5], "the best learning rate is at the edge of those tried"),
        ([NAN, 2, 3, NAN, NAN], "fewer than three learning rates with a value"),
    ],
)
def test_where_there_is_none(means: list[float], note: str) -> None:
    found = optimum(curve(np.arange(-5.0, 0.0), np.array(means)))
    assert math.isnan(found.at)
    assert found.note == note


def test_a_diverged_rate_is_no_edge() -> None:
    found = optimum(curve(np.arange(-4, -1.4, 0.5), np.array([60, 70, 76, 79, 80, NAN])))
    assert -2.5 <= found.at <= -1.5
    assert found.high == -1.5


def test_one_seed_has_the_top_of_a_parabola_and_no_interval() -> None:
    found = optimum(curve(HALF_DECADES, 80 - 8 * (HALF_DECADES + 2.3) ** 2, seeds=1))
    assert found.at == pytest.approx(-2.3)
    assert math.isnan(found.low)
    assert found.error == pytest.approx(0.5 / math.sqrt(12))  # of a place within a step


@pytest.mark.slow  # hundreds of simulated curves
def test_intervals_hold() -> None:
    """95% is the aim over all curves and grids; a steep side hidden by noise has less."""
    settings = list(product(SHAPES, (0.5, 2.0), (1 / 3, 1 / 2)))
    shares = [
        covered(Grid(step * np.arange(-3.0, 4), noise), shape, 100, np.random.default_rng(0))
        for shape, noise, step in settings
    ]
    held = pd.Series(shares, [shape for shape, _, _ in settings])
    least = held.groupby(level=0).min()
    assert 0.93 <= held.mean() <= 0.98
    assert least.pop("10 times as fast") >= 0.8
    assert (least >= 0.9).all(), least


def test_of_a_record(tmp_path: Path) -> None:
    """By hand: means 0.5, 0.7, 0.6 with an SEM of 0.02."""
    made = SyntheticRecord(tmp_path)
    for rate, value in ((1e-3, 0.5), (1e-2, 0.7), (1e-1, 0.6)):
        for seed, shift in enumerate((-0.02, 0.02)):
            made.add(rate, seed, [(300, value + shift, value)])
    (row,) = optima(summary_of(made.write())).to_dict("records")
    assert row["optimum"] == pytest.approx(10 ** (-2 + 1 / 6))
    assert row["error"] == pytest.approx(0.37 * (1 + 1 / 6))  # the interval is cut off at both ends
