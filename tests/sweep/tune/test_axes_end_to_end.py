"""A study of optimizers and a decaying schedule, from file to report, with real Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lr_sweep.tests.support.tiny_study import curves, rows, swept, trained_here, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_optimizers_are_trained_by_their_engines_and_reported(tmp_path: Path) -> None:
    axes = "{optimizer: [sgd, muon], schedule: [cosine]}"
    study = write_study(tmp_path, variants=("unfrozen-random",), axes=axes, selection="final", rates=(1e-3, 1e-2))
    results = tmp_path / "results"
    swept("run", study, "--results", results, "--cpus", "2")
    assert curves(results) == trained_here(study, tmp_path / "elsewhere")
    ended = rows(results)
    contents = {run_id: json.loads(row["content"]) for run_id, row in ended.items()}
    engines = {(contents[run_id]["protocol"]["optimizer"], row["engine"]) for run_id, row in ended.items()}
    assert engines == {("sgd", "stacked"), ("muon", "plain")}
    assert {content["schedule_steps"] for content in contents.values()} == {20}
    report = (results / "studies" / "tiny" / "report" / "report.md").read_text()
    assert "unfrozen-random-sgd-cosine" in report
    assert "unfrozen-random-muon-cosine" in report
    assert "in each run the last step" in report
