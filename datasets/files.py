"""The data directory, and how files of known content are downloaded into it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from lr_sweep.common.files import cache_folder, hash_file
from lr_sweep.common.text import command

from .task import DataError

CONNECTION_TIMEOUT_S = 10.0
"""Seconds after which a silent server counts as unreachable; without a limit a firewall costs minutes a mirror."""


@dataclass(frozen=True, kw_only=True)
class RemoteFiles:
    """Files of known content that can be downloaded."""

    task: str
    """Name in `datasets.TASKS`."""
    md5s: dict[str, str]
    """Path below that folder -> md5, as torchvision lists them."""
    download: Callable[[Path], None]
    """Puts every file of `md5s` below an empty folder; raises OSError or RuntimeError if that fails."""
    by_hand: str
    """What to do without a network, a sentence; `{folder}` stands for the absolute path of the folder."""

    @property
    def folder(self) -> str:
        """Name of the folder below the data directory."""
        return self.task.replace("-", "_")

    @property
    def checksum(self) -> str:
        """sha256 (hex) of names and md5s: identifies the content without reading it."""
        lines = "".join(f"{md5}  {name}\n" for name, md5 in sorted(self.md5s.items()))
        return hashlib.sha256(lines.encode()).hexdigest()


def default_data_dir() -> Path:
    """Return `$SWEEP_DATA_DIR` if set, else `cache_dir()`."""
    return Path(os.environ.get("SWEEP_DATA_DIR") or cache_dir()).expanduser()


def cache_dir() -> Path:
    """Return `lr-sweep/data` in the user's cache folder."""
    return cache_folder() / "data"


def require_folder(data_dir: Path) -> None:
    """Raise DataError unless the data directory is there; create it only where it is our own default."""
    if data_dir == cache_dir():
        with contextlib.suppress(OSError):  # then it does not exist, which is what we say
            data_dir.mkdir(parents=True, exist_ok=True)
    if not data_dir.is_dir():
        problem = "is not a folder" if data_dir.exists() else "does not exist"
        raise DataError(
            f"The data directory {data_dir} {problem}. Create it (mkdir -p {data_dir}) or name another."
        )


def is_writable(folder: Path) -> bool:
    """Tell whether files can be made in an existing folder, by making one: permission bits miss read-only mounts."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def fetch(remote: RemoteFiles, data_dir: Path) -> Path:
    """Return the folder of intact files, with missing ones downloaded; raises DataError if that fails."""
    root = data_dir / remote.folder
    if _missing(remote, root):
        require_folder(data_dir)
        if not is_writable(data_dir):
            raise DataError(_missing_message(remote, data_dir, f"{data_dir} is not writable"))
        with FileLock(data_dir / f".{remote.task}.lock"):
            if _missing(remote, root):
                _download(remote, data_dir)
    for name, wanted in remote.md5s.items():
        if (got := hash_file(root / name, "md5")) != wanted:
            raise DataError(
                f"{remote.task}: {root / name} is corrupted: its md5 is {got}, wanted {wanted}. "
                f"Delete it and run `{_command(remote, data_dir)}`."
            )
    return root


def _missing(remote: RemoteFiles, root: Path) -> list[str]:
    return [name for name in remote.md5s if not (root / name).is_file()]


def _download(remote: RemoteFiles, data_dir: Path) -> None:
    root = data_dir / remote.folder
    with tempfile.TemporaryDirectory(dir=data_dir, prefix=f".{remote.task}-") as scratch:
        timeout_before_s = socket.getdefaulttimeout()
        # torchvision's downloads have no option for it.
        socket.setdefaulttimeout(CONNECTION_TIMEOUT_S)
        try:
            remote.download(Path(scratch))
        except (OSError, RuntimeError) as error:
            reason = f"downloading failed: {error}"
            raise DataError(_missing_message(remote, data_dir, reason)) from error
        finally:
            socket.setdefaulttimeout(timeout_before_s)
        for name in _missing(remote, root):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(scratch) / name).replace(root / name)


def _missing_message(remote: RemoteFiles, data_dir: Path, reason: str) -> str:
    root = data_dir / remote.folder
    names = "\n".join(f"  {root / name}" for name in _missing(remote, root))
    return (
        f"{remote.task}: these files are missing:\n{names}\nand {reason.strip()}\n"
        f"With a network and a writable folder, `{_command(remote, data_dir)}` fetches them. "
        f"Without: {remote.by_hand.format(folder=root)}"
    )


def _command(remote: RemoteFiles, data_dir: Path) -> str:
    return command("data", remote.task, "--data-dir", str(data_dir))
