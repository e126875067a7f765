"""Tuning curves and their bands, and steps to a target, by hand and against plain enumeration."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.report.texts import laid_out
from lr_sweep.analysis.statistics.comparisons.noise import CellValues
from lr_sweep.analysis.statistics.rates.tuning import best_weights, expected_bests, half_widths, steps_to_target
from lr_sweep.analysis.study_report import write_report
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

pytestmark = pytest.mark.usefixtures("undrawn")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.data())
def test_the_expectation_is_the_mean_over_all_choices(values: list[float], data: st.DataObject) -> None:
    tried = data.draw(st.integers(1, len(values)))
    subsets = [max(chosen) for chosen in combinations(values, tried)]
    assert np.sort(values) @ best_weights(len(values), tried) == pytest.approx(sum(subsets) / len(subsets))


def test_the_test_value_is_that_of_the_rate_that_validation_chooses(tmp_path: Path) -> None:
    """Validation 0.4, 0.8 with tests 0.9, 0.7: one of them at random, then always the second."""
    made = SyntheticRecord(tmp_path)
    made.add(1e-4, 0, [(300, 0.4, 0.9)])
    made.add(1e-3, 0, [(300, 0.8, 0.7)])
    found = expected_bests(summary_of(made.write()))
    assert list(found["expected"]) == pytest.approx([0.6, 0.8])
    assert list(found["test"]) == pytest.approx([0.8, 0.7])
    assert found["low"].isna().all()  # one seed


@pytest.mark.parametrize("tied", [0.3, 0.1 + 0.2])  # the second is the first but for summation error
def test_of_equal_means_the_smaller_rate_is_chosen(tmp_path: Path, tied: float) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-4, 0, [(300, 0.3, 0.5)])
    made.add(1e-3, 0, [(300, tied, 0.7)])
    assert list(expected_bests(summary_of(made.write()))["test"]) == pytest.approx([0.6, 0.5])


def test_limits_of_all_means_at_once_by_hand() -> None:
    """Two rates, deviations of 0.01 and 0.02, unrelated seeds: each has the pooled variance, or its own if larger."""
    values = np.array([[0.5, 0.51, 0.49], [0.6, 0.58, 0.62]])  # correlated by -1, which counts as 0
    half = half_widths(CellValues(np.array([1e-3, 1e-2]), values))
    factor = t.ppf(1 - 0.05 / 4, 4)
    assert half == pytest.approx(factor * np.sqrt(np.array([(0.01**2 + 0.02**2) / 2, 0.02**2]) / 3), rel=0.3)


FAST = ([(100, 0.5, 0), (200, 0.8, 0), (300, 0.9, 0)], [(100, 0.8, 0), (200, 0.9, 0), (300, 0.9, 0)])
SLOW = ([(100, 0.2, 0), (200, 0.6, 0), (300, 0.8, 0)], [(100, 0.2, 0), (200, 0.3, 0), (300, 0.6, 0)])


@pytest.fixture
def made(tmp_path: Path) -> SyntheticRecord:
    """Two variants, two seeds: the slow one's best mean is 0.7."""
    record = SyntheticRecord(tmp_path)
    for variant, curves in (("unfrozen-random", FAST), ("frozen-random", SLOW)):
        for seed, curve in enumerate(curves):
            record.add(1e-3, seed, curve, variant=variant)
    return record


def found(made: SyntheticRecord, target: float | None = None, sign: int = 1) -> pd.DataFrame:
    read = read_summary(made.write(), made.study, ("device_s",))
    summary, curves = read.summary, read.curves
    if sign < 0:
        summary = replace(summary, metric=Metric(name="error", higher_is_better=False))
        columns = {"validation_mean": 1 - summary.cells["validation_mean"]}
        summary = replace(summary, cells=summary.cells.assign(**columns))
        curves = curves.assign(validation_accuracy=1 - curves["validation_accuracy"])
    per_step = pd.Series(0.1, read.runs["run_id"])
    return steps_to_target(replace(summary, target=target), curves, per_step).set_index("variant")


@pytest.mark.parametrize("sign", [1, -1])
def test_the_worst_variant_s_best_is_the_target(made: SyntheticRecord, sign: int) -> None:
    """The fast one passes 0.7 at 200 and 100; of the slow one's seeds one does, at 300."""
    rows = found(made, sign=sign)
    assert rows.loc["unfrozen-random", ["steps", "num_reached", "num_runs"]].tolist() == [150, 2, 2]
    assert rows.loc["unfrozen-random", "device_s"] == pytest.approx(15)
    assert rows.loc["frozen-random", ["steps", "num_reached", "num_runs"]].tolist() == [math.inf, 1, 2]


def test_millions_of_steps_are_written_to_the_last(made: SyntheticRecord) -> None:
    frame = found(made).reset_index().assign(steps=1_234_567.5, num_steps=2_000_000)
    assert laid_out("targets", frame, metric=Metric(), given=False).rows[0][5] == "1234567.5"


def test_a_target_that_is_reached_exactly_counts(made: SyntheticRecord) -> None:
    assert list(found(made, 0.9)["num_reached"]) == [2, 0]
    assert list(found(made, 0.6)["steps"]) == [150, 250]


def test_the_table_says_what_was_cut_off(made: SyntheticRecord) -> None:
    table = laid_out("targets", found(made).reset_index(), metric=Metric(), given=False)
    assert [row[4:] for row in table.rows] == [("70.0", "150", "15", "2 of 2"), ("70.0", "over 300", "–", "1 of 2")]


def test_the_report_has_it(made: SyntheticRecord) -> None:
    report = write_report(made.write(), made.study)
    assert "targets.csv" in {path.name for path in report.files}
    assert "Steps to a target" in report.page.read_text()


def test_single_evaluations_have_no_steps_to_anything(tmp_path: Path) -> None:
    record = SyntheticRecord(tmp_path)
    record.add(1e-3, 0, [(300, 0.4, 0.4)])
    assert steps_to_target(
        summary_of(record.write()), pd.DataFrame(columns=["run_id", "step", "validation_accuracy"]), pd.Series()
    ).empty
