"""What `verify` finds in a record that was trained here and then damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from lr_sweep.analysis.record.columns import CURVES, RUNS, WANTED
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import hash_file
from lr_sweep.sweep.inspection.verify import Verification, probe_study
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.records import summary_of, verify_lines
from lr_sweep.tests.support.tiny_study import in_process, train, write_study
from lr_sweep.trainables.own.exactness import Probe

CLEAN = "2 runs, 4 evaluations, 2 checkpoints, 1 weights: no problems"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two complete runs of 20 steps, evaluated at 10 and 20, and a folder of weights."""
    folder = tmp_path_factory.mktemp("trained")
    results = Results(folder / "results")
    train(write_study(folder, variants=("frozen-pretrained",)), results)
    write_weights(results.pretrained / "gpt2")
    return results.root


@pytest.fixture
def results(trained: Path, tmp_path: Path) -> Results:
    shutil.copytree(trained, tmp_path / "results")
    return Results(tmp_path / "results")


def write_weights(folder: Path) -> None:
    folder.mkdir()
    save_file({"wpe.weight": np.zeros((3, 2), np.float32)}, folder / "model.safetensors")
    facts = {"weights_sha256": hash_file(folder / "model.safetensors")}
    (folder / "pretraining.json").write_text(json.dumps(facts))


def first_id(results: Results) -> str:
    return min(path.stem for path in (results.root / "runs").iterdir())


Change = Callable[[list[dict[str, Any]]], object]


def change(path: Path, how: Change) -> None:
    """Change rows of a file, and write it with a checksum that fits."""
    columns = {"runs": RUNS, "curves": CURVES}.get(path.parent.name, WANTED)
    rows = read_rows(path, columns)
    assert rows is not None
    how(rows)
    write_parquet(path, rows, columns)


def set_content(**values: Any) -> Change:
    def how(rows: list[dict[str, Any]]) -> None:
        content = json.loads(rows[0]["content"]) | values
        rows[0]["content"] = json.dumps(content, sort_keys=True, separators=(",", ":"))

    return how


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        (lambda rows: rows.clear(), "got 0 rows, want 1"),
        (lambda rows: rows.append(rows[0]), "got 2 rows, want 1"),
        (lambda rows: rows[0].update(run_id="ab"), "got the row of run ab, want that of the file's name"),
        (set_content(batch=1), "its content is that of run "),
        (lambda rows: rows[0].update(content="[]"), "its content is that of run 4f53cda18c2baa0c"),
        (lambda rows: rows[0].update(seed=7), "seed: got 7, content has 0"),
        (lambda rows: rows[0].update(learning_rate=0.5), "learning_rate: got 0.5, content has 0.0"),
        (lambda rows: rows[0].update(task="mnist"), "task: got mnist, content has digits"),
        (lambda rows: rows[0].update(protocol_version=9), "protocol_version: got 9, content has 1"),
        (lambda rows: rows[0].update(status="done"), "got status 'done', want one of complete, diverged, failed"),
        (lambda rows: rows[0].update(status="complete", num_steps=0), "complete after 0 steps"),
        (lambda rows: rows[0].update(status="diverged"), "diverged after 20 steps, and diverged_at_step is None"),
        (lambda rows: rows[0].update(diverged_at_step=3), "complete after 20 steps, and diverged_at_step is 3"),
        (lambda rows: rows[0].update(versions="[]"), "got '[]' as versions, want what docs/record.md says"),
        (lambda rows: rows[0].update(code="{oops"), "got '{oops' as code, want what docs/record.md says"),
    ],
)
def test_a_row_that_cannot_be(results: Results, how: Change, wanted: str) -> None:
    path = results.run(first_id(results))
    change(path, how)
    problem, *_ = verify_lines(results)
    assert problem.startswith(f"problem: {path}: {wanted}")
    assert problem.endswith(": delete it and run the study again")


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        (lambda rows: rows.clear(), "got no evaluations, want one at least"),
        (lambda rows: rows[0].update(run_id="ab"), "got evaluations of run ab, want those of the file's name alone"),
        (lambda rows: rows.reverse(), "evaluation 1 is at step 20, want 10"),
        (lambda rows: rows.insert(0, rows[0]), "evaluation 2 is at step 10, want 20"),
        (lambda rows: rows.pop(0), "evaluation 1 is at step 20, want 10"),
        (lambda rows: rows.pop(), "its last evaluation is at step 10, want 20: its row says complete at step 20"),
        # of another training, as after two directories were joined
        (lambda rows: rows[1].update(validation=1.5), "its validation at step "),
        (lambda rows: [row.update(test=1.5) for row in rows], "its test at step "),
    ],
)
def test_a_curve_that_cannot_be(results: Results, how: Change, wanted: str) -> None:
    path, row = results.curve(first_id(results)), results.run(first_id(results))
    change(path, how)
    problem, summary = verify_lines(results)
    assert problem.startswith(f"problem: {path}: {wanted}")
    assert problem.endswith(f": delete it, and {row} if there is one, and run the study again")
    assert summary.endswith(": 1 problem")


def test_a_row_without_its_curve(results: Results) -> None:
    run_id = first_id(results)
    results.curve(run_id).unlink()
    problem = f"problem: {results.run(run_id)}: it has no evaluations, want some up to step 20: delete it and run the"
    assert verify_lines(results)[0].startswith(problem)


