"""Scratch folders of processes, below one folder of the user's; what a killed process left is found by its lock."""

from __future__ import annotations

import fcntl
import itertools
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import UserError
from .files import remove_tree


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Yield a new folder that only this user can enter, and remove it at the end; first remove those left by others."""
    parent = own_folder()
    remove_dead(parent)
    with locked_folder(parent, prefix) as folder:
        try:
            yield folder
        finally:
            remove_tree(folder)


@contextmanager
def locked_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder, locked until the block or this process ends, which `remove_dead` then may remove."""
    with _alone(parent):
        folder = _new_folder(parent, prefix)
        lock = _locked(folder)
    try:
        yield folder
    finally:
        if lock is not None:  # None: a file system without locks
            os.close(lock)


def _new_folder(parent: Path, prefix: str) -> Path:
    for number in itertools.count():  # a short name: sockets below it have short paths
        folder = parent / f"{prefix}{number}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise AssertionError("numbers do not end")


def own_folder(parent: Path | None = None, max_bytes: int = 1000) -> Path:
    """Return the folder `lr-sweep-UID`, which only this user can enter, in `parent`; None: that for temporary files.

    It is in /tmp where its path would have more than `max_bytes`. Raises OSError if it cannot be made, UserError if
    something else is in its place.
    """
    parent, name = parent or Path(tempfile.gettempdir()), f"lr-sweep-{os.getuid()}"
    folder = (Path("/tmp") if len(os.fsencode(parent / name)) > max_bytes else parent) / name
    with suppress(FileExistsError):
        folder.mkdir(parents=True, mode=0o700)
    there = folder.lstat()
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.getuid():
        raise UserError(
            f"{folder} is of user {there.st_uid} or no folder, want a folder that only you, user {os.getuid()}, can "
            f"enter. Remove it, or set TMPDIR (and RAY_TMPDIR, if it is set) to a folder of yours."
        )
    folder.chmod(0o700)
    return folder


def remove_dead(parent: Path) -> None:
    """Remove the folders of ended processes."""
    with _alone(parent):
        for folder in _dead(parent):
            remove_tree(folder)


def _dead(parent: Path) -> Iterator[Path]:
    for folder in sorted(parent.glob("*-*")):
        if (lock := _locked(folder)) is not None:
            os.close(lock)
            yield folder


@contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """Let one process at a time make, look for or remove folders, where the file system has locks."""
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork may have the descriptor, too
        os.close(descriptor)


def _locked(folder: Path) -> int | None:
    """Lock a folder until the returned descriptor is closed in the process and its forks; None: this cannot be done."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with suppress(OSError):
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    os.close(descriptor)
    return None
