"""Steps to a target, by hand: accuracies rise as straight lines over log steps, seeds are 0.01 apart."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtr

from lr_sweep.analysis.report.targets import pairs_table
from lr_sweep.analysis.statistics.comparisons.target import (
    AT_FIRST,
    StepsCompared,
    compare_steps,
    crossings,
)
from lr_sweep.analysis.study_report import write_report
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.tests.support.records import SyntheticRecord

pytestmark = pytest.mark.usefixtures("undrawn")
OFF = (-0.01, 0.0, 0.01)
HALF = 2.776 * 0.1 * math.sqrt(2 / 3)
"""Half the width of an interval of log ratios: a run deviates by 0.01 over a slope of 0.1, Welch with f = 4."""


def add(
    made: SyntheticRecord, variant: str, at: float, rate: float = 1e-3, budget: int = 300, task: str = "mnist"
) -> None:
    """Add three runs whose mean is 0.5 at a step."""
    for seed, off in enumerate(OFF):
        values = [(step, 0.5 + 0.1 * math.log(step / at) + off) for step in range(20, budget + 1, 20)]
        made.add(rate, seed, [(step, value, 0.1) for step, value in values], variant=variant, budget=budget, task=task)


def compared(made: SyntheticRecord, target: float | dict[str, float] = 50.0) -> StepsCompared:
    read = read_summary(made.write(target=target), made.study)
    found = compare_steps(read.summary, read.curves)
    assert found is not None, "no run has two evaluations"
    return found


@pytest.fixture
def made(tmp_path: Path) -> SyntheticRecord:
    return SyntheticRecord(tmp_path)


def test_the_ratio_of_the_steps_of_two_variants(made: SyntheticRecord) -> None:
    add(made, "slow", 200)
    add(made, "fast", 100)
    found = compared(made)
    assert list(found.cells["variant"]) == ["fast", "slow"]
    assert list(found.cells["steps"]) == pytest.approx([100, 200])
    assert list(found.cells["num_reached"]) == [3, 3]
    assert found.cells["high"][0] / 100 == pytest.approx(math.exp(4.303 * 0.1 / math.sqrt(3)), rel=1e-3)
    (pair,) = found.pairs.to_dict("records")
    assert (pair["variant"], pair["distinguishable"]) == ("fast", True)
    ends = [pair["ratio"], pair["ratio_low"], pair["ratio_high"]]
    assert ends == pytest.approx([2, 2 * math.exp(-HALF), 2 * math.exp(HALF)], rel=1e-3)


def test_a_variant_that_ends_before_counts_with_its_budget(made: SyntheticRecord) -> None:
    """It is at 0.471 at the end, and would be there at 400."""
    add(made, "fast", 100)
    add(made, "late", 400)
    found = compared(made)
    assert list(found.cells["short"]) == [False, True]
    assert list(found.cells["num_reached"]) == [3, 0]
    (pair,) = found.pairs.to_dict("records")
    assert pair["distinguishable"]
    assert pair["ratio"] == pytest.approx(3)
    assert math.isnan(pair["ratio_low"])
    assert pairs_table(found.pairs, 1).rows[0][3] == "over 3"


def test_two_runs_have_an_interval_and_no_p(made: SyntheticRecord) -> None:
    for variant, at in (("slow", 200), ("fast", 50)):
        for seed, off in enumerate((-0.001, 0.001)):
            values = [(step, 0.5 + 0.1 * math.log(step / at) + off, 0.1) for step in range(20, 301, 20)]
            made.add(1e-3, seed, values, variant=variant)
    (pair,) = compared(made).pairs.to_dict("records")
    assert pair["ratio_low"] > 1
    assert math.isnan(pair["p"])
    assert not pair["distinguishable"]
    assert pair["note"] == "fewer than 3 runs of a variant: no p"


def test_p_is_corrected_over_the_pairs_and_of_the_chosen_rates_alone(made: SyntheticRecord) -> None:
    """Standard errors 0.1 / sqrt(3) each, so t = log 2 / 0.08165 with f = 4; two of the three p are equal."""
    for variant, at in (("a", 50), ("b", 100), ("c", 200)):
        add(made, variant, at)
        add(made, variant, 250, rate=1e-2)
    pairs = compared(made).pairs.set_index(["variant", "other"])
    p = 2 * stdtr(4, -math.log(2) / (0.1 * math.sqrt(2 / 3)))
    assert pairs.loc[("a", "b"), "p"] == pytest.approx(p, rel=1e-2)
    assert pairs.loc[("a", "b"), "corrected_p"] == pytest.approx(2 * p, rel=1e-2)


def test_noise_at_other_rates_does_not_count(made: SyntheticRecord) -> None:
    add(made, "slow", 200)
    add(made, "fast", 100)
    for seed, at in enumerate((110, 150, 280)):
        made.add(
            1e-2, seed, [(step, 0.5 + 0.1 * math.log(step / at), 0.1) for step in range(20, 301, 20)], variant="fast"
        )
    (pair,) = compared(made).pairs.to_dict("records")
    assert pair["ratio_high"] == pytest.approx(2 * math.exp(HALF), rel=1e-3)


def test_what_does_not_reach_the_target_is_never_faster(made: SyntheticRecord) -> None:
    add(made, "short", 320)
    add(made, "late", 600, budget=1200)
    (pair,) = compared(made).pairs.to_dict("records")
    assert not pair["distinguishable"]
    assert math.isnan(pair["corrected_p"])
    assert "does not reach" in pair["note"]


def test_a_diverged_run_is_no_run_less(made: SyntheticRecord) -> None:
    add(made, "fast", 100)
    made.add(1e-3, 3, [], "diverged", 10, 10, variant="fast")
    add(made, "slow", 200)
    found = compared(made)
    cells = found.cells.set_index("variant")
    assert cells.loc["fast", "short"]
    assert cells.loc["fast", ["num_reached", "num_runs"]].tolist() == [3, 4]
    assert not found.pairs["distinguishable"].any()


def test_a_run_that_has_not_ended_is_left_out(made: SyntheticRecord) -> None:
    add(made, "a", 100)
    made.write_curve(made.want(1e-3, 3, variant="a"), [(20, 0.3, 0.1), (40, 0.4, 0.1)])
    made.write_curve(made.want(1e-3, 0, variant="b"), [(20, 0.3, 0.1), (40, 0.4, 0.1)])
    (cell,) = compared(made).cells.to_dict("records")
    assert (cell["variant"], cell["num_runs"], cell["short"]) == ("a", 3, False)


def test_each_task_has_its_own_target(made: SyntheticRecord) -> None:
    """At 0.5 and at 0.5 + 0.1 log 2 they are there at 100 and at 200 steps; the third task has no target."""
    for task in ("a", "b", "c"):
        add(made, "one", 100, task=task)
    cells = compared(made, {"a": 50.0, "b": 50 + 10 * math.log(2)}).cells
    assert list(cells["task"]) == ["a", "b"]
    assert list(cells["steps"]) == pytest.approx([100, 200])


def test_each_at_the_rate_that_reaches_the_target_first(made: SyntheticRecord) -> None:
    for variant, steps in (("a", {1e-3: 100, 1e-2: 150}), ("b", {1e-4: 250, 1e-3: 200, 1e-2: 120})):
        for rate, at in steps.items():
            add(made, variant, at, rate)
    found = compared(made)
    assert list(found.cells["learning_rate"]) == [1e-3, 1e-2]
    assert found.pairs["ratio"][0] == pytest.approx(1.2)


LINE, ONE = np.arange(8.0), np.array([True])


def test_noise_moves_a_crossing_to_neither_side() -> None:
    """The first evaluation there is that at 2, by luck; that at 5 is as unlucky."""
    gaps = LINE - 3.5 + np.array([0, 0, 1.6, 0, 0, -1.6, 0, 0])
    assert crossings(LINE, gaps[:, None], ONE, 7.0)[0] == pytest.approx([3.5])


def test_a_parabola_is_followed() -> None:
    assert crossings(LINE, (LINE**2 / 10 - 2.0)[:, None], ONE, 7.0)[0] == pytest.approx([math.sqrt(20)])


@pytest.mark.parametrize(
    ("gaps", "reached", "short"), [(LINE - 7.5, 7.5, True), (0 * LINE - 1.0, 1e6, True), (LINE + 1.0, 0.0, False)]
)
def test_ends_of_curves(gaps: np.ndarray, reached: float, short: bool) -> None:
    """Just before the target, where it would be at 7.5; flat; and there from the first evaluation on."""
    found, is_short = crossings(LINE, gaps[:, None], ONE, 7.0)
    assert (found.tolist(), is_short) == (pytest.approx([reached], rel=1e-5), short)


def test_a_curve_that_worsens_again_has_reached_the_target() -> None:
    gaps = np.array([-3.0, -2, -1, 0, 1, 2, 1, -1])
    assert crossings(LINE, gaps[:, None], ONE, 7.0)[0] == pytest.approx([3.0], abs=0.4)


def test_the_report_has_it_where_there_is_a_target(made: SyntheticRecord) -> None:
    add(made, "slow", 200)
    add(made, "fast", 100)
    report = write_report(made.write(target=50.0), made.study)
    assert list(pd.read_csv(report.folder / "targets.csv")["steps"]) == pytest.approx([100, 200])
    text = (
        "fast reaches validation accuracy 50.0 first, in 100 steps (95% interval 78 to 128); slow needs 2 times as many"
    )
    assert text in " ".join(report.text.split())
    assert "Steps to a target" in report.page.read_text()
    without = write_report(made.write(), made.study)
    assert "targets.csv" not in {path.name for path in without.files}


def test_a_target_that_is_met_at_the_first_evaluation_has_no_interval(made: SyntheticRecord) -> None:
    """The first one is above 0.5 from step 10 on, and is evaluated from step 20 on."""
    add(made, "early", 10)
    add(made, "late", 100)
    found = compared(made)
    assert list(found.cells["at_first"]) == [True, False]
    assert (found.cells["steps"][0], found.cells["high"].isna().tolist()) == (pytest.approx(20), [True, False])
    (pair,) = found.pairs.to_dict("records")
    assert (math.isnan(pair["p"]), pair["distinguishable"], pair["note"]) == (True, False, AT_FIRST)
