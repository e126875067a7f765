import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.report.cells import model_text
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.selection.summary import (
    OUTCOMES,
    StudySummary,
    account,
    computed_once,
    per_learning_rate,
    with_interval,
)
from lr_sweep.analysis.study_report import write_report
from lr_sweep.analysis.study_texts import rule_text
from lr_sweep.tests.support.records import SyntheticRecord, summary_of


def only(frame: pd.DataFrame, **labels: Any) -> dict:
    for name, value in labels.items():
        frame = frame[frame[name] == value]
    (row,) = frame.to_dict("records")
    return row


def test_a_cell_worked_out_by_hand(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-5, 0, [(100, 0.6, 0.10), (200, 0.7, 0.61), (300, 0.7, 0.99)])  # tie: step 200
    made.add(1e-5, 1, [(100, 0.8, 0.63), (200, 0.1, 0.90), (300, 0.2, 0.95)])
    for seed in (0, 1):
        made.add(1e-4, seed, [(300, 0.75, 0.9)])  # tie of means: the smaller learning rate
        made.add(1e-3, seed, [], status="diverged", trained=8, diverged_at=8)
    found = summary_of(made.write())
    cell = only(found.cells)
    assert cell["learning_rate"] == 1e-5
    assert found.chosen_runs.sort_values("seed")["best_step"].tolist() == [200, 100]
    assert cell["validation_mean"] == pytest.approx(0.75)
    assert cell["validation_sem"] == pytest.approx(0.05)  # deviations 0.05 and -0.05: sd 0.0707, / sqrt(2)
    assert cell["test_mean"] == pytest.approx(0.62)
    assert cell["test_sem"] == pytest.approx(0.01)
    assert cell["at_edge"] == ""  # 1e-4, inside, is as good
    assert [cell[status] for status in OUTCOMES] == [4, 2, 0, 0, 0, 0]
    lost = only(found.learning_rates, learning_rate=1e-3)
    assert (lost["diverged"], lost["num_values"]) == (2, 0)
    assert math.isnan(lost["test_mean"])
    assert found.learning_rates["learning_rate"].tolist() == [1e-5, 1e-4, 1e-3]


def test_a_run_that_diverged_counts_with_its_best_model_before(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [(100, 0.4, 0.3), (200, 0.2, 0.9)], status="diverged", trained=250, diverged_at=250)
    made.add(1e-3, 1, [(100, 0.6, 0.5), (300, 0.1, 0.9)])
    cell = only(summary_of(made.write()).cells)
    assert (cell["num_values"], cell["test_mean"]) == (2, pytest.approx(0.4))
    assert (cell["diverged"], cell["incomplete"]) == (1, False)


def test_a_longer_run_reports_at_each_budget(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [(100, 0.4, 0.3), (300, 0.6, 0.5), (600, 0.9, 0.8)], trained=600, budget=300)
    for number in (100, 600):
        made.wanted.append(made.wanted[0] | {"model": f"for-{number}", "num_steps": number})
    cells = summary_of(made.write()).cells
    assert dict(zip(cells["model"], cells["test_mean"], strict=True)) == {"gpt2": 0.5, "for-100": 0.3, "for-600": 0.8}


