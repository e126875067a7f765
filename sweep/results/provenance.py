"""Which code trains runs: its commit, and the versions of this program and of libraries. Looked up once a sweep."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from lr_sweep.common.files import Fields
from lr_sweep.common.source_code import CHECKOUT

if TYPE_CHECKING:
    from lr_sweep.trainables.own.run import OwnFiles

PACKED = "packed.json"
"""In a program that was sent to a cluster: what `origin` returned where it was packed."""
PACKAGES = (
    "torch",
    "torchvision",
    "transformers",
    "ray",
    "numpy",
    "scikit-learn",
    "safetensors",
    "pyarrow",
)
GIT_S = 2.0
"""Seconds that git may take."""
GIT = ["git", "--no-optional-locks", "--literal-pathspecs", "-C"]
STATUS = ["status", "--porcelain=v2", "--branch", "--no-ahead-behind"]


def provenance(files: OwnFiles | None) -> Fields:
    """Return these columns of `RUNS`: `git_commit`, `git_dirty`, `versions`; as of `origin`."""
    columns = origin(files)
    versions = {name: _version(name) for name in PACKAGES}
    versions |= {"lr-sweep": columns.pop("version"), "python": sys.version.split()[0]}
    known = {name: version for name, version in versions.items() if version}
    return columns | {"versions": json.dumps(known)}


def origin(files: OwnFiles | None = None) -> Fields:
    """Return `git_commit` and `git_dirty` of the user's own code files, else of this program; and its `version`.

    What is not known is None: outside of a repository, or without git.
    """
    packed = CHECKOUT / PACKED
    if packed.is_file():
        return dict(json.loads(packed.read_text()))
    commit, is_dirty = _git_state(files)
    return {"git_commit": commit, "git_dirty": is_dirty, "version": _version("lr-sweep")}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a copy of the program, which is not installed
        return None


def _git_state(files: OwnFiles | None) -> tuple[str | None, bool | None]:
    # An installation may be below a folder of another repository.
    if files is None and not (CHECKOUT / ".git").exists():
        return None, None
    folder, names = (CHECKOUT, ()) if files is None else (files.folders[0], files.code)
    which = ["--untracked-files=all", "--ignored", "--", *names]
    command = [*GIT, folder, *STATUS, *(which if names else ["--untracked-files=no"])]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=GIT_S)
    except (OSError, subprocess.SubprocessError):
        return None, None
    oid, *lines = done.stdout.decode(errors="replace").splitlines()
    is_dirty = any(not line.startswith("#") for line in lines)
    return (None, None) if "(initial)" in oid else (oid.split()[-1], is_dirty)
