"""The metric of a study: read from `study.json`, and how its numbers read.

They have the digits that their uncertainty shows, and never a zero that is none.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import write_judged
from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.read import read_study
from lr_sweep.common.text import NO_VALUE
from lr_sweep.tests.support.judged import rows_of, study_of
from lr_sweep.tests.support.records import SyntheticRecord

pytestmark = pytest.mark.usefixtures("undrawn")
LOSS = Metric(name="loss", higher_is_better=False, is_fraction=False)
PERPLEXITY = Metric(name="perplexity", higher_is_better=False, is_fraction=False)


def test_a_study_without_a_metric_measures_accuracy(tmp_path: Path) -> None:
    assert read_study(SyntheticRecord(tmp_path).write(), "small").metric == ACCURACY


def test_the_metric_of_a_study_is_read(tmp_path: Path) -> None:
    named = {"name": "perplexity", "higher_is_better": False, "is_fraction": False}
    assert PERPLEXITY.as_json() == named
    assert read_study(SyntheticRecord(tmp_path).write(metric=named), "small").metric == PERPLEXITY


def test_numbers_as_text() -> None:
    assert [ACCURACY.text(0.12345), ACCURACY.difference_text(-0.02), ACCURACY.amount_text(0.025)] == [
        *("12.3", "-2.0", "2.5 points")
    ]
    assert [PERPLEXITY.text(23.456789), PERPLEXITY.difference_text(0.5), PERPLEXITY.amount_text(0.025)] == [
        *("23.46", "+0.5", "0.025")
    ]
    assert PERPLEXITY.text(math.nan) == ACCURACY.text(math.nan) == "–"
    assert (ACCURACY.axis, PERPLEXITY.axis) == ("test accuracy (%)", "test perplexity")


@pytest.mark.parametrize(
    ("metric", "mean", "sem", "text"),
    [
        (ACCURACY, 0.965653, 0.0000262, "96.565 ± 0.003"),
        (ACCURACY, 0.53, 0.0173, "53.0 ± 1.7"),
        (ACCURACY, 0.53, math.nan, "53.0"),
        (ACCURACY, 0.53, 1e-17, "53.0 ± 0.0"),  # all seeds are equal: no spread
        (ACCURACY, 0.0004, math.nan, "0.04"),
        (LOSS, 0.512345, 0.0123, "0.512 ± 0.012"),
        (LOSS, 0.512345, 0.0, "0.5123 ± 0"),
        (LOSS, 1234567.0, 4500.0, "1234567 ± 4500"),
        (LOSS, 1.5e12, 2.3e9, "1.5e+12 ± 2.3e+09"),
        (LOSS, 3.2e-12, 1.1e-13, "3.2e-12 ± 1.1e-13"),
        (LOSS, 0.04, 3.7, "0.04 ± 3.7"),
        (LOSS, 1.7e308, 1e300, "1.7e+308 ± 1e+300"),
    ],
)
def test_a_mean_and_its_error(metric: Metric, mean: float, sem: float, text: str) -> None:
    assert metric.mean_text(mean, sem) == text


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (-0.033, 0.042, ("-3.3", "4.2")),
        (0.0001, 0.0009, ("0.010", "0.090")),
        (-0.0001, 0.076, ("-0.01", "7.6")),  # which side of zero it ends on is seen
    ],
)
def test_the_ends_of_an_interval(low: float, high: float, ends: tuple[str, str]) -> None:
    assert ACCURACY.ends_text(low, high) == ends


def test_a_narrow_spread_is_seen_in_every_number(tmp_path: Path) -> None:
    """F1 in percent by seed: north 96.561, 96.570, 96.565 (mean 96.5653, SEM 0.0026), south 96.531, 96.540, 96.538.

    The difference is 0.0290; its squared error 6.8e-6 + 7.4e-6 (percent), so 0.0038, times t of 4 degrees: 0.0105.
    """
    rows = [f"north,0.3,{seed},{value}" for seed, value in enumerate((0.96561, 0.96570, 0.96565))]
    rows += [f"south,0.3,{seed},{value}" for seed, value in enumerate((0.96531, 0.96540, 0.96538))]
    report = write_judged(study_of(tmp_path, rows_of("variant,lr,seed,val_f1", rows)), tmp_path / "judged")
    text = (report.folder / "report.md").read_text()
    assert "north beats south by 0.029 points (95% interval 0.019 to 0.039" in text
    assert "| north | 96.565 ± 0.003 * |" in text
    assert "| south | 3e-1 | 3 | 96.536 | 96.525 to 96.548 | −0.029 |" in text
    assert "± 0.0 " not in text
    assert '"text":"96.565 ± 0.003"' in report.page.read_text()
    assert "0.96565" in (report.folder / "runs.csv").read_text()  # files keep every digit


def test_a_difference_that_is_equal_but_for_rounding_errors_is_written_alike() -> None:
    one, other = 0.1585, 0.1585 + 1e-16
    assert f"{100 * one:+.1f}" != f"{100 * other:+.1f}"  # which is why
    assert {ACCURACY.difference_text(each) for each in (one, other)} == {
        ACCURACY.difference_text(-one).replace("-", "+")
    }
    assert ACCURACY.difference_text(0.0) == "+0.0"
    assert ACCURACY.difference_text(math.nan) == NO_VALUE
