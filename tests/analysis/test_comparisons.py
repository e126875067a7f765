from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.report.further_tables import comparison_table
from lr_sweep.analysis.statistics.aggregate import StudySummary
from lr_sweep.analysis.statistics.comparisons import (
    comparisons,
    holm,
    sign_flip_p,
    smallest_p,
)
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

PERCENTS = st.lists(st.integers(-5, 5), min_size=1, max_size=6)


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


def test_p_by_hand() -> None:
    # Sums of +-1 +-2 +-3: |6| twice of 8 flips.
    assert sign_flip_p(np.array([0.01, 0.02, 0.03])) == 0.25
    # Observed -1 + 2 + 3 = 4: |6| and |4| twice each.
    assert sign_flip_p(np.array([-0.01, 0.02, 0.03])) == 0.5
    # Observed 0: every flip is as far.
    assert sign_flip_p(np.array([-0.01, 0.01])) == 1.0


@given(PERCENTS)
def test_p_is_the_share_of_all_flips(percents: list[int]) -> None:
    flips = list(product((-1, 1), repeat=len(percents)))
    sums = [abs(sum(s * x for s, x in zip(signs, percents, strict=True))) for signs in flips]
    expected = sum(total >= abs(sum(percents)) for total in sums) / len(flips)
    assert sign_flip_p(np.array(percents) / 100) == expected
    assert expected >= smallest_p(len(percents))


@pytest.mark.parametrize(("num_pairs", "p"), [(1, 1.0), (2, 0.5), (3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_smallest_p_by_hand(num_pairs: int, p: float) -> None:
    assert smallest_p(num_pairs) == p
    assert sign_flip_p(np.full(num_pairs, 0.1)) == p


@pytest.mark.parametrize("number", [0, 21])
def test_p_is_refused_for_no_or_too_many_differences(number: int) -> None:
    with pytest.raises(AssertionError, match=f"got {number} differences"):
        sign_flip_p(np.ones(number))


def test_holm_by_hand() -> None:
    # Ordered 0.01, 0.02, 0.04: x 3 = 0.03, x 2 = 0.04, x 1 = 0.04 (never below the one before); NaN does not count.
    found = holm(np.array([0.04, 0.01, math.nan, 0.02]))
    assert found == pytest.approx([0.04, 0.03, math.nan, 0.04], nan_ok=True)
    # 0.03 x 2 = 0.06; 0.04 x 1 = 0.04 is raised to 0.06. No more than 1.
    assert holm(np.array([0.03, 0.04])) == pytest.approx([0.06, 0.06])
    assert holm(np.array([0.9, 0.8])) == pytest.approx([1.0, 1.0])


def test_variants_are_compared_by_seed(tmp_path: Path) -> None:
    better, worse = [0.61, 0.72, 0.83], [0.60, 0.70, 0.80]
    tests = {("mnist", "a"): better, ("mnist", "b"): worse, ("cifar10", "a"): worse, ("cifar10", "b"): better[::-1]}
    found = comparisons(compared(tmp_path, tests)).set_index("task")
    # Differences 1, 2, 3 points: mean 2, sd 1, SEM 0.57735, x 4.30265 = 2.4841.
    row = found.loc["mnist"]
    assert (row["variant"], row["other"], row["num_pairs"]) == ("a", "b", 3)
    assert [row["difference"], row["low"], row["high"]] == pytest.approx([0.02, -0.004841, 0.044841], abs=1e-6)
    # cifar10: -0.23, -0.02, +0.19: sum -0.06. Flips with |sum| >= 6: 44, 40, 6, 2 -> 3 of 4, both signs.
    # Holm over the two tasks: 0.25 x 2 = 0.5, then 0.75.
    assert found["p"].to_dict() == {"mnist": 0.25, "cifar10": 0.75}
    assert found["holm_p"].to_dict() == {"mnist": 0.5, "cifar10": 0.75}
    assert found["smallest_p"].tolist() == [0.25, 0.25]


def test_variants_are_compared_at_their_own_learning_rates(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-4, seed, [(300, 0.9, 0.30)], variant="a")
        made.add(1e-3, seed, [(300, 0.1, 0.99)], variant="a")
        made.add(1e-4, seed, [(300, 0.1, 0.99)], variant="b")
        made.add(1e-3, seed, [(300, 0.9, 0.20)], variant="b")
    found = comparisons(summary_of(made.write()))
    assert found["difference"].tolist() == [pytest.approx(0.1)]


def test_only_seeds_of_both_count_and_what_is_missing_is_said(tmp_path: Path) -> None:
    tests: dict[tuple[str, str], Sequence[float | None]] = {
        ("mnist", "a"): [0.5, 0.6, 0.9],
        ("mnist", "b"): [0.4, 0.4, None],
        ("mnist", "c"): [0.4, None, None],
        ("mnist", "d"): [None, None, None],
    }
    found = comparisons(compared(tmp_path, tests)).set_index(["variant", "other"])
    assert found.loc[("a", "b"), "difference"] == pytest.approx(0.15)
    assert found.loc[("a", "b"), "note"] == "2 of 3 seeds have both"
    assert found.loc[("a", "c"), "note"] == "one seed: no interval, no p"
    assert found.loc[("a", "c"), "difference"] == pytest.approx(0.1)
    assert found.loc[("a", "d"), "note"] == "no seed where both have a value"
    assert found.loc[[("a", "c"), ("a", "d")], ["low", "high", "p", "smallest_p", "holm_p"]].isna().all(axis=None)


def test_equal_differences_are_said_to_have_no_spread(tmp_path: Path) -> None:
    found = comparisons(compared(tmp_path, {("mnist", "a"): [0.5, 0.6], ("mnist", "b"): [0.4, 0.5]}))
    assert found["note"].tolist() == ["no spread between seeds"]


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


def test_one_variant_has_nothing_to_compare(tmp_path: Path) -> None:
    found = comparisons(compared(tmp_path, {("mnist", "a"): [0.5, 0.6]}))
    assert found.empty
    assert comparison_table(found).rows == ()


def test_the_table_prints_the_smallest_p_beside_every_p(tmp_path: Path) -> None:
    tests = {("mnist", "a"): [0.61, 0.72, 0.83], ("mnist", "b"): [0.60, 0.70, 0.80], ("cifar10", "a"): [0.5]}
    table = comparison_table(comparisons(compared(tmp_path, tests)))
    assert table.rows == (("mnist", "gpt2", "a − b", "3", "+2.0", "[-0.5, 4.5]", "0.25", "0.25", "0.25", ""),)
    assert table.header[6:8] == ("p", "smallest p")
