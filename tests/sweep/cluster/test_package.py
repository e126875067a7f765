"""The copy of the program that a cluster gets."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from lr_sweep.sweep.cluster.package import SENT, copy_program, sent_files
from lr_sweep.sweep.results import recorder
from lr_sweep.tests.support.tiny_study import ROOT

MIB = 2**20


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    left_out = (".git/config", "results/runs/r.parquet", "docs/d.md", "sweep/__pycache__/a.pyc", "README.md")
    for name in ("sweep/a.py", *left_out):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_what_is_copied(checkout: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    assert copy_program(there, checkout) == len("sweep/a.py")
    files = {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()}
    assert files == {"lr_sweep/packed.json", "lr_sweep/sweep/a.py"}
    assert (there / "lr_sweep" / "sweep" / "a.py").read_text() == "sweep/a.py"


@pytest.mark.cluster
def test_equal_checkouts_make_equal_packages(checkout: Path, tmp_path: Path) -> None:
    """Ray names packages by their content, and does not send again what a cluster has."""
    from ray._private.runtime_env.packaging import get_uri_for_directory

    packages = set()
    for name in ("first", "second"):
        copy_program(tmp_path / name, checkout)
        packages.add(get_uri_for_directory(str(tmp_path / name), include_gitignore=True))
        os.utime(checkout / "sweep" / "a.py", (0, 0))
    assert len(packages) == 1


DOCKERFILE = [line.split() for line in (ROOT / "docs/cluster/Dockerfile").read_text().splitlines()]


def mounted(cluster_file: str) -> set[str]:
    return set(yaml.safe_load((ROOT / cluster_file).read_text())["file_mounts"].values())


@pytest.mark.parametrize(
    "copied",
    [
        set(SENT),
        mounted("cluster.yaml"),
        mounted("docs/cluster/local.yaml"),
        {word for line in DOCKERFILE if line[:1] == ["COPY"] for word in line[1:-1]},
    ],
    ids=["a job", "cluster.yaml", "local.yaml", "the image"],
)
def test_every_copy_has_all_folders_of_the_program(copied: set[str]) -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {name.split(".")[1] for name in packages if "." in name}
    assert folders <= copied
    assert all(name.startswith("~") or (ROOT / name).exists() for name in copied)


def test_all_of_this_program_is_sent_and_fits() -> None:
    tracked = subprocess.run(["git", "ls-files", *SENT], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no git checkout")
    sent = {path.relative_to(ROOT).as_posix() for path in sent_files(ROOT)}
    assert {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()} <= sent
    assert sum((ROOT / name).stat().st_size for name in sent) < 20 * MIB


def test_a_copy_knows_its_commit(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs trained on a cluster are recorded with the commit of the laptop's checkout; .git is not sent."""
    monkeypatch.setattr("lr_sweep.sweep.cluster.package.git_state", lambda: ("0f3a", True))
    copy_program(tmp_path / "there", checkout)
    monkeypatch.setattr(recorder, "CHECKOUT", tmp_path / "there" / "lr_sweep")
    assert recorder.git_state() == ("0f3a", True)


def test_the_commit_is_none_below_a_folder_of_another_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment with the program in it may be below one."""
    monkeypatch.setattr(recorder, "CHECKOUT", ROOT / "sweep")
    assert recorder.git_state() == (None, None)
