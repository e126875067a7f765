"""The metric of a study: read from `study.json`, and how its numbers read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import RecordError, read_study
from lr_sweep.tests.support.records import SyntheticRecord

PERPLEXITY = Metric(name="perplexity", higher_is_better=False, is_fraction=False)


def with_metric(results: Path, metric: object) -> Path:
    """A record whose `study.json` names a metric."""
    SyntheticRecord(results).write()
    path = Paths(results).facts("small")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"metric": metric}))
    return results


def test_a_study_without_a_metric_measures_accuracy(tmp_path: Path) -> None:
    assert read_study(SyntheticRecord(tmp_path).write(), "small").metric == ACCURACY


def test_the_metric_of_a_study_is_read(tmp_path: Path) -> None:
    named = {"name": "perplexity", "higher_is_better": False, "is_fraction": False}
    assert PERPLEXITY.as_json() == named
    assert read_study(with_metric(tmp_path, named), "small").metric == PERPLEXITY


@pytest.mark.parametrize(
    "metric", [None, "loss", {"name": "loss"}, {"name": "loss", "higher_is_better": "no", "is_fraction": False}]
)
def test_a_damaged_metric_is_reported_with_its_file(tmp_path: Path, metric: object) -> None:
    with pytest.raises(RecordError, match=r"study\.json: got the metric .* want"):
        read_study(with_metric(tmp_path, metric), "small")


def test_numbers_as_text() -> None:
    assert [ACCURACY.text(0.12345), ACCURACY.difference_text(-0.02), ACCURACY.amount_text(0.025)] == [
        *("12.3", "-2.0", "2.5 points"),
    ]
    assert [PERPLEXITY.text(23.456789), PERPLEXITY.difference_text(0.5), PERPLEXITY.amount_text(0.025)] == [
        *("23.46", "+0.5", "0.025"),
    ]
    assert PERPLEXITY.text(math.nan) == ACCURACY.text(math.nan) == "–"
    assert (ACCURACY.axis, PERPLEXITY.axis) == ("test accuracy (%)", "test perplexity")
