from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import nct, t

from lr_sweep.analysis.statistics.comparisons.noise import Noise
from lr_sweep.analysis.statistics.comparisons.pairs import (
    choice_luck,
    comparisons,
    further_seeds,
    superiority,
    without_luck,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

pytestmark = pytest.mark.usefixtures("undrawn")


def compared(results: Path, tests: dict[tuple[str, str], Sequence[float | None]]) -> StudySummary:
    """A record of one learning rate; None: a wanted run that was never trained."""
    made = SyntheticRecord(results)
    for (task, variant), values in tests.items():
        for seed, test in enumerate(values):
            if test is None:
                made.want(1e-3, seed, task=task, variant=variant)
            else:
                made.add(1e-3, seed, [(300, 0.5, test)], task=task, variant=variant)
    return summary_of(made.write())


def test_variants_are_compared_over_the_whole_study(tmp_path: Path) -> None:
    better, worse = [0.71, 0.72, 0.73], [0.60, 0.61, 0.62]
    tests = {("mnist", "a"): better, ("mnist", "b"): worse, ("cifar10", "a"): worse, ("cifar10", "b"): worse}
    found = comparisons(compared(tmp_path, tests)).set_index("task")
    # Both variances 1e-4: error sqrt(2e-4 / 3) = 0.0081650 with 4 degrees of freedom, x 2.7764 = 0.022669.
    row = found.loc["mnist"]
    assert (row["variant"], row["other"], row["num_seeds"], row["num_other_seeds"]) == ("a", "b", 3, 3)
    assert [row["difference"], row["low"], row["high"]] == pytest.approx([0.11, 0.087331, 0.132669], abs=1e-6)
    assert row["effect_size"] == pytest.approx(11)  # of standard deviations of 0.01
    assert row["superiority"] == 1.0
    # Two pairs in the study: the smaller p twice, the other, of no difference, is 1.
    assert found["corrected_p"].tolist() == pytest.approx([2 * row["p"], 1.0])
    assert found["distinguishable"].tolist() == [True, False]
    assert found.loc["cifar10", "note"] == "noise larger than the difference"


def test_variants_are_compared_at_their_own_learning_rates(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-4, seed, [(300, 0.9, 0.30)], variant="a")
        made.add(1e-3, seed, [(300, 0.1, 0.99)], variant="a")
        made.add(1e-4, seed, [(300, 0.1, 0.99)], variant="b")
        made.add(1e-3, seed, [(300, 0.9, 0.20)], variant="b")
    found = comparisons(summary_of(made.write()))
    assert found["difference"].tolist() == [pytest.approx(0.1)]


def test_the_luck_of_the_choice_is_what_the_best_of_equal_rates_has() -> None:
    """Standard errors 1; within 3 sqrt(2) = 4.24 of the best are one, two and three rates: 0, 0.59 and 0.87 of luck."""
    behind = np.array([[0.0, 4.3, 9.0], [0.0, 4.2, math.nan], [0.0, 0.1, 4.2]])
    luck = choice_luck(behind, Noise(np.full(3, 4.0), np.full(3, 6.0)), np.full(3, 4.0))
    assert luck == pytest.approx([0.0, 0.5895, 0.8694], abs=1e-4)
    first, second = np.array([0, 0, 1, 1]), np.array([1, 2, 2, 2])
    lead = without_luck(np.array([1.0, -1.0, -0.1, 0.1]), luck, first, second)
    # The first leads without luck; the second cell's lead is luck for 0.8694; the third pair's lead is all luck.
    assert lead == pytest.approx([1.0, 1.0 - 0.8694, 0.0, 0.1], abs=1e-4)


def test_a_noisy_variant_on_a_flat_top_has_to_lead_by_more(tmp_path: Path) -> None:
    """The noisy variant's best of five equal rates is 3 points ahead: what five rates have by luck is too near."""
    made = SyntheticRecord(tmp_path)
    bent, rising = (0.01, -0.02, 0.01), (0.01, 0.0, -0.01)
    for rate, noise, ahead in (
        (1e-5, bent, 0),
        (1e-4, rising, 0),
        (1e-3, bent, 0.03),
        (1e-2, rising, 0),
        (0.1, bent, 0),
    ):
        for seed, value in enumerate(noise):
            for variant, test in (("noisy", 0.8 + ahead + value), ("quiet", 0.8 + value / 100)):
                made.add(rate, seed, [(300, test, test)], variant=variant)
    (row,) = comparisons(summary_of(made.write())).to_dict("records")
    assert row["p"] < 0.05 < row["corrected_p"]


def test_a_collapse_at_the_next_rate_does_not_widen_the_interval(tmp_path: Path) -> None:
    """Standard deviations are 0.01 at 1e-3; at 1e-2 two of five runs lose 0.7."""
    made = SyntheticRecord(tmp_path)
    for variant, best in (("a", 0.9), ("b", 0.77)):
        for seed, noise in enumerate((-0.01, -0.01, 0.0, 0.01, 0.01)):
            for rate, value in ((1e-4, best - 0.4), (1e-3, best), (1e-2, best - 0.03 - 0.7 * (seed in (1, 4)))):
                made.add(rate, seed, [(300, value + noise, value + noise)], variant=variant)
    (row,) = comparisons(summary_of(made.write())).to_dict("records")
    assert row["distinguishable"]
    assert 0.1 < row["low"] < row["difference"] < row["high"] < 0.16


def test_what_weakens_a_comparison_is_said(tmp_path: Path) -> None:
    tests: dict[tuple[str, str], Sequence[float | None]] = {
        ("mnist", "a"): [0.5, 0.6, 0.9],
        ("mnist", "b"): [0.4, 0.5, None],
        ("mnist", "c"): [0.4, None, None],
        ("mnist", "d"): [None, None, None],
        ("cifar10", "e"): [0.5, 0.5, 0.5],
        ("cifar10", "f"): [0.4, 0.4, 0.4],
    }
    found = comparisons(compared(tmp_path, tests)).set_index(["variant", "other"])
    assert found.loc[("a", "b"), "difference"] == pytest.approx(0.2166667)
    assert found.loc[("a", "b"), "note"] == "two seeds: their noise is hardly known"
    assert found.loc[("a", "c"), "note"] == "one seed: no interval, no p"
    assert found.loc[("a", "c"), "difference"] == pytest.approx(0.2666667)
    assert found.loc[("a", "d"), "note"] == "a variant without a value"
    assert found.loc[("e", "f"), "note"] == "no spread between seeds: no interval, p by ranks"
    assert found.loc[("e", "f"), "p"] == pytest.approx(2 / 20)
    assert found.loc[("e", "f"), ["low", "high", "further_seeds"]].isna().all()
    lost = found.loc[[("a", "c"), ("a", "d")]]
    assert lost[["low", "high", "p", "corrected_p", "further_seeds"]].isna().all(axis=None)
    assert not lost["distinguishable"].any()


@pytest.mark.parametrize(("seeds", "p"), [(3, 2 / 20), (5, 2 / 252)])
def test_of_runs_without_any_spread_the_ranks_decide(tmp_path: Path, seeds: int, p: float) -> None:
    """All 5 runs of one are above all 5 of the other in 2 of 252 ways to deal them; nothing says how wide it is."""
    tests = {("mnist", "a"): [1.0] * seeds, ("mnist", "b"): [0.9] * seeds, ("mnist", "c"): [0.9] * seeds}
    found = comparisons(compared(tmp_path, tests)).set_index(["variant", "other"])
    assert found["p"].tolist() == pytest.approx([p, p, math.nan], nan_ok=True)
    assert found["distinguishable"].tolist() == [p < 0.05 / 2] * 2 + [False]
    assert found["low"].isna().all()
    assert found.loc[("b", "c"), "note"] == "no spread between seeds: no interval, no p"


def test_the_report_has_what_is_drawn_at_random_the_same_each_time(tmp_path: Path) -> None:
    values = [0.50, 0.52, 0.54, 0.51, 0.57, 0.53]  # six seeds: resamples are drawn
    tests = {(task, v): each for task in ("mnist", "cifar10") for v, each in (("a", values), ("b", values[::-1]))}
    compared(tmp_path, tests)
    folder = write_report(tmp_path, "small").folder
    files = ("report.md", "intervals.csv", "comparisons.csv", "overall.csv")
    before = [(folder / name).read_bytes() for name in files]
    page = before[0].decode().partition("## How sure")[2]
    titles = ("Test accuracy with intervals", "Variants compared", "Over the tasks")
    assert sorted(titles, key=lambda title: page.index(f"**{title}.**")) == list(titles)
    assert [len(pd.read_csv(folder / name)) for name in files[1:]] == [4, 2, 2]
    write_report(tmp_path, "small")
    assert [(folder / name).read_bytes() for name in files] == before


def test_a_pair_is_equal_where_both_one_sided_tests_say_so(tmp_path: Path) -> None:
    """Means 0.615 and 0.61, standard error 0.0081650 of 4 degrees of freedom: within 0.05 at t = 5.5, 0.01 at 0.6."""
    summary = compared(tmp_path, {("mnist", "a"): [0.605, 0.615, 0.625], ("mnist", "b"): [0.60, 0.61, 0.62]})
    found = {within: comparisons(replace(summary, equal_within=within)).iloc[0] for within in (0.01, 0.05)}
    assert [bool(row["equal"]) for row in found.values()] == [False, True]
    assert found[0.01]["further_seeds"] > 1
    assert math.isnan(found[0.05]["further_seeds"])  # nothing is left to decide


def test_superiority_by_hand() -> None:
    """Of four pairs of runs three are won, and one is a tie; the last cell has no value."""
    values = np.array([[1.0, 2.0], [1.0, 0.0], [math.nan, math.nan]])
    found = superiority(values, np.array([0, 0]), np.array([1, 2]))
    assert found == pytest.approx([3.5 / 4, math.nan], nan_ok=True)


@pytest.mark.parametrize("difference", [1.0, 2.0])
def test_further_seeds_are_the_fewest_with_the_power(difference: float) -> None:
    """Variance 1, 3 seeds each with 2 degrees of freedom: with n each the difference has 2 (n - 1)."""
    found = needed(difference)

    def power(number: float) -> float:
        dof, centre = 2 * (number - 1), difference / math.sqrt(2 / number)
        return float(nct.sf(t.isf(0.025, dof), dof, centre))

    assert power(3 + found - 1) < 0.8 <= power(3 + found)


def test_of_no_difference_there_are_never_enough_and_of_a_large_one_one_more_is() -> None:
    assert [needed(0.0), needed(20.0)] == [math.inf, 1.0]


def needed(difference: float) -> float:
    noise = Noise(np.ones((1, 2)), np.full((1, 2), 2.0))
    return float(further_seeds(np.array([difference]), noise, np.full((1, 2), 3.0), np.array([0.05]))[0])
