"""A study of optimizers and a decaying schedule, from file to report and MLflow, with real Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lr_sweep.sweep.mirror.client import open_client, tracking_uri
from lr_sweep.tests.support.tiny_study import curves, in_process, rows, sweep, trained_here, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_optimizers_are_trained_recorded_and_mirrored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    axes = "{optimizer: [sgd, muon], schedule: [cosine]}"
    study = write_study(tmp_path, variants=("unfrozen-random",), axes=axes, selection="final", rates=(1e-3, 1e-2))
    results = tmp_path / "results"
    code, output = sweep("run", study, "--results", results, "--cpus", "2")
    assert code == 0, output
    expected = trained_here(study, tmp_path / "elsewhere")
    assert curves(results) == expected
    ended = rows(results)
    contents = {run_id: json.loads(row["content"]) for run_id, row in ended.items()}
    engines = {(contents[run_id]["protocol"]["optimizer"], row["engine"]) for run_id, row in ended.items()}
    assert engines == {("sgd", "stacked"), ("muon", "plain")}
    assert {content["schedule_steps"] for content in contents.values()} == {20}
    report = (results / "studies" / "tiny" / "report" / "report.md").read_text()
    assert "unfrozen-random-sgd-cosine" in report
    assert "unfrozen-random-muon-cosine" in report
    assert "in each run the last step" in report
    client = open_client(tracking_uri(results))
    found = client.search_runs(
        [each.experiment_id for each in client.search_experiments()], "tags.`sweep.kind` = 'run'"
    )
    optimizers = {run.data.params["protocol.optimizer"] for run in found}
    assert optimizers == {"sgd", "muon"}
    code, output = in_process("run", study, "--results", results)
    assert code == 0
    assert "4 complete" in output
    larger = write_study(
        tmp_path, variants=("unfrozen-random",), axes=axes, selection="final", rates=(1e-3, 1e-2), num_steps=40
    )
    code, output = in_process("plan", larger, "--results", results)
    assert "4 wanted: 4 new" in output  # another budget, another cosine