def test_every_wanted_run_is_accounted_for_once(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    to_300 = [(100, 0.5, 0.5), (300, 0.5, 0.5)]
    expected = {
        made.add(1e-3, 0, to_300): "complete",
        made.add(1e-3, 1, to_300, status="diverged", trained=450, diverged_at=450): "complete",  # past this budget
        made.add(1e-3, 2, to_300, status="failed", trained=450, failure="node lost"): "complete",
        made.add(1e-3, 3, [], status="diverged", trained=300, diverged_at=300): "diverged",
        made.add(1e-3, 4, to_300[:1], status="failed", trained=150, failure="node lost"): "failed",
        made.add(1e-3, 5, to_300[:1], trained=100): "missing",  # complete, but at a smaller budget
        made.want(1e-3, 6): "missing",
    }
    unfinished = made.want(1e-3, 7)
    made.write_curve(unfinished, to_300)
    found = summary_of(made.write())
    assert dict(zip(found.runs["run_id"], found.runs["status"], strict=True)) == expected | {unfinished: "missing"}
    cell = only(found.cells)
    assert sum(cell[status] for status in OUTCOMES) == cell["num_wanted"] == 8
    assert cell["num_values"] == 3  # failed and missing runs have evaluations, and do not count


def test_a_run_that_printed_fewer_evaluations_than_others_of_its_cell_is_short_and_not_chosen(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    runs = [(1e-3, 0, "a", 10), (1e-3, 1, "a", 10), (1e-2, 0, "a", 10), (1e-2, 1, "a", 3), (1e-2, 0, "b", 3)]
    for rate, seed, variant, last_printed in runs:
        made.want(rate, seed, budget=1, variant=variant)
        made.end(made.wanted[-1], [(1, 10 * rate, 0.5)], "complete", 1, last_printed=last_printed)
    found = summary_of(made.write())
    assert found.runs["status"].tolist() == ["complete", "complete", "complete", "short", "complete"]
    assert only(found.cells, variant="a")["learning_rate"] == 1e-3  # although 1e-2 has the higher values
    short = next(each for each in check_sweep(found, record.read_curves(tmp_path)) if each.check == "short")
    assert (short.level, short.variant) == ("problem", "a")
    assert short.message == "1 of 4 runs short: 1 of 2 at 1e-2"
    assert "5 runs wanted: 4 complete, 0 diverged, 0 failed, 1 short, 0 missing." in (
        write_report(tmp_path, "small").folder / "report.md"
    ).read_text().replace("\n", " ")


def test_runs_of_other_studies_are_left_out_and_the_studys_order_is_kept(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    ids = [made.add(rate, 0, [(300, rate, 0.5)]) for rate in (1e-2, 1e-5, 1e-3, 1e-1)]
    made.wanted.pop()
    results = made.write()
    assert only(summary_of(results).cells)["learning_rate"] == 1e-2
    found = account(record.read_wanted(results, "small"), record.read_runs(results, ids[::-1]))
    assert found["run_id"].tolist() == ids[:3]


def test_a_complete_run_whose_curve_is_short_is_an_error(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    run_id = made.add(1e-3, 0, [(100, 0.5, 0.5)])
    with pytest.raises(RecordError, match=rf"runs/{run_id}.parquet says that 300 steps were trained"):
        summary_of(made.write())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_mean_and_standard_error_agree_with_numpy(values: list[float]) -> None:
    labels = {"task": "t", "model": "m", "variant": "v", "learning_rate": 1e-3, "status": "complete"}
    numbers = {"seed": range(len(values)), "validation": values, "test": values[::-1]}
    row = only(per_learning_rate(pd.DataFrame(labels | numbers)))
    want = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    for kind in ("validation", "test"):
        np.testing.assert_allclose(row[f"{kind}_mean"], np.mean(values), atol=1e-12)
        np.testing.assert_allclose(row[f"{kind}_sem"], want, atol=1e-9)


def test_cells_get_their_intervals(tmp_path: Path) -> None:
    """Three seeds of one variant, one of another, none of a third, equal ones of a fourth.

    The t factor of 3 seeds is 4.3027: 0.6 ± 4.3027 x 0.1 / sqrt(3).
    """
    made = SyntheticRecord(tmp_path)
    for seed, test in enumerate((0.5, 0.6, 0.7)):
        made.add(1e-4, seed, [(300, 0.3, 0.2)])
        made.add(1e-3, seed, [(300, 0.8, test)])
        made.add(1e-2, seed, [(300, 0.1, 0.1)])
        made.want(1e-3, seed, variant="unfrozen-random")
        made.add(1e-3, seed, [(300, 0.8, 0.5)], variant="unfrozen-pretrained")
    made.add(1e-3, 0, [(300, 0.8, 0.75)], variant="frozen-pretrained")
    made.want(1e-3, 1, variant="frozen-pretrained")
    intervals = with_interval(summary_of(made.write()).cells).set_index("variant")[["low", "high"]]
    assert intervals.loc["frozen-random"].round(4).tolist() == [0.3516, 0.8484]
    assert intervals.loc[["frozen-pretrained", "unfrozen-random"]].isna().all(axis=None)
    assert intervals.loc["unfrozen-pretrained"].tolist() == [0.5, 0.5]


def test_final_models_are_those_at_the_budget_and_a_diverged_run_has_none(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-4, seed, [(100, 0.9, 0.8), (300, 0.5, 0.4)])  # chosen where the best model counts
        made.add(1e-3, seed, [(100, 0.4, 0.3), (300, 0.6, 0.7)])
    curve = [(100, 0.5, 0.4), (300, 0.7, 0.6), (600, 0.9, 0.8)]
    made.add(1e-2, 0, curve, trained=600, budget=300)
    made.add(1e-2, 1, curve[:2], status="diverged", trained=300, diverged_at=300)
    for selection, rate, test, steps in (("best", 1e-4, 0.8, [100, 100]), ("final", 1e-3, 0.7, [300, 300])):
        found = summary_of(made.write(selection=selection))
        cell = only(found.cells)
        assert (cell["learning_rate"], cell["test_mean"]) == (rate, pytest.approx(test))
        assert found.chosen_runs["best_step"].tolist() == steps
    lost = only(found.learning_rates, learning_rate=1e-2)
    assert (lost["num_values"], lost["validation_mean"]) == (1, 0.7)


def test_the_rule_says_which_model_of_a_run_is_measured() -> None:
    assert rule_text(Metric(model="final"), has_steps=True) == (
        "Selection: in each run the last step, then in each cell the learning rate with the highest mean validation "
        "accuracy over seeds (ties: the smaller)."
    )
    assert model_text(Metric(model="final")) == "at each run's last evaluation"


def test_what_is_computed_once_stays_with_its_study() -> None:
    studies: list[StudySummary] = []

    @computed_once
    def number(study: StudySummary) -> int:
        studies.append(study)
        return len(studies)

    study = StudySummary(runs=pd.DataFrame(), learning_rates=pd.DataFrame(), cells=pd.DataFrame())
    assert (number(study), number(study), number(replace(study, winners=1))) == (1, 1, 2)
