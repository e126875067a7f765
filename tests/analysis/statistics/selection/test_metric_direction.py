"""Metrics to minimise: error = 1 - accuracy must lead to the same conclusions as accuracy, number for number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record import read
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.comparisons.orders import orders
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

ERROR = Metric(name="error", higher_is_better=False)
PERPLEXITY = Metric(name="perplexity", higher_is_better=False, is_fraction=False)
A, B = "frozen-random", "unfrozen-random"
BEST = {  # variant, learning rate: validation accuracy at the best step
    **{(A, 1e-4): 0.50, (A, 1e-3): 0.70, (A, 1e-2): 0.60},
    **{(B, 1e-4): 0.75, (B, 1e-3): 0.65, (B, 1e-2): 0.25},
}


def points() -> Iterator[tuple[str, float, int, list[tuple[int, float, float]]]]:
    for (variant, rate), seed in product(BEST, range(2)):
        top = BEST[variant, rate] + seed / 63.7
        yield variant, rate, seed, [(100, top - 0.25, top - 0.3), (200, top, top - 0.05), (300, top - 0.125, top)]


def record_of(folder: Path, metric: Metric) -> Path:
    """The same runs in accuracy, in error or as a perplexity from 10 to 20."""
    made = SyntheticRecord(folder)
    for variant, rate, seed, curve in points():
        if metric.is_fraction:
            shown = [(s, *(v if metric.higher_is_better else 1 - v for v in values)) for s, *values in curve]
        else:
            shown = [(s, 20 - 10 * validation, 20 - 10 * test) for s, validation, test in curve]
        made.add(rate, seed, shown, variant=variant)
    return made.write(metric=dict(metric.as_json()))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudySummary, StudySummary]:
    folder = tmp_path_factory.mktemp("records")
    return tuple(summary_of(record_of(folder / metric.name, metric)) for metric in (Metric(), ERROR))


def test_the_same_steps_and_rates_are_chosen(both: tuple[StudySummary, StudySummary]) -> None:
    _, error = both
    assert dict(error.cells[["variant", "learning_rate"]].itertuples(index=False)) == {A: 1e-3, B: 1e-4}
    assert set(error.runs["best_step"]) == {200}
    for summary, other in (both, both[::-1]):
        pd.testing.assert_series_equal(summary.cells["test_mean"], 1 - other.cells["test_mean"])


def test_orders_are_the_same(both: tuple[StudySummary, StudySummary]) -> None:
    accuracy, error = both
    assert list(orders(error)["order"]) == list(orders(accuracy)["order"]) == [((B,), (A,))] * 2 + [((A,), (B,))] * 2


def test_checks_are_the_same(tmp_path: Path) -> None:
    found = {}
    for metric in (Metric(), ERROR):
        results = record_of(tmp_path / metric.name, metric)
        found[metric.name] = check_sweep(summary_of(results), read.read_curves(results))
    listed = {name: [(each.check, each.variant, each.learning_rates) for each in found[name]] for name in found}
    assert listed["error"] == listed["accuracy"]
    messages = [each.message for each in found["error"]]
    assert "the best learning rate, 1e-4, is the smallest tried" in messages


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, undrawn_module: None) -> Report:
    return write_report(record_of(tmp_path_factory.mktemp("perplexity"), PERPLEXITY), "small")


def test_a_report_on_perplexity_names_it_and_shows_no_percent(report: Report) -> None:
    text = (report.folder / "report.md").read_text()
    for wanted in (
        *(
            "Test perplexity by learning rate.",
            "lowest validation perplexity",
            "Bold: the lowest mean",
        ),
    ):
        assert wanted in text, wanted
    for never in ("accuracy", "percent", "Rothermel et al. 2021, Table", "Table 1"):
        assert never not in text, never


def test_its_files_name_the_metric(report: Report) -> None:
    runs = pd.read_csv(report.folder / "runs.csv")
    assert {"validation_perplexity", "test_perplexity"} <= set(runs.columns)
    page = report.page.read_text()
    assert '"metric":{"title":"Test perplexity","axis":"test perplexity"' in page
    # 13.5 and 13.34375 at the chosen rate of A, on average
    assert "13.422 ± 0.078" in report.text
