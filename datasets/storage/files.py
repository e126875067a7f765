"""Files on a disk: written whole or not at all, hashed, with the user's permissions."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Give a path to write to, and rename what was written there to `path` at the end; nothing is left of a failure.

    `durable`: wait until it is on the disk, some milliseconds; unneeded for what can be fetched again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        if durable:
            flush(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file, whole or not at all; arguments as of `whole_file`."""
    with whole_file(path, durable=durable) as partial:
        partial.write_bytes(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def flush(path: Path) -> None:
    """Wait until the system has put a file on its disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def is_locked(path: Path) -> bool:
    """Return whether a process holds a file's lock now; OSError: this user may not open it."""
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Read a whole file.

    Raises OSError if it cannot be read, is no plain file (a device may have no end, a pipe no writer) or is too large.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes", str(path))
    return content


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Hash a file's content; returns hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def follow_umask(path: Path) -> None:
    """Give a file the permissions that the user's umask, or its folder, gives to new files.

    safetensors writes by way of a temporary file, which only its owner may read.
    """
    new = path.with_name(f"{path.name}.mode")  # made to look at: a process can ask for its umask only by changing it
    new.touch()
    try:
        with suppress(PermissionError):  # a file system without permissions
            path.chmod(stat.S_IMODE(new.stat().st_mode))
    finally:
        new.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return `lr-sweep` in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lr-sweep"
