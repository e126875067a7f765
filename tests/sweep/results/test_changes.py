"""Runs whose code or data changed since they were trained: `plan` and `run` name them, and train nothing again."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from lr_sweep.analysis.record.columns import CURVES, PROPOSALS, RUNGS, RUNS
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.common.files import remove_below
from lr_sweep.datasets import TASKS
from lr_sweep.sweep.results import changes as results_changes
from lr_sweep.sweep.results.changes import (
    change_lines,
    code_of_tasks,
    inexact_runs,
    own_examples,
    replaced_by,
    restart_cells,
    restart_runs,
)
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.results.recorder import Recorder, write_wanted
from lr_sweep.sweep.search.state import reconcile
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.records import ended_row, evaluation
from lr_sweep.tests.support.tiny_study import cohort_here, rows, runs_of, succeeds, write_study
from lr_sweep.trainables.checkpoint import save_checkpoint
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


def test_a_run_that_resumed_after_a_change_has_both_versions_in_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, results = write_study(tmp_path, rates=(1e-3,), variants=("unfrozen-random",)), tmp_path / "results"
    train(study, results, stop_after=2)
    old = {"datasets/digits.py": "old"}
    monkeypatch.setattr("lr_sweep.sweep.results.changes.code_of", lambda task, engine: old)
    train(study, results)
    (row,) = rows(results).values()
    first, second = json.loads(row["code"])
    assert (first["from_step"], second) == (0, {"from_step": 10, "files": old})
    assert first["files"].keys() >= old.keys()


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


def checkpoint(kept: Results, run: WantedRun, step: int, resumed: str) -> None:
    save_checkpoint(kept.checkpoints(run.run_id), {}, {"step": step, "resumed": resumed})


def inexact_ids(kept: Results, wanted: list[WantedRun], **more: Any) -> list[str]:
    return [run.run_id for run in inexact_runs(reconcile(wanted, kept, **more), kept)]


def test_inexact_runs_are_known_by_their_rows_and_checkpoints(tmp_path: Path) -> None:
    """The row counts for runs that have ended, the newest checkpoint for runs that are to be trained."""
    rates = (1e-5, 1e-4, 1e-3, 1e-2)
    study, kept = write_study(tmp_path, rates=rates, variants=VARIANT), Results(tmp_path / "results")
    done, exact, started, failed = wanted = recorded(study, kept.root)
    (row,) = read_rows(kept.run(done.run_id), RUNS) or []
    write_parquet(kept.run(done.run_id), [row | {"resumed": "inexactly"}], RUNS)
    checkpoint(kept, exact, 20, "inexactly")  # the row of an exact run says so
    kept.run(started.run_id).unlink()
    checkpoint(kept, started, 10, "never")
    checkpoint(kept, started, 20, "inexactly")
    (row,) = read_rows(kept.run(failed.run_id), RUNS) or []
    write_parquet(kept.run(failed.run_id), [row | {"status": "failed", "num_steps": 10, "resumed": None}], RUNS)
    checkpoint(kept, failed, 10, "inexactly")
    assert inexact_ids(kept, wanted) == [done.run_id, started.run_id]
    assert inexact_ids(kept, wanted, retry_failed=True) == [done.run_id, started.run_id, failed.run_id]
    assert inexact_ids(kept, wanted, only={"learning_rate": {"1e-3"}}) == [started.run_id]
    plan = succeeds("plan", study, "--results", kept.root)
    assert "\nchanged    2 runs resumed inexactly; `run --restart-inexact` trains them anew" in plan


@pytest.mark.parametrize("has_row", [True, False])
def test_a_kill_while_runs_are_restarted_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_row: bool
) -> None:
    """After each removal: no row is without its curve, and a run that could resume is known to be inexact."""
    study, kept = write_study(tmp_path, rates=(1e-3,), variants=VARIANT), Results(tmp_path / "results")
    (run,) = wanted = recorded(study, kept.root)
    (row,) = read_rows(kept.run(run.run_id), RUNS) or []
    write_parquet(kept.run(run.run_id), [row | {"resumed": "inexactly"}], RUNS)
    if not has_row:
        kept.run(run.run_id).unlink()
    for step, resumed in ((10, "never"), (20, "inexactly")):
        checkpoint(kept, run, step, resumed)
    (kept.checkpoints(run.run_id) / "command").mkdir()
    removed = []

    def remove(root: Path, path: Path) -> None:
        remove_below(root, path)
        removed.append(path)
        assert kept.curve(run.run_id).exists() or not kept.run(run.run_id).exists()
        is_known = inexact_ids(kept, wanted) == [run.run_id]
        assert is_known != (not any(kept.checkpoints(run.run_id).glob("*")))

    monkeypatch.setattr(results_changes, "remove_below", remove)
    restart_runs(kept, "tiny", wanted)
    assert len(removed) == 5 + has_row
    assert reconcile(wanted, kept).states == {run.run_id: "waiting"}


def test_what_stopped_the_rate_of_a_restarted_run_is_judged_again(tmp_path: Path, results: Path) -> None:
    """The rung would end the run before its first step. Fresh runs are not judged."""
    kept, rates = Results(results), (1e-3, 1e-2)
    first, second = runs_of(write_study(tmp_path, rates=rates, variants=VARIANT), results)
    rung = {"step": 10, "value": 0.1, "num_compared": 2, "kept": False}
    write_parquet(kept.rungs("tiny"), [first.cell._asdict() | {"learning_rate": rate} | rung for rate in rates], RUNGS)
    restart_runs(kept, "tiny", [first, replace(second, fresh=True)])
    assert [row["learning_rate"] for row in read_rows(kept.rungs("tiny"), RUNGS) or []] == [1e-2]


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
