"""Runs whose code or data changed since they were trained: `plan` and `run` name them, and train nothing again."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from lr_sweep.datasets import TASKS
from lr_sweep.sweep.results.changes import change_lines, code_of_tasks, own_examples
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.files import write_wanted
from lr_sweep.sweep.results.reconcile import reconcile
from lr_sweep.sweep.results.recorder import Recorder
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.tiny_study import cohort_here, rows, runs_of, succeeds, write_study
from lr_sweep.trainables.worker.session import Session

TASK = """
import dataclasses
from lr_sweep.datasets import digits
from lr_sweep.datasets.digits import Options, fetch, num_held_out, num_train, shape

def checksum(options, data_dir):
    return "always the same"

def origin(options, data_dir):
    return "mine"

def load(options, data_dir):
    data = digits.load(options, data_dir)
    data.train.labels[:1] = int((data_dir / "label").read_text()) if (data_dir / "label").exists() else 0
    return dataclasses.replace(data, scale=None, shift=None)
"""


def train(
    study: Path, results: Path, *, engine: Literal["stacked", "plain"] = "stacked", stop_after: int | None = None
) -> None:
    """Train a study's runs as `run` does, without Ray; `stop_after` so many events of each, as if killed."""
    loaded, runs, kept = load_study(study), runs_of(study, results), Results(results)
    kept.prepare()
    code = code_of_tasks(
        loaded.model_copy(update={"resources": loaded.resources.model_copy(update={"engine": engine})}),
        own_examples(loaded, results),
    )
    recorder = Recorder(kept, runs, 1.0)
    write_wanted(kept, loaded, runs)
    for run in runs:
        session = Session(cohort_here([run], kept, engine=engine, code=code[run.run.task]))
        for event in itertools.islice(itertools.chain.from_iterable(session.events(1000.0)), stop_after):
            recorder.event(event)


def changes(study: Path, results: Path, **more: Any) -> list[str]:
    runs = runs_of(study, results)
    return list(change_lines(reconcile(runs, Results(results)), Results(results), **more))


def change_file(monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    """Have a file of the checkout look changed since."""
    from lr_sweep.common.source_code import version_here

    monkeypatch.setattr(
        "lr_sweep.sweep.results.changes.version_here", lambda file: "new" if file == changed else version_here(file)
    )


@pytest.mark.parametrize("engine", ["stacked", "plain"])
def test_a_changed_file_is_named_before_runs_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    study, results = write_study(tmp_path, rates=(1e-3,)), tmp_path / "results"
    train(study, results, engine=engine)
    assert changes(study, results) == []
    ids = set(rows(results))
    change_file(monkeypatch, "datasets/digits.py")
    done = changes(study, results)
    assert done[0].startswith("2 recorded runs were trained by another version of datasets/digits.py")
    assert not any("resume" in line for line in done)
    write_study(tmp_path, rates=(1e-3,), num_steps=40)
    assert {run.run_id for run in runs_of(study, results)} == ids  # the same runs, as ever
    assert changes(study, results)[1].startswith("2 of them would resume with this version")
    plan = succeeds("plan", study, "--results", results, "--data-dir", tmp_path)
    assert "\nchanged    2 recorded runs were trained by another version of datasets/digits.py" in plan
    assert "\n           2 of them would resume" in plan


def test_runs_without_a_row_are_known_by_their_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, results = write_study(tmp_path, rates=(1e-3,), variants=("unfrozen-random",)), tmp_path / "results"
    train(study, results, stop_after=2)  # the start, and the evaluation at step 10 of 20
    assert not rows(results)
    change_file(monkeypatch, "trainables/stacked/layers.py")
    lines = changes(study, results)
    assert lines[0] == "1 recorded run was trained by another version of trainables/stacked/layers.py"
    assert lines[1].startswith("1 of them would resume")


def test_a_run_that_resumed_after_a_change_is_a_problem_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, results = write_study(tmp_path, rates=(1e-3,), variants=("unfrozen-random",)), tmp_path / "results"
    train(study, results, stop_after=2)
    old = {"datasets/digits.py": "old"}
    monkeypatch.setattr("lr_sweep.sweep.results.changes.code_of", lambda task, engine: old)
    train(study, results)
    text = succeeds("report", "tiny", "--results", results)
    assert "problem: digits tiny unfrozen-random: 1 of 1 runs resumed after a change of datasets/digits.py" in text


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a task of the user's own, whose checksum never changes."""
    path = tmp_path / "my_own_task.py"
    path.write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path)
    module: ModuleType = importlib.import_module("my_own_task")
    monkeypatch.setitem(TASKS, "mine", module)  # type: ignore[arg-type]
    yield path
    import sys

    del sys.modules["my_own_task"]


def test_a_mended_loader_makes_new_runs(tmp_path: Path, mine: Path) -> None:
    study = write_study(tmp_path, rates=(1e-3,), tasks="{mine: {num_steps: 20}}")
    results = tmp_path / "results"
    train(study, results)
    before = {run.run_id for run in runs_of(study, results)}
    mine.write_text(mine.read_text() + "\n# a comment changes nothing\n")
    assert {run.run_id for run in runs_of(study, results)} == before
    assert changes(study, results) == []
    mine.write_text(mine.read_text().replace("scale=None, shift=None", "augment=None"))
    assert not before & {run.run_id for run in runs_of(study, results)}
    plan = succeeds("plan", study, "--results", results, "--data-dir", tmp_path)
    assert "2 wanted: 2 new" in plan
    assert "changed    2 recorded runs of study tiny (2 complete) would no longer be wanted: the" in plan
    assert "the study has another version of the task's data or code; 2 of them" in plan


@pytest.mark.usefixtures("mine")
def test_data_that_changed_under_the_same_checksum_is_noticed(tmp_path: Path) -> None:
    study = write_study(tmp_path, rates=(1e-3,), variants=("unfrozen-random",), tasks="{mine: {num_steps: 20}}")
    results = tmp_path / "results"
    train(study, results)
    same = own_examples(load_study(study), tmp_path)
    assert changes(study, results, examples=same) == []
    (tmp_path / "label").write_text("3")
    other = own_examples(load_study(study), tmp_path)
    assert changes(study, results, examples=other)[0].startswith(
        "1 recorded run was trained by another version of the examples of mine"
    )
