"""Copies the program into a folder that Ray sends to a cluster's machines and puts on their import path."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lr_sweep.common.source_code import CHECKOUT
from lr_sweep.sweep.results.recorder import PACKED_STATE, git_state

SENT = ("analysis", "common", "datasets", "sweep", "trainables")
"""Folders of the program that a cluster's machines get, below `lr_sweep`."""


def copy_program(folder: Path, program: Path = CHECKOUT) -> int:
    """Copy the program to `folder`/lr_sweep, record its commit there, and return its size in bytes.

    Ray's job server refuses more than 100 MiB (2.60), packed.
    """
    sizes = {file: file.stat().st_size for file in sent_files(program)}
    for file in sizes:
        copy = folder / "lr_sweep" / file.relative_to(program)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    commit, changed = git_state()
    (folder / "lr_sweep" / PACKED_STATE).write_text(json.dumps({"git_commit": commit, "git_dirty": changed}))
    return sum(sizes.values())


def sent_files(program: Path) -> list[Path]:
    """Return the files of the program that a cluster gets, sorted."""
    found = [path for folder in SENT for path in (program / folder).rglob("*")]
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)