@pytest.mark.parametrize(("diverged_at", "num_points"), [(20, 1), (11, 1), (21, 2), (10, 0), (3, 0)])
def test_a_diverged_run_has_the_evaluations_before_it_diverged(
    results: Results, diverged_at: int, num_points: int
) -> None:
    run_id = first_id(results)
    ended = {"status": "diverged", "num_steps": diverged_at, "diverged_at_step": diverged_at}
    change(results.run(run_id), lambda rows: rows[0].update(ended))
    if num_points:
        change(results.curve(run_id), lambda rows: rows.__delitem__(slice(num_points, None)))
    else:
        results.curve(run_id).unlink()
    assert verify_lines(results)[0].endswith("no problems")


def test_directories_that_are_joined_by_copying_files_have_the_runs_of_both(results: Results, tmp_path: Path) -> None:
    study = write_study(tmp_path, variants=("unfrozen-random",), study="second").rename(tmp_path / "second.yaml")
    train(study, Results(tmp_path / "other"))
    shutil.copytree(tmp_path / "other", results.root, dirs_exist_ok=True)
    assert verify_lines(results) == ["4 runs, 8 evaluations, 4 checkpoints, 1 weights: no problems"]
    for name in ("tiny", "second"):
        assert summary_of(results.root, name).runs["status"].tolist() == ["complete"] * 2


def test_a_failed_run_may_have_trained_past_its_last_evaluation(results: Results) -> None:
    run_id = first_id(results)
    ended = {"status": "failed", "num_steps": 35, "failure": "out of memory"}
    change(results.run(run_id), lambda rows: rows[0].update(ended))
    assert verify_lines(results) == [CLEAN]
    results.curve(run_id).unlink()
    assert verify_lines(results) == [CLEAN.replace("4 evaluations", "2 evaluations")]


def test_an_interrupted_extension_and_an_unfinished_run_are_no_problems(results: Results) -> None:
    one, other = (results.run(path.stem) for path in sorted((results.root / "runs").iterdir()))
    change(results.curve(one.stem), lambda rows: rows.append(rows[0] | {"step": 30, "time_ms": rows[1]["time_ms"]}))
    other.unlink()
    assert verify_lines(results) == ["2 runs, 5 evaluations, 2 checkpoints, 1 weights: no problems"]


def test_a_study_that_cannot_be_read(results: Results) -> None:
    folder = results.study("tiny")
    change(folder / "wanted.parquet", lambda rows: rows.append(rows[0]))
    assert verify_lines(results)[0].startswith(f"problem: {folder / 'wanted.parquet'}: wants ")
    assert "more than once: run the study again" in verify_lines(results)[0]
    (folder / "wanted.parquet").unlink()
    assert verify_lines(results)[0].startswith(f"problem: no {folder / 'wanted.parquet'}: run the study again")
    (folder / "study.json").write_text("{")
    assert verify_lines(results)[0].startswith(f"problem: cannot read {folder / 'study.json'}")


def test_what_a_sweep_is_just_writing_is_no_problem(results: Results) -> None:
    (results.root / "runs" / ".ab.parquet.77.partial").touch()
    (results.study("tiny") / "study.json").unlink()
    with results.writing("tiny"):
        assert verify_lines(results) == ["a sweep is writing here: what it adds from now on may not be checked", CLEAN]
    assert verify_lines(results)[-1].endswith("1 problem")


def test_files_that_vanish_or_change_meanwhile_are_no_problems(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was started over ends sooner: its row and its curve go, and come back shorter."""
    run_id = first_id(results)
    (checkpoint,) = results.checkpoints(run_id).iterdir()
    real = read_rows

    def read(path: Path, columns: Any) -> Any:
        if path == results.curve(run_id) and path.exists():  # the row has been read already
            results.run(run_id).unlink()
            path.unlink()
        return real(path, columns)

    def vanish(path: Path) -> str:
        path.unlink()
        return hash_file(path)

    monkeypatch.setattr("lr_sweep.sweep.inspection.verify.read_rows", read)
    monkeypatch.setattr("lr_sweep.sweep.inspection.verify.hash_file", vanish)
    shutil.rmtree(results.pretrained / "gpt2")
    assert list(Verification(results).problems()) == []
    assert not checkpoint.exists()


UNSAVED = """
unsaved = torch.zeros(1)
weight = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight], lr=run.learning_rate)
for step in session.steps(optimizer=optimizer):
    unsaved += 0.1
    if session.due:
        session.report(validation=unsaved.item(), test=0.5)
"""


def lines(study: Path) -> tuple[int, list[str]]:
    found: list[str] = []
    return probe_study(load_study(study), study.parent, found.append), found


def test_each_cell_s_function_is_sound_or_a_problem(tmp_path: Path) -> None:
    body = "assert run.options['fine'], 'x'\nfor step in session.steps():\n    if session.due:\n        "
    study = write_function(
        tmp_path, f"{body}session.report(validation=0.5, test=0.5)", variants="{good: {fine: true}, bad: {fine: false}}"
    )
    number, (sound, problem) = lines(study)
    assert (number, sound) == (1, f"mine mine train good: {Probe().text()}")
    assert problem.startswith("problem: mine ")
    assert "AssertionError: x" in problem


def test_a_study_without_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tiny has no training function of its own"):
        lines(write_study(tmp_path))


def test_the_command(tmp_path: Path) -> None:
    """Before the first run it tries the function alone; a folder of something else is refused first."""
    study, results = write_function(tmp_path, UNSAVED), tmp_path / "none"
    code, output = in_process("verify", study, "--results", results)
    first, second = output.splitlines()
    assert (code, first) == (1, f"{results} holds nothing yet")
    assert second.startswith("problem: mine ")
    assert "these differ: the reported numbers. Not saved: unsaved in train" in second
    assert not results.exists()
    assert in_process("verify", "--results", results)[0] == 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    code, output = in_process("verify", study, "--results", tmp_path / "other")
    assert (code, "problem:" in output) == (2, False)
