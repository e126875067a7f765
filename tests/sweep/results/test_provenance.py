"""The commit of what runs: of the user's own code files, else of this program; without git nothing is known."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lr_sweep.sweep.results import provenance
from lr_sweep.tests.support.tiny_study import ROOT
from lr_sweep.trainables.own.run import OwnFiles


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", "-C", folder, *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def files(tmp_path: Path) -> OwnFiles:
    """Code of a study in a folder of a repository that has no commit yet."""
    folder = tmp_path / "repository" / "mine"
    folder.mkdir(parents=True)
    (folder / "train[1].py").write_text("x = 1")
    git(folder.parent, "init")
    return OwnFiles(trainable="train[1].py:train", code={"train[1].py": b"x = 1"}, folders=(folder,))


def state(files: OwnFiles) -> tuple[str | None, bool | None]:
    found = provenance.origin(files)
    return found["git_commit"], found["git_dirty"]


def test_the_commit_of_a_study_s_code_and_whether_that_code_is_in_it(files: OwnFiles) -> None:
    folder = files.folders[0]
    assert state(files) == (None, None)
    git(folder, "commit", "--allow-empty", "-m", "empty")
    assert state(files) == (git(folder, "rev-parse", "HEAD"), True)
    (folder.parent / ".gitignore").write_text("mine/")
    assert state(files)[1] is True
    git(folder, "add", "-f", "train[1].py")
    git(folder, "commit", "-m", "code")
    (folder / "notes.txt").write_text("not of the code")
    assert state(files) == (git(folder, "rev-parse", "HEAD"), False)
    (folder / "train[1].py").write_text("x = 2")
    assert state(files)[1] is True


def test_outside_of_a_repository_and_without_git_nothing_is_known(
    files: OwnFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(files.folders[0], "commit", "--allow-empty", "-m", "empty")
    outside = OwnFiles(trainable="train.py:train", code={"train.py": b""}, folders=(tmp_path,))
    assert state(outside) == (None, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert state(files) == (None, None)


def test_the_commit_is_none_below_a_folder_of_another_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment with the program in it may be below one."""
    monkeypatch.setattr(provenance, "CHECKOUT", ROOT / "sweep")
    assert provenance.origin()["git_commit"] is None


def test_versions_are_those_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the program on a cluster is not."""
    monkeypatch.setattr(provenance, "PACKAGES", ("pytest", "no-such-package"))
    versions = json.loads(provenance.provenance(None)["versions"])
    assert versions.keys() == {"lr-sweep", "python", "pytest"}
    assert versions["pytest"] == pytest.__version__
