from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, trim_mean

from lr_sweep.analysis.report.tables import interval_table
from lr_sweep.analysis.statistics.comparisons.uncertainty import (
    QUARTER,
    Interval,
    _middle,
    _ranks,
    intervals,
    overall,
    resamples,
    selection_interval,
    t_factor,
    t_interval,
    tuned_test_accuracy,
)
from lr_sweep.analysis.statistics.selection.best import Floats, best_learning_rates
from lr_sweep.benchmarks.interval_coverage import NOISES, NUM_SEEDS, SHAPES, coverage
from lr_sweep.tests.support.records import SyntheticRecord, summary_of


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def ends(found: Interval) -> list[float]:
    return [round(found.low, 4), round(found.high, 4)]


@pytest.mark.parametrize(("num_seeds", "factor"), [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262)])
def test_t_factors_are_those_of_printed_tables(num_seeds: int, factor: float) -> None:
    assert t_factor(num_seeds) == pytest.approx(factor, abs=5e-4)


def test_three_seeds_have_ten_resamples() -> None:
    counts, weights = resamples(3, rng())
    found = dict(zip(map(tuple, counts.astype(int).tolist()), (27 * weights).round().tolist(), strict=True))
    # One seed three times: 1 way of 27; one twice and another once: 3 ways; all three: 3! = 6 ways.
    assert len(found) == 10
    assert sum(found.values()) == 27
    assert (found[3, 0, 0], found[0, 2, 1], found[1, 1, 1]) == (1, 3, 6)


def test_many_seeds_are_drawn_and_the_generator_decides() -> None:
    first, again, other = (resamples(8, np.random.default_rng(seed))[0] for seed in (1, 1, 2))
    assert (first == again).all()
    assert not (first == other).all()
    assert (first.sum(axis=1) == 8).all()


@st.composite
def grids(draw: st.DrawFn) -> tuple[Floats, Floats, Floats]:
    """Coarse values, so that ties are common; some missing."""
    num_seeds, num_rates = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    size = num_seeds * num_rates
    value = st.one_of(st.none(), st.integers(0, 3))
    validation = np.array(
        [math.nan if x is None else x / 10 for x in draw(st.lists(value, min_size=size, max_size=size))]
    )
    test = np.where(np.isnan(validation), math.nan, np.arange(size) / 100)
    drawn = draw(st.lists(st.integers(0, num_seeds - 1), min_size=1, max_size=5))
    counts = np.bincount(drawn, minlength=num_seeds).astype(float)
    return validation.reshape(num_seeds, num_rates), test.reshape(num_seeds, num_rates), counts


@settings(max_examples=60, deadline=None)
@given(grids())
def test_the_fast_selection_is_the_plain_selection(grid: tuple[Floats, Floats, Floats]) -> None:
    validation, test, counts = grid
    drawn = np.repeat(np.arange(len(counts)), counts.astype(int))
    rows = [
        {"learning_rate": float(rate), "seed": index, "validation_accuracy": validation[seed, rate], "source": seed}
        for index, seed in enumerate(drawn)
        for rate in range(validation.shape[1])
    ]
    frame = pd.DataFrame(rows).assign(task="t", model="m", variant="v", status="complete")
    rate = best_learning_rates(frame.drop(columns="source"))["learning_rate"].iloc[0]
    found = tuned_test_accuracy(validation, test, counts[None])[0]
    if math.isnan(rate):
        assert math.isnan(found)
    else:
        assert found == pytest.approx(np.nanmean(test[drawn, int(rate)]))


def test_ties_go_to_the_smaller_learning_rate_whatever_the_summation_error() -> None:
    # Both means are 0.2; summed in this order the second is larger in its last bit.
    validation = np.array([[0.2, 0.1], [0.2, 0.2], [0.2, 0.3]])
    test = np.array([[0.5, 0.9]] * 3)
    assert tuned_test_accuracy(validation, test, np.ones((1, 3))).tolist() == [0.5]


@given(st.lists(st.integers(1, 99), min_size=2, max_size=5))
def test_one_learning_rate_gives_the_t_interval_within_0_and_1(percents: list[int]) -> None:
    test = np.array(percents)[:, None] / 100
    fixed, through = t_interval(test[:, 0]), selection_interval(test, test, rng())
    assert [through.low, through.high] == pytest.approx([max(fixed.low, 0), min(fixed.high, 1)], abs=1e-9)


def test_one_learning_rate_and_many_seeds_give_nearly_the_t_interval() -> None:
    test = np.linspace(0.4, 0.6, 10)[:, None]
    fixed, through = t_interval(test[:, 0]), selection_interval(test, test, rng())
    assert through.high - through.low == pytest.approx(fixed.high - fixed.low, rel=0.1)


def test_two_seeds_that_disagree_on_the_learning_rate_by_hand() -> None:
    """Seed 0 prefers the first rate (0.9, 0.4), seed 1 the second (0.5, 0.8); both together the first (0.7, 0.6)."""
    validation = np.array([[0.9, 0.4], [0.5, 0.8]])
    test = np.array([[0.50, 0.40], [0.52, 0.54]])
    # Resamples: (2, 0) with 1/4: first rate, 0.50. (1, 1) with 1/2: first rate, 0.51. (0, 2) with 1/4: second, 0.54.
    # Centre 0.125 + 0.255 + 0.135 = 0.515. Covariance of seed 0's count: 1/4 * 1 * -0.015 + 1/4 * -1 * 0.025 = -0.01,
    # of seed 1's +0.01: variance 0.0002, x 2 / (2 - 1) = 0.0004, error 0.02, x 12.7062 = 0.2541.
    assert ends(selection_interval(validation, test, rng())) == [0.2609, 0.7691]
    # As if the first rate had been fixed: 0.51 ± 12.7062 x 0.01.
    assert ends(t_interval(test[:, 0])) == [0.3829, 0.6371]


