"""Permissions: results follow the user's umask, and what another user may not read is not called damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lr_sweep.analysis.study_report import write_report
from lr_sweep.common.files import write_json
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.file_modes import as_another_user, open_folder, umask
from lr_sweep.tests.support.records import four_runs, run_id_of
from lr_sweep.tests.support.small_runs import CPU
from lr_sweep.tests.support.tiny_study import SIZE, refused, said, train, write_study
from lr_sweep.trainables.pretraining.loop import pretrain
from lr_sweep.trainables.pretraining.recipe import PretrainRecipe


def modes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): oct(path.stat().st_mode & 0o777) for path in folder.rglob("*")}


def test_every_file_of_a_results_directory_follows_the_umask(tmp_path: Path) -> None:
    """Checkpoints and weights, too, which safetensors leaves to their owner alone."""
    results = Results(tmp_path / "results")
    recipe = PretrainRecipe(num_steps=1, batch_size=2, num_tokens=8, learning_rate=1e-3)
    with umask(0o027):
        train(write_study(tmp_path, variants=("frozen-pretrained",), rates=(1e-3,)), results)
        pretrain(SIZE, recipe, b"a text " * 50, results.pretrained / "gpt2-1x16-000000000000", CPU, lambda *_: None)
        with results.writing("tiny"):
            write_report(results.root, "tiny")
            write_json(results.progress("tiny"), {})
    found = modes(results.root)
    kinds = {Path(name).parts[0] for name in found}
    assert kinds >= {"format.json", "runs", "curves", "checkpoints", "pretrained", "studies", "logs", "writer.lock"}
    assert any(name.startswith("studies/tiny/report/") for name in found)
    expected = {name: "0o750" if (results.root / name).is_dir() else "0o640" for name in found}
    assert found == expected


@pytest.fixture(scope="module")
def shared() -> Iterator[Results]:
    """A results directory that another user may read all of."""
    with open_folder() as folder:
        results = four_runs(folder / "results")
        said("verify", "--results", results.root)  # imports all it needs
        yield results


Close = Callable[[Results], Path]
"""Closes something to other users, and returns it."""


def closed(path: Path, mode: int) -> Path:
    path.chmod(mode)
    return path


FILES: dict[str, Close] = {
    "row": lambda results: closed(results.run(run_id_of(0)), 0o600),
    "curve": lambda results: closed(results.curve(run_id_of(0)), 0o600),
    "checkpoint": lambda results: closed(next(results.checkpoints(run_id_of(0)).iterdir()), 0o600),
    "weights": lambda results: closed(next(results.pretrained.glob("*/model.safetensors")), 0o600),
    "facts about weights": lambda results: closed(next(results.pretrained.glob("*/pretraining.json")), 0o600),
    "wanted": lambda results: closed(results.study("first") / "wanted.parquet", 0o600),
    "study": lambda results: closed(results.study("first") / "study.json", 0o600),
}
FOLDERS: dict[str, Close] = {
    "folder of checkpoints": lambda results: closed(results.checkpoints(run_id_of(0)), 0o700),
    "all checkpoints": lambda results: closed(results.root / "checkpoints", 0o700),
    "checkpoints' names alone": lambda results: closed(results.root / "checkpoints", 0o744),
    "folder of weights": lambda results: closed(next(results.pretrained.iterdir()), 0o700),
    "all weights": lambda results: closed(results.pretrained, 0o700),
    "weights' names alone": lambda results: closed(results.pretrained, 0o744),
    "folder of a study": lambda results: closed(results.study("first"), 0o700),
}
RECORD: dict[str, Close] = {
    "runs": lambda results: closed(results.root / "runs", 0o700),
    "curves": lambda results: closed(results.root / "curves", 0o744),
    "studies": lambda results: closed(results.root / "studies", 0o700),
    "all": lambda results: closed(results.root, 0o700),
    "format": lambda results: closed(results.root / "format.json", 0o600),
}
READING = ("ls", "status", "report")


@pytest.fixture
def copy(shared: Results) -> Iterator[Results]:
    with open_folder() as folder:
        yield Results(Path(shutil.copytree(shared.root, folder / "results")))


def problems(results: Results) -> set[str]:
    """What `verify` calls a problem."""
    _, printed = said("verify", "--results", results.root)
    return {line for line in printed.splitlines() if line.startswith("problem: ")}


@pytest.mark.parametrize("what", [*FILES, *FOLDERS])
def test_what_another_user_may_not_read_is_not_called_damaged(copy: Results, what: str) -> None:
    before = problems(copy)
    path = (FILES | FOLDERS)[what](copy)
    with as_another_user():
        (problem,) = problems(copy) - before
    assert problem.startswith(f"problem: cannot read {path}")
    assert ": Permission denied. It may be intact: check its disk and its permissions" in problem
    assert "delete" not in problem


OF_RECORD = [*((what, "ls") for what in RECORD), *(("runs", command) for command in READING[1:])]
OF_RECORD += [("all", command) for command in ("verify", "show", "gc", "export")]
OF_FILE = [(what, command) for what in ("row", "wanted", "all checkpoints") for command in READING]
OF_FILE.remove(("all checkpoints", "report"))  # a report does without


@pytest.mark.parametrize(("what", "command"), [*OF_RECORD, *OF_FILE])
def test_what_cannot_be_read_is_named_and_a_closed_record_does_not_seem_empty(
    copy: Results, what: str, command: str
) -> None:
    path = (FILES | FOLDERS | RECORD)[what](copy)
    rest = {"status": ["first"], "show": [run_id_of(0)], "report": ["first"]}
    rest |= {"gc": ["--yes"], "export": [str(copy.root.parent / "a.csv")]}
    with as_another_user():
        message = refused(command, *rest.get(command, []), "--results", copy.root)
    assert str(path) in message
    assert "Permission denied" in message
    assert "delete" not in message
