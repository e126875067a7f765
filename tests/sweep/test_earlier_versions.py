"""Directories that earlier versions of the program began, and lost by SIGKILL, end as if one version had trained all.

The earlier versions are read from git's history, and run with the libraries that are installed now.
"""

from __future__ import annotations

import json
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.chaos import Sweep, final_weights, record_content
from lr_sweep.tests.support.own_study import write_own_study
from lr_sweep.tests.support.tiny_study import ROOT, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
VERSIONS = ("8c2fd8c", "38a6b83e", "c649afbf", "7c3a1aaf")
WRITER = ("git_commit", "git_dirty", "code")
"""Columns of the code that trained a run."""


def installed(version: str, folder: Path) -> Path:
    """Write a version and an environment that has it and all libraries; return the environment's Python."""
    packed = subprocess.run(["git", "-C", ROOT, "archive", version], capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"git has no commit {version} here, as in a shallow clone")
    (folder / "lr_sweep").mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", folder / "lr_sweep"], input=packed.stdout, check=True)
    venv.create(folder / "env", symlinks=True)
    (site,) = folder.glob("env/lib/python*/site-packages")
    (site / "paths.pth").write_text(f"{folder}\n{sysconfig.get_path('purelib')}\n")
    return folder / "env" / "bin" / "python"


def studies(folder: Path) -> list[Path]:
    """Write a study of the built-in trainer, and one of an own function."""
    folder.mkdir()
    return [write_study(folder, num_steps=600, seeds=2, runs_per_trial=2), write_own_study(folder, num_steps=600)]


def trained(study: Path, results: Path, python: Path | None = None) -> None:
    """Train a study to its end; with an earlier version's Python, begin it there and kill that in the middle."""
    if python is not None:
        begun = Sweep(study, results, python=python)
        try:
            begun.kill_when(lambda: bool(ended(results)), "group")
        finally:
            begun.end()
        assert ended(results)
    sweep = Sweep(study, results)
    try:
        assert sweep.finish() == 0, sweep.log.read_text()
    finally:
        sweep.end()


def ended(results: Path) -> list[str]:
    return [path.stem for path in results.glob("runs/*.parquet")]


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Studies trained by this version alone, by name."""
    folder = tmp_path_factory.mktemp("twins")
    found = {}
    for study in studies(folder / "studies"):
        found[study.stem] = folder / study.stem
        trained(study, found[study.stem])
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_earlier_version_began_ends_bit_for_bit(version: str, twins: dict[str, Path], tmp_path: Path) -> None:
    python = installed(version, tmp_path / version)
    for study in studies(tmp_path / "studies"):
        results = tmp_path / study.stem
        trained(study, results, python)
        assert content(results) == content(twins[study.stem])
        assert final_weights(results) == final_weights(twins[study.stem])
        assert main(["verify", "--results", str(results)]) == 0
        assert main(["report", str(study), "--results", str(results)]) == 0


def content(results: Path) -> dict[str, Any]:
    """All of the record but the versions of the code that wrote it."""
    record = record_content(results)
    runs = [{name: row[name] for name in row if name not in WRITER} for row in record["runs"]]
    for run in runs:  # a run that had ended names the version that trained it, or none
        libraries = json.loads(run["versions"])
        run["versions"] = {name: libraries[name] for name in libraries if name != "lr-sweep"}
    return {**record, "runs": runs}
