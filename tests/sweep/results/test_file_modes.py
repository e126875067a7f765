"""Permissions: results follow the user's umask, and what another user may not read is not called damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
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


@pytest.mark.usefixtures("undrawn")
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


RUN, WEIGHTS = run_id_of(0), "pretrained/gpt2-2x16-000000000000"
PARTS = {
    **{"row": (f"runs/{RUN}.parquet", 0o600), "curve": (f"curves/{RUN}.parquet", 0o600)},
    **{"checkpoint": (f"checkpoints/{RUN}/step-*", 0o600), "weights": (f"{WEIGHTS}/model.safetensors", 0o600)},
    "facts about weights": (f"{WEIGHTS}/pretraining.json", 0o600),
    **{name: (f"studies/first/{name}", 0o600) for name in ("wanted.parquet", "study.json")},
    **{"folder of checkpoints": (f"checkpoints/{RUN}", 0o700), "folder of weights": (WEIGHTS, 0o700)},
    **{"all checkpoints": ("checkpoints", 0o700), "checkpoints' names alone": ("checkpoints", 0o744)},
    **{"all weights": ("pretrained", 0o700), "weights' names alone": ("pretrained", 0o744)},
    "folder of a study": ("studies/first", 0o700),
}
"""Parts of a record that `verify` can do without, as patterns, and modes that close them to other users."""
RECORD = {
    **{"runs": ("runs", 0o700), "curves": ("curves", 0o744), "studies": ("studies", 0o700)},
    **{"all": ("", 0o700), "format": ("format.json", 0o600)},
}


def closed(results: Results, what: str) -> Path:
    pattern, mode = (PARTS | RECORD)[what]
    (path,) = results.root.parent.glob(f"{results.root.name}/{pattern}")
    path.chmod(mode)
    return path


READING = ("ls", "status", "report")


@pytest.fixture
def copy(shared: Results) -> Iterator[Results]:
    with open_folder() as folder:
        yield Results(Path(shutil.copytree(shared.root, folder / "results")))


def problems(results: Results) -> set[str]:
    """What `verify` calls a problem."""
    _, printed = said("verify", "--results", results.root)
    return {line for line in printed.splitlines() if line.startswith("problem: ")}


@pytest.mark.parametrize("what", PARTS)
def test_what_another_user_may_not_read_is_not_called_damaged(copy: Results, what: str) -> None:
    before = problems(copy)
    path = closed(copy, what)
    with as_another_user():
        (problem,) = problems(copy) - before
    assert problem.startswith(f"problem: cannot read {path}")
    assert ": Permission denied. It may be intact: check its disk and its permissions" in problem
    assert "delete" not in problem


OF_RECORD = [*((what, "ls") for what in RECORD), *(("runs", command) for command in READING[1:])]
OF_RECORD += [("all", command) for command in ("verify", "show", "gc", "export")]
OF_FILE = [(what, command) for what in ("row", "wanted.parquet", "all checkpoints") for command in READING]
OF_FILE.remove(("all checkpoints", "report"))  # a report does without


@pytest.mark.parametrize(("what", "command"), [*OF_RECORD, *OF_FILE])
def test_what_cannot_be_read_is_named_and_a_closed_record_does_not_seem_empty(
    copy: Results, what: str, command: str
) -> None:
    path = closed(copy, what)
    rest = {"status": ["first"], "show": [RUN], "report": ["first"]}
    rest |= {"gc": ["--yes"], "export": [str(copy.root.parent / "a.csv")]}
    with as_another_user():
        message = refused(command, *rest.get(command, []), "--results", copy.root)
    assert str(path) in message
    assert "Permission denied" in message
    assert "delete" not in message
