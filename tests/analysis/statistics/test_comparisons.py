from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lr_sweep.analysis.report.further_tables import comparison_table
from lr_sweep.analysis.statistics.aggregate import StudySummary
from lr_sweep.analysis.statistics.comparisons import LEVEL, compare, comparisons, holm, welch
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

pytestmark = pytest.mark.usefixtures("undrawn")

VALUES = st.lists(st.integers(0, 100).map(lambda percent: percent / 100), min_size=2, max_size=6)


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


def test_values_of_any_size_that_is_read_have_an_interval() -> None:
    sem, dof = welch(np.array([1.0, 3.0]), np.array([2.0, 4.0]))
    large = welch(np.array([1e99, 3e99]), np.array([2e99, 4e99]))
    assert large == pytest.approx((sem * 1e99, dof))
    assert (sem, dof) == pytest.approx((math.sqrt(2), 2.0))  # variances 2 and 2, two seeds each


def test_holm_by_hand() -> None:
    # Ordered 0.01, 0.02, 0.04: x 3 = 0.03, x 2 = 0.04, x 1 = 0.04 (never below the one before); NaN does not count.
    found = holm(np.array([0.04, 0.01, math.nan, 0.02]))
    assert found == pytest.approx([0.04, 0.03, math.nan, 0.04], nan_ok=True)
    # 0.03 x 2 = 0.06; 0.04 x 1 = 0.04 is raised to 0.06. No more than 1.
    assert holm(np.array([0.03, 0.04])) == pytest.approx([0.06, 0.06])
    assert holm(np.array([0.9, 0.8])) == pytest.approx([1.0, 1.0])


@given(VALUES, VALUES, st.floats(-1, 1))
def test_welch_is_that_of_scipy(ones: list[float], others: list[float], shift: float) -> None:
    sem, dof = welch(np.array(ones), np.array(others) + shift)
    if not sem > 1e-6:  # without a spread SciPy warns of lost digits
        return
    expected = stats.ttest_ind(ones, np.array(others) + shift, equal_var=False)
    assert dof == pytest.approx(expected.df)
    assert compare(np.array(ones), np.array(others) + shift)["p"] == pytest.approx(expected.pvalue)


def test_variants_are_compared_over_the_whole_study(tmp_path: Path) -> None:
    better, worse = [0.71, 0.72, 0.73], [0.60, 0.61, 0.62]
    tests = {("mnist", "a"): better, ("mnist", "b"): worse, ("cifar10", "a"): worse, ("cifar10", "b"): worse}
    found = comparisons(compared(tmp_path, tests)).set_index("task")
    # Both variances 1e-4: error sqrt(2e-4 / 3) = 0.0081650 with 4 degrees of freedom, x 2.7764 = 0.022669.
    row = found.loc["mnist"]
    assert (row["variant"], row["other"], row["num_seeds"], row["num_other_seeds"]) == ("a", "b", 3, 3)
    assert [row["difference"], row["low"], row["high"]] == pytest.approx([0.11, 0.087331, 0.132669], abs=1e-6)
    # Two pairs in the study: the smaller p twice, the other, of no difference, is 1.
    assert found["holm_p"].tolist() == pytest.approx([2 * row["p"], 1.0])
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


def test_what_weakens_a_comparison_is_said(tmp_path: Path) -> None:
    tests: dict[tuple[str, str], Sequence[float | None]] = {
        ("mnist", "a"): [0.5, 0.6, 0.9],
        ("mnist", "b"): [0.4, 0.5, None],
        ("mnist", "c"): [0.4, None, None],
        ("mnist", "d"): [None, None, None],
        ("cifar10", "e"): [0.5, 0.5],
        ("cifar10", "f"): [0.4, 0.4],
    }
    found = comparisons(compared(tmp_path, tests)).set_index(["variant", "other"])
    assert found.loc[("a", "b"), "difference"] == pytest.approx(0.2166667)
    assert found.loc[("a", "b"), "note"] == "two seeds: their noise is hardly known"
    assert found.loc[("a", "c"), "note"] == "one seed: no interval, no p"
    assert found.loc[("a", "c"), "difference"] == pytest.approx(0.2666667)
    assert found.loc[("a", "d"), "note"] == "a variant without a value"
    assert found.loc[("e", "f"), "note"] == "no spread between seeds: no interval, no p"
    lost = found.loc[[("a", "c"), ("a", "d"), ("e", "f")]]
    assert lost[["low", "high", "p", "holm_p"]].isna().all(axis=None)
    assert not lost["distinguishable"].any()


def test_the_report_has_both_tables_the_same_each_time(tmp_path: Path) -> None:
    values = [0.50, 0.52, 0.54, 0.51, 0.57, 0.53]  # six seeds: resamples are drawn
    compared(tmp_path, {("mnist", "a"): values, ("mnist", "b"): values[::-1]})
    folder = write_report(tmp_path, "small").folder
    files = ("report.md", "intervals.csv", "comparisons.csv")
    before = [(folder / name).read_bytes() for name in files]
    page = before[0].decode().partition("## How sure")[2]
    assert page.index("**Test accuracy with intervals.**") < page.index("**Variants compared.**")
    assert [len(pd.read_csv(folder / name)) for name in files[1:]] == [2, 1]
    write_report(tmp_path, "small")
    assert [(folder / name).read_bytes() for name in files] == before


def test_the_table_names_its_family(tmp_path: Path) -> None:
    tests = {("mnist", "a"): [0.71, 0.72, 0.73], ("mnist", "b"): [0.60, 0.61, 0.62], ("cifar10", "a"): [0.5]}
    table = comparison_table(comparisons(compared(tmp_path, tests)))
    assert len(table.rows) == 1  # one variant has nothing to compare
    assert "the one pair of the study" in table.caption


@pytest.mark.parametrize("num_tasks", [1, 4])
@pytest.mark.parametrize("num_seeds", [2, 3, 10])
@pytest.mark.parametrize("sds", [(1, 1, 1, 1), (0.5, 1, 1, 2)], ids=["equal noise", "unequal noise"])
def test_equal_variants_are_seldom_distinguished(num_tasks: int, num_seeds: int, sds: tuple[float, ...]) -> None:
    """Four equal variants: below 6% of the studies may name any pair; 600 of them, so 3 standard errors are 2.9%."""
    tests = np.random.default_rng(0).normal(size=(600, num_tasks, 4, num_seeds)) * np.array(sds)[:, None]
    claims = 0
    for study in tests:
        pairs = [(one, other) for task in study for one, other in combinations(task, 2)]
        claims += holm(np.array([compare(*pair)["p"] for pair in pairs])).min() < LEVEL
    assert claims / len(tests) < 0.06 + 0.029 / 3