def small_record(results: Path) -> SyntheticRecord:
    """Three seeds of one variant, one of another, none of a third, equal ones of a fourth."""
    made = SyntheticRecord(results)
    for seed, test in enumerate((0.5, 0.6, 0.7)):
        made.add(1e-4, seed, [(300, 0.3, 0.2)])
        made.add(1e-3, seed, [(300, 0.8, test)])
        made.add(1e-2, seed, [(300, 0.1, 0.1)])
        made.want(1e-3, seed, variant="unfrozen-random")
        made.add(1e-3, seed, [(300, 0.8, 0.5)], variant="unfrozen-pretrained")
    made.add(1e-3, 0, [(300, 0.8, 0.75)], variant="frozen-pretrained")
    made.want(1e-3, 1, variant="frozen-pretrained")
    return made


def test_cells_get_their_intervals_or_the_reason(tmp_path: Path) -> None:
    numbers = intervals(summary_of(small_record(tmp_path).write()), rng())
    found = numbers.set_index("variant")
    three, one, none = (found.loc[name] for name in ("frozen-random", "frozen-pretrained", "unfrozen-random"))
    # The choice is never in doubt, so both are 0.6 ± 4.3027 x 0.1 / sqrt(3).
    assert [round(three[x], 4) for x in ("low", "high", "t_low", "t_high")] == [0.3516, 0.8484] * 2
    assert three["note"] == ""
    assert found.loc[["frozen-pretrained", "unfrozen-random"], ["low", "high", "t_low", "t_high"]].isna().all(axis=None)
    assert one["note"] == "one seed: no interval; runs missing or failed, all of this may change"
    assert none["note"].startswith("no value: no interval")
    assert found.loc["unfrozen-pretrained", "note"] == "no spread between seeds"
    rows = {row[2]: row[3:] for row in interval_table(numbers).rows}
    assert rows["frozen-pretrained"][:5] == ("1e-3", "1 of 2", "75.0", "–", "–")
    assert rows["unfrozen-random"][:5] == ("–", "0 of 3", "–", "–", "–")


def test_a_simulated_grid_without_noise_is_always_covered() -> None:
    found = coverage(SHAPES["peak"], (0.5, 0.0, 0.0), 3, 50, seed=0)
    # Seeds shift all rates alike: the choice is certain and both intervals are the same.
    assert found.t == found.selection
    assert found.width_t == pytest.approx(found.width_selection)


@pytest.mark.slow
@pytest.mark.parametrize("num_seeds", NUM_SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_through_selection_covers_and_the_sem_does_not(shape: str, num_seeds: int) -> None:
    found = coverage(SHAPES[shape], NOISES["1.2"], num_seeds, 2000, seed=0)
    assert found.selection == pytest.approx(95, abs=2)
    assert num_seeds == 10 or found.sem < 93
    assert num_seeds == 10 or found.percentile < 93


TESTS = {
    ("mnist", "a"): (0.9, 0.9),
    ("mnist", "b"): (0.8, 0.6),
    ("cifar10", "a"): (0.4, 0.4),
    ("cifar10", "b"): (0.5, 0.7),
    ("listops", "a"): (0.6, 0.6),
    ("listops", "b"): (0.1, 0.1),
}


def two_variants(folder: Path) -> Path:
    made = SyntheticRecord(folder)
    for (task, variant), tests in TESTS.items():
        for seed, test in enumerate(tests):
            made.add(1e-3, seed, [(300, 0.5, test)], task=task, variant=variant)
    made.add(1e-3, 0, [(300, 0.5, 0.5)], task="mnist", variant="c")  # without a value on the others
    return made.write()


def test_ranks_and_interquartile_means(tmp_path: Path) -> None:
    """a is first, second, first. Of its six values 0.4, 0.4, 0.6, 0.6, 0.9, 0.9 the middle four average 0.625."""
    found = overall(summary_of(two_variants(tmp_path)), np.random.default_rng(0)).set_index("variant")
    assert list(found.index) == ["a", "b"]
    assert found["mean_rank"].tolist() == pytest.approx([4 / 3, 5 / 3])
    assert found.loc["a", ["rank_low", "rank_high"]].tolist() == pytest.approx([4 / 3, 4 / 3])  # no draw changes it
    assert found["iqm"].tolist() == pytest.approx([(0.4 + 0.6 + 0.6 + 0.9) / 4, (0.1 + 0.5 + 0.6 + 0.7) / 4])
    assert found.loc["b", "iqm_low"] < found.loc["b", "iqm"] < found.loc["b", "iqm_high"]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 12])
def test_ranks_and_middles_are_those_of_scipy(number: int) -> None:
    values = np.random.default_rng(0).integers(0, 5, (6, 3, number)).astype(float)
    assert np.array_equal(_ranks(values), rankdata(values, axis=0))
    assert np.allclose(_middle(values), trim_mean(values, QUARTER, axis=-1))
