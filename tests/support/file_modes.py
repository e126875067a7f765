"""Permissions of files: the process's umask, and another user who may not read everything."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Have new files lack these permissions meanwhile."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def as_another_user() -> Iterator[None]:
    """Have this process be the user `nobody` meanwhile; what it needs of code must have been imported."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user for a while")
    groups = os.getgroups()
    try:
        os.setgroups([])
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@contextmanager
def open_folder() -> Iterator[Path]:
    """Give a temporary folder that everybody may enter; pytest's are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="lr-sweep-test-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path
