"""Runs whose code or data changed since they were trained: `plan` and `run` name them, and train nothing again."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from lr_sweep.analysis.record.columns import CURVES, PROPOSALS, RUNGS, RUNS
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.datasets import TASKS
from lr_sweep.sweep.results.changes import change_lines, code_of_tasks, own_examples, replaced_by, restart_cells
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.results.recorder import Recorder, write_wanted
from lr_sweep.sweep.search.state import reconcile
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.records import ended_row, evaluation
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
    assert {run.run_id for run in runs_of(study, results)} == ids  # the same runs, as ever
    plan = succeeds("plan", study, "--results", results, "--data-dir", tmp_path)
    assert "\nchanged    2 recorded runs were trained by another version of datasets/digits.py" in plan


def test_runs_without_a_row_are_known_by_their_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, results = write_study(tmp_path, rates=(1e-3,), variants=("unfrozen-random",)), tmp_path / "results"
    train(study, results, stop_after=2)  # the start, and the evaluation at step 10 of 20
    assert not rows(results)
    change_file(monkeypatch, "trainables/stacked/layers.py")
    assert changes(study, results)[0] == "1 recorded run was trained by another version of trainables/stacked/layers.py"


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_resumed_after_a_change_is_a_problem_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, results = write_study(tmp_path, rates=(1e-3,), variants=("unfrozen-random",)), tmp_path / "results"
    train(study, results, stop_after=2)
    old = {"datasets/digits.py": "old"}
    monkeypatch.setattr("lr_sweep.sweep.results.changes.code_of", lambda task, engine: old)
    train(study, results)
    text = succeeds("report", "tiny", "--results", results)
    assert "problem: unfrozen-random: 1 of 1 runs resumed after a change of datasets/digits.py" in text


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
    assert "changed    2 recorded runs are no longer wanted and left out of the report" in plan
    assert "the study has another version of the task's data or code" in plan


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


VARIANT = ("unfrozen-random",)


def recorded(study: Path, results: Path, status: str = "complete") -> list[WantedRun]:
    """Write a record in which a study's runs have ended."""
    kept, wanted = Results(results), runs_of(study, results)
    kept.prepare()
    write_wanted(kept, load_study(study), wanted)
    for run in wanted:
        row = ended_row(run.row(), [(20, 0.5, 0.5)], status, run.num_steps) | {"content": run.run.canonical_json()}
        write_parquet(kept.run(run.run_id), [row], RUNS)
        write_parquet(kept.curve(run.run_id), [evaluation(run.run_id, 20)], CURVES)
    return wanted


def said(study: Path, results: Path) -> str | None:
    return replaced_by(load_study(study), runs_of(study, results), Results(results)).line


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The record of two rates and one seed."""
    recorded(write_study(tmp_path, rates=(1e-3, 1e-2), variants=VARIANT), tmp_path / "results")
    return tmp_path / "results"


@pytest.mark.parametrize(
    ("rates", "seeds", "num_steps"),
    [((1e-3, 1e-2), 1, 20), ((1e-3, 1e-2, 1e-1), 1, 20), ((1e-3, 1e-2), 2, 20), ((1e-3, 1e-2), 1, 40)],
)
def test_an_extended_study_loses_nothing(
    tmp_path: Path, results: Path, rates: Sequence[float], seeds: int, num_steps: int
) -> None:
    study = write_study(tmp_path, rates=rates, seeds=seeds, num_steps=num_steps, variants=VARIANT)
    assert said(study, results) is None


def test_recorded_runs_that_a_changed_study_lacks_are_counted_with_the_reason(tmp_path: Path, results: Path) -> None:
    fewer, kept = write_study(tmp_path, rates=(1e-3,), variants=VARIANT), "left out of the report, but kept until `gc`"
    assert said(fewer, results) == f"1 recorded run is no longer wanted and {kept}"
    protocol = "{evaluate_every: 10, dropout: 0, batch_size: 4}"
    other = write_study(tmp_path, rates=(1e-3, 1e-2), variants=VARIANT, protocol=protocol)
    options = "protocol.batch_size, protocol.dropout, protocol.train_examples_evaluated"
    line = f"2 recorded runs are no longer wanted and {kept}: the study has another {options}"
    assert said(other, results) == line
    assert f"\nchanged    {line}" in succeeds("plan", other, "--results", results)


def test_runs_that_never_ended_are_no_loss(tmp_path: Path) -> None:
    study, never = write_study(tmp_path, variants=VARIANT), tmp_path / "never"
    Results(never).prepare()
    write_wanted(Results(never), load_study(study), runs_of(study, never))
    assert said(write_study(tmp_path, rates=(1e-3,), variants=VARIANT), never) is None


def test_cells_whose_runs_are_others_start_anew(tmp_path: Path, results: Path) -> None:
    """A rung that stopped the former runs at 1e-3 would stop the new ones before their first step."""
    kept, cell = Results(results), Cell("digits", "tiny", VARIANT[0])
    other = cell._replace(model="other")
    labels = {"learning_rate": 1e-3, "step": 10, "value": 0.1, "num_compared": 2, "kept": False}
    write_parquet(Results(results).rungs("tiny"), [each._asdict() | labels for each in (cell, other)], RUNGS)
    proposal = {"number": 0, "round": 1, "learning_rate": 1e-3, "sampler": "refine", "options": None, "seed": None}
    write_parquet(kept.proposals("tiny"), [each._asdict() | proposal for each in (cell, other)], PROPOSALS)
    fewer = write_study(tmp_path, rates=(1e-3,), variants=VARIANT)
    assert not replaced_by(load_study(fewer), runs_of(fewer, results), kept).cells
    study = write_study(tmp_path, rates=(1e-3,), variants=VARIANT, protocol="{evaluate_every: 10, dropout: 0}")
    replaced = replaced_by(load_study(study), runs_of(study, results), kept)
    assert replaced.cells == {cell}
    restart_cells(kept, "tiny", replaced.cells)
    for path, columns in ((Results(results).rungs("tiny"), RUNGS), (kept.proposals("tiny"), PROPOSALS)):
        assert [row["model"] for row in read_rows(path, columns) or []] == ["other"]


BODY = "for _ in session.steps():\n    if session.due:\n        session.report(validation=0.5, test=0.5)"


def test_ls_writes_a_run_s_values_by_its_own_metric(tmp_path: Path) -> None:
    """A loss of 3.887 of a study whose name another study, of an accuracy, has taken since."""
    results = tmp_path / "results"
    (run,) = recorded(write_function(tmp_path, BODY, metric="{name: loss, higher_is_better: false}"), results)
    (row,) = read_rows(Results(results).run(run.run_id), RUNS) or []
    write_parquet(Results(results).run(run.run_id), [row | {"validation_at_best": 3.887}], RUNS)
    recorded(write_function(tmp_path, BODY), results)  # of an accuracy, under the same name
    text = succeeds("ls", "--results", results)
    assert "3.887" in text
    assert "388.7%" not in text
