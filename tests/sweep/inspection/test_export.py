"""Curves for other programs: one row an evaluation, with the record's values and what they measure."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import CURVES
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.comparisons.target import compare_steps
from lr_sweep.analysis.study_report import write_report
from lr_sweep.analysis.study_summary import Study, read_summary
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.inspection.export import write_csv
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import LABELS
from lr_sweep.tests.support.records import Point, SyntheticRecord, evaluation, write
from lr_sweep.tests.support.tiny_study import said

CURVE: list[Point] = [(10, 0.25, 0.5), (20, 0.75, 0.625)]
METRICS = [
    Metric(name="accuracy", is_fraction=False),  # in percent
    Metric(name="score", higher_is_better=False),
    Metric(name="error in seconds", higher_is_better=True, is_fraction=False),
]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Two runs of one cell, of two and one evaluations: step, validation and test accuracy."""
    record = SyntheticRecord(tmp_path / "results", "tiny")
    record.add(1e-3, 0, CURVE, budget=20)
    record.add(3.16e-2, 4, [(10, 0.5, 0.375)], budget=10)
    record.write()
    return Results(tmp_path / "results")


def test_a_csv_has_a_row_an_evaluation(results: Results, tmp_path: Path) -> None:
    target = tmp_path / "curves.csv"
    code, printed = said("export", target, "--results", results.root)
    assert (code, printed) == (0, f"{target}: 3 evaluations of 2 runs\n")
    table = pd.read_csv(target)
    assert [*table][:9] == ["study", *LABELS, "run_id", "status", "step"]
    numbers = table[["learning_rate", "seed", "step", "validation", "test"]].to_numpy().tolist()
    assert numbers == [[1e-3, 0, 10, 0.25, 0.5], [1e-3, 0, 20, 0.75, 0.625], [3.16e-2, 4, 10, 0.5, 0.375]]
    assert table.iloc[0, -3:].tolist() == ["accuracy", True, True]


def test_a_row_says_how_its_run_ended_within_the_study_s_budget(tmp_path: Path) -> None:
    """Another study trained the first run further."""
    record = SyntheticRecord(tmp_path / "results", "tiny")
    record.add(1e-3, 0, CURVE, trained=20, budget=10)
    record.add(1e-1, 0, [], "diverged", 5, 5, budget=10)
    record.write()
    write_csv(Results(tmp_path / "results"), [], tmp_path / "curves.csv")
    rows = pd.read_csv(tmp_path / "curves.csv")[["learning_rate", "status", "step"]].fillna(-1)
    assert rows.to_numpy().tolist() == [[1e-3, "complete", 10], [1e-1, "diverged", -1]]


def measured(folder: Path, metric: Metric) -> Path:
    """Write a record of two variants, of which `a` has the higher values, and at the largest rate diverges early."""
    record, scale = SyntheticRecord(folder, "tiny"), 1 if metric.is_fraction else 70
    for variant, offset in (("a", 0.2), ("b", 0.0)):
        for number, rate in enumerate((1e-3, 1e-2, 1e-1)):
            for seed in range(3):
                ends = [offset + 0.2 + 0.1 * (number == 1) + (seed - 1) / 64 + 0.05 * late for late in (0, 1)]
                curve = [(10 * late + 10, scale * end, scale * (end + 1 / 32)) for late, end in enumerate(ends)]
                if (variant, number) == ("a", 2):
                    record.add(rate, seed, curve[:seed], "diverged", 15, 15, budget=20, variant=variant)
                else:
                    record.add(rate, seed, curve, budget=20, variant=variant)
    return record.write(metric=dict(metric.as_json()), target=40 if metric.is_fraction else 28)


def assert_same(study: Study, exported: Study) -> None:
    """Which variant leads by how much, which rates were chosen, and who reached the target first."""
    assert exported.summary.metric == study.summary.metric
    for compare in (comparisons, lambda summary: summary.cells[["variant", "learning_rate", "test_mean"]]):
        pd.testing.assert_frame_equal(compare(exported.summary), compare(study.summary))
    steps, others = (compare_steps(each.summary, each.curves) for each in (study, exported))
    assert steps
    assert others
    pd.testing.assert_frame_equal(others.pairs, steps.pairs)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: f"{metric.name} {metric.better} {metric.scale}")
def test_judge_of_an_export_has_the_verdict_of_the_study(tmp_path: Path, metric: Metric) -> None:
    root = measured(tmp_path / "results", metric)
    study = read_summary(root, "tiny")
    assert (comparisons(study.summary)["difference"] > 0).item()
    write_csv(Results(root), ["tiny"], tmp_path / "curves.csv")
    target = 40.0 if metric.is_fraction else 28.0
    assert_same(study, judged([tmp_path / "curves.csv"], Reading(target=target)).study)


def test_what_functions_logged_is_a_file_of_its_own(tmp_path: Path) -> None:
    record = SyntheticRecord(tmp_path / "results", "tiny")
    run_id = record.add(1e-3, 0, CURVE, budget=10)
    logged = [{"step": 9, "name": "lr", "value": 0.5}, {"step": 10, "name": "loss", "value": float("nan")}]
    rows = [evaluation(run_id, 10, logged=logged), evaluation(run_id, 20, logged=logged)]
    write(Paths(record.write()).curve(run_id), rows, CURVES)
    target = tmp_path / "curves.csv"
    code, printed = said("export", target, "--results", record.results)
    assert (code, printed) == (0, f"{target}, {tmp_path}/curves-logged.csv: 1 evaluation of 1 run\n")
    assert "logged" not in pd.read_csv(target)
    table = pd.read_csv(tmp_path / "curves-logged.csv")
    assert [*table] == ["study", *LABELS, "run_id", "step", "name", "value"]
    assert table.iloc[:, -3:].fillna(-1).to_numpy().tolist() == [[9, "lr", 0.5], [10, "loss", -1]]
    target.unlink()
    with pytest.raises(UserError, match=r"curves-logged.csv exists; `export` overwrites nothing"):
        write_csv(Results(record.results), [], target)
    assert not target.exists()


def test_judge_of_a_report_s_runs_has_its_metric(tmp_path: Path, undrawn: None) -> None:
    metric = METRICS[-1]
    root = measured(tmp_path / "results", metric)
    read = judged([write_report(root, "tiny").folder / "runs.csv"], Reading())
    assert read.study.summary.metric == metric
    assert read.reading.columns["validation"] == "validation_error-in-seconds"


def test_of_an_export_with_several_metrics_judge_wants_one(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    rows = [f"{name},{higher},False,{rate},{rate}" for name, higher in (("x", True), ("y", False)) for rate in (1, 2)]
    path.write_text("\n".join(["metric_name,metric_higher_is_better,metric_is_fraction,lr,validation_x", *rows]))
    with pytest.raises(UserError, match="several metrics, x, y: judge those of one: --where metric_name=NAME"):
        judged([path], Reading())
    assert judged([path], Reading(where=["metric_name=x"])).study.summary.metric.higher_is_better


def test_nothing_is_overwritten_and_nothing_is_made_of_nothing(results: Results, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(UserError, match="there exists; `export` overwrites nothing"):
        write_csv(results, [], tmp_path / "there")
    for path in (results.root / "curves").iterdir():
        path.unlink()
    with pytest.raises(UserError, match="holds no evaluation to export"):
        write_csv(results, [], tmp_path / "new.csv")
    assert not (tmp_path / "new.csv").exists()
