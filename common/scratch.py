"""Scratch folders of processes, below one folder of the user's; what a killed process left is found by its lock."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Yield a new folder that only this user can enter; remove it at the end.

    Before that, folders that ended processes left are removed.
    """
    parent = own_folder()
    remove_dead(parent)
    with locked_folder(parent, prefix) as folder:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder, locked until the block or this process ends, which `remove_dead` then may remove."""
    folder, descriptor = _new_folder(parent, prefix)
    try:
        yield folder
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _new_folder(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """Make a folder and lock it; None for its lock: this file system has none, so no process will remove it."""
    for number in itertools.count():  # a short name: sockets below it have short paths
        folder = parent / f"{prefix}{number}"
        with suppress(FileExistsError, _GoneError):
            folder.mkdir(mode=0o700)
            return folder, _locked(folder, wait=True)
    raise AssertionError("numbers do not end")


def own_folder(parent: Path | None = None, max_bytes: int = 1000) -> Path:
    """Return the folder `lr-sweep-UID`, which only this user can enter, in `parent`; None: that for temporary files.

    It is in /tmp where its path would have more than `max_bytes`; it has a longer name where another user made it
    first. Raises OSError if it cannot be made.
    """
    parent = parent or Path(tempfile.gettempdir())
    name = f"lr-sweep-{os.getuid()}"
    if len(os.fsencode(parent / name)) > max_bytes:
        parent = Path("/tmp")
    with suppress(FileExistsError):
        (parent / name).mkdir(parents=True, mode=0o700)
    if _is_own_folder(parent / name):
        (parent / name).chmod(0o700)
        return parent / name
    others = sorted(folder for folder in Path("/tmp").glob(f"{name}-*") if _is_own_folder(folder))
    return others[0] if others else Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/tmp"))


def _is_own_folder(path: Path) -> bool:
    there = path.lstat()
    return stat.S_ISDIR(there.st_mode) and there.st_uid == os.getuid()


def remove_dead(parent: Path) -> None:
    """Remove the folders of ended processes."""
    for folder, descriptor in _dead(parent):
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def dead_folders(parent: Path) -> list[Path]:
    """Return the folders in an `own_folder` that no living process has locked."""
    dead = list(_dead(parent))
    for _, descriptor in dead:
        os.close(descriptor)
    return [folder for folder, _ in dead]


def _dead(parent: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folders that no living process has locked, each locked, with the lock's descriptor."""
    for folder in sorted(parent.glob("*-*")):
        with suppress(_GoneError):
            if (descriptor := _locked(folder)) is not None:
                yield folder, descriptor


class _GoneError(Exception):
    """Another process removed a folder before this one had locked it."""


def _locked(folder: Path, *, wait: bool = False) -> int | None:
    """Lock a folder until the returned descriptor is closed, at the latest when the process and its forks have ended.

    None: it is locked, or no folder of this user. Raises _GoneError if it is gone, or another has its name by now.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise _GoneError from error
        return None
    locked = os.fstat(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if locked.st_uid == os.getuid():
            if os.path.samestat(locked, folder.lstat()):
                return descriptor
            raise FileNotFoundError
    except FileNotFoundError as error:
        os.close(descriptor)
        raise _GoneError from error
    except OSError:  # locked by another process, or a file system without locks
        pass
    os.close(descriptor)
    return None
