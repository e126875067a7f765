"""The Python API does what the commands do, with the same objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lr_sweep.sweep.api import RecordError, Sweep, UserError
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.tune import tuner
from lr_sweep.tests.support.scripted_trials import Script, new_bench
from lr_sweep.tests.support.tiny_study import said, write_study

FIELDS = {
    "study": "mine",
    "tasks": {"digits": {"num_steps": 100}},
    "models": {"small": {"size": {"layers": 1, "heads": 1, "width": 8}}},
    "variants": ["frozen-random", "unfrozen-random"],
    "learning_rates": [1e-3, 1e-2],
    "seeds": [7],
    "protocol": {"evaluate_every": 100},
}


def test_a_study_of_a_mapping_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps(FIELDS))  # JSON is YAML
    assert Sweep(FIELDS, tmp_path / "results").study == load_study(tmp_path / "mine.yaml")


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        Sweep(FIELDS | {"variants": ["frozn-random"], "seeds": "3"}, tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("variants[0]: unknown variant 'frozn-random'; did you mean 'frozen-random'?")
    assert lines[1].startswith("seeds: want a whole number n")
    with pytest.raises(UserError, match="only: got 'variant', want AXIS=VALUE"):
        Sweep(FIELDS, tmp_path, only="variant")
    with pytest.raises(UserError, match="unknown study 'quikstart'; did you mean 'quickstart'"):
        Sweep("quikstart", tmp_path)


def test_the_plan_is_the_command_s(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    only = "variant=unfrozen-random"
    plan = Sweep(study, tmp_path / "results", data_dir=tmp_path, only=only).plan()
    _, printed = said("plan", study, "--results", tmp_path / "results", "--data-dir", tmp_path, "--only", only)
    assert plan.splitlines()[:-3] == printed.splitlines()[:-3]  # but for the space that is free
    assert "to train   2 runs" in plan


def test_a_sweep_runs_and_its_numbers_are_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, script = new_bench(tmp_path, monkeypatch), Script()
    monkeypatch.setattr(tuner, "train_cohorts", script.train_cohorts)
    sweep = Sweep(tmp_path / "tiny.yaml", bench.results.root, data_dir=tmp_path)
    with pytest.raises(RecordError, match="run a study first"):
        sweep.summary()
    assert "<pre>tiny" in sweep._repr_html_()  # before a run, the plan
    said: list[str] = []
    outcome = sweep.run(say=said.append)
    assert (outcome.trained, outcome.failed, outcome.stopped) == (4, 0, False)
    assert said[0] == "tiny: 4 runs wanted, 4 new"
    summary = sweep.summary()
    assert list(summary.runs["validation_accuracy"]) == [0.5] * 4
    assert list(summary.cells["learning_rate"]) == [1e-4]  # of equal ones the smallest
    assert list(sweep.optima()["note"]) == ["the best learning rate is at the edge of those tried"]
    assert sweep.laws().empty
    assert len(sweep.curves()) == 4
    assert "<td>unfrozen-random</td>" in sweep._repr_html_()
    assert sweep.report().text == outcome.report.text
