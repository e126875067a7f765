from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import nct, t

from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.comparisons.power import findable_difference
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord, add_fresh, summary_of

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
    # Both variances 1e-4: error sqrt(2e-4 / 3) = 0.0081650 with 4 degrees of freedom, x 3.4954 (0.05 / 2) = 0.028540.
    row = found.loc["mnist"]
    assert (row["variant"], row["other"], row["num_seeds"], row["num_other_seeds"]) == ("a", "b", 3, 3)
    assert [row["difference"], row["low"], row["high"]] == pytest.approx([0.11, 0.081460, 0.138540], abs=1e-6)
    # Two pairs in the study: the smaller p twice, the other, of no difference, is 1.
    assert found["corrected_p"].tolist() == pytest.approx([2 * row["p"], 1.0])
    assert found["distinguishable"].tolist() == [True, False]


def test_variants_are_compared_at_their_own_learning_rates(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-4, seed, [(300, 0.9, 0.30)], variant="a")
        made.add(1e-3, seed, [(300, 0.1, 0.99)], variant="a")
        made.add(1e-4, seed, [(300, 0.1, 0.99)], variant="b")
        made.add(1e-3, seed, [(300, 0.9, 0.20)], variant="b")
    found = comparisons(summary_of(made.write()))
    assert found["difference"].tolist() == [pytest.approx(0.1)]


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
    assert found.loc[("a", "b"), "note"] == "fewer than 3 seeds: not tested"
    assert found.loc[("a", "c"), "note"] == "fewer than 3 seeds: not tested"
    assert found.loc[("a", "c"), "difference"] == pytest.approx(0.2666667)
    assert found.loc[("a", "d"), "note"] == "a variant without a value"
    assert found.loc[("e", "f"), "note"] == "no spread between seeds: no interval, p by ranks"
    assert found.loc[("e", "f"), "p"] == pytest.approx(2 / 20)
    assert found.loc[("e", "f"), ["low", "high", "findable"]].isna().all()
    lost = found.loc[[("a", "c"), ("a", "d")]]
    assert lost[["low", "high", "p", "corrected_p", "findable"]].isna().all(axis=None)
    assert not lost["distinguishable"].any()


def test_the_report_has_the_pairs_of_all_tasks_the_same_each_time(tmp_path: Path) -> None:
    values = [0.50, 0.52, 0.54, 0.51, 0.57, 0.53]
    tests = {(task, v): each for task in ("mnist", "cifar10") for v, each in (("a", values), ("b", values[::-1]))}
    compared(tmp_path, tests)
    folder = write_report(tmp_path, "small").folder
    files = ("report.md", "cells.csv", "comparisons.csv")
    before = [(folder / name).read_bytes() for name in files]
    page = before[0].decode().partition("## Every pair")[2]
    assert "**Variants compared.**" in page
    assert [len(pd.read_csv(folder / name)) for name in files[1:]] == [4, 2]
    write_report(tmp_path, "small")
    assert [(folder / name).read_bytes() for name in files] == before


def test_a_pair_is_equal_where_both_one_sided_tests_say_so(tmp_path: Path) -> None:
    """Means 0.615 and 0.61, standard error 0.0081650 of 4 degrees of freedom: within 0.05 at t = 5.5, 0.01 at 0.6."""
    summary = compared(tmp_path, {("mnist", "a"): [0.605, 0.615, 0.625], ("mnist", "b"): [0.60, 0.61, 0.62]})
    found = {within: comparisons(replace(summary, equal_within=within)).iloc[0] for within in (0.01, 0.05)}
    assert [bool(row["equal"]) for row in found.values()] == [False, True]


@pytest.mark.parametrize("dof", [4.0, 30.0])
def test_the_findable_difference_is_found_in_80_percent_of_studies(dof: float) -> None:
    """Beside scipy's noncentral t; the other tail adds nearly nothing."""
    found = float(findable_difference(np.array(2.0), np.array(dof), np.array(0.05)))
    assert nct.sf(t.isf(0.025, dof), dof, found / 2.0) == pytest.approx(0.8)


def test_on_fresh_seeds_the_runs_that_chose_do_not_count(tmp_path: Path) -> None:
    """Seeds 0 and 1 chose 1e-3; the fresh ones there have other values. A fresh one at another rate is left out."""
    made = SyntheticRecord(tmp_path)
    for variant, mean in (("a", 0.72), ("b", 0.60)):
        for seed in (0, 1):
            made.add(1e-3, seed, [(300, 0.9, 0.1)], variant=variant)
            made.add(1e-2, seed, [(300, 0.05, 0.05)], variant=variant)
        add_fresh(made, 1e-3, variant, [mean - 0.01, mean, mean + 0.01, mean])
        add_fresh(made, 1e-2, variant, [0.2])
    summary = summary_of(made.write(fresh={"max": 4}))
    (row,) = comparisons(summary).to_dict("records")
    assert (row["num_seeds"], row["difference"]) == (4, pytest.approx(0.12))
    cell = summary.cells.iloc[0]
    assert (cell["test_mean"], cell["num_tests"], cell["num_seeds"]) == (pytest.approx(0.72), 4, 4)
    assert cell["validation_mean"] == pytest.approx(0.9)
