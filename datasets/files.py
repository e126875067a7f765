"""Where data lies and how it gets there: checksums, downloads, locks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shlex
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from datasets.task import DataError

CONNECTION_TIMEOUT_S = 10.0
"""A server that stays silent for so long counts as unreachable; without a limit a firewall costs minutes a mirror."""


@dataclass(frozen=True, kw_only=True)
class RemoteFiles:
    """Files of known content that can be downloaded."""

    task: str
    """Name in `datasets.TASKS`, for messages."""
    folder: str
    """Folder below the data directory."""
    md5s: dict[str, str]
    """Path below `folder` -> md5, as torchvision lists them."""
    download: Callable[[Path], None]
    """Puts every file of `md5s` below an empty folder; raises OSError or RuntimeError if that fails."""
    by_hand: str
    """What to do without a network, a sentence; `{folder}` stands for the absolute path of `folder`."""

    @property
    def checksum(self) -> str:
        """sha256 (hex) of names and md5s: identifies the content without reading it."""
        lines = "".join(f"{md5}  {name}\n" for name, md5 in sorted(self.md5s.items()))
        return hashlib.sha256(lines.encode()).hexdigest()


def default_data_dir() -> Path:
    """`$SWEEP_DATA_DIR` if set, else `cache_dir()`."""
    configured = os.environ.get("SWEEP_DATA_DIR")
    return Path(configured).expanduser() if configured else cache_dir()


def cache_dir() -> Path:
    """`lr-sweep/data` in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`)."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "lr-sweep" / "data"


def require_folder(data_dir: Path) -> None:
    """Check that the data directory is there; create it only where it is our own default.

    Raises:
        DataError: it does not exist, or is not a folder.
    """
    if data_dir == cache_dir():
        with contextlib.suppress(OSError):  # then it does not exist, which is what we say
            data_dir.mkdir(parents=True, exist_ok=True)
    if not data_dir.is_dir():
        problem = "is not a folder" if data_dir.exists() else "does not exist"
        raise DataError(f"The data directory {data_dir} {problem}. Create it (mkdir -p {data_dir}) or name another.")


def is_writable(folder: Path) -> bool:
    """Tell whether files can be made in an existing folder, by making one: permission bits miss read-only mounts."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def locked(data_dir: Path, name: str) -> Iterator[None]:
    """Hold the lock file `.name.lock` of a data directory; waits for other processes as long as it takes."""
    with FileLock(data_dir / f".{name}.lock"):
        yield


def fetch(remote: RemoteFiles, data_dir: Path) -> Path:
    """Make sure all files are there and intact, downloading what is missing; safe in several processes at once.

    Writes nothing where nothing is missing.

    Returns:
        The folder that holds the files, `data_dir / remote.folder`.

    Raises:
        DataError: missing and not to be had, or corrupted.
    """
    root = data_dir / remote.folder
    if _missing(remote, root):
        require_folder(data_dir)
        if not is_writable(data_dir):
            raise DataError(_missing_message(remote, data_dir, f"{data_dir} is not writable"))
        with locked(data_dir, remote.folder):
            if _missing(remote, root):
                _download(remote, data_dir)
    _verify(remote, data_dir)
    return root


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Read a whole file.

    Raises:
        OSError: it cannot be read, is no plain file (a device may have no end, a pipe no writer) or is too large.
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
        with contextlib.suppress(PermissionError):  # a file system without permissions
            path.chmod(stat.S_IMODE(new.stat().st_mode))
    finally:
        new.unlink(missing_ok=True)


def _missing(remote: RemoteFiles, root: Path) -> list[str]:
    return [name for name in remote.md5s if not (root / name).is_file()]


def _verify(remote: RemoteFiles, data_dir: Path) -> None:
    for name, wanted in remote.md5s.items():
        path = data_dir / remote.folder / name
        got = hash_file(path, "md5")
        if got != wanted:
            raise DataError(
                f"{remote.task}: {path} is corrupted: its md5 is {got}, wanted {wanted}. "
                f"Delete it and run `{_command(remote, data_dir)}`."
            )


def _download(remote: RemoteFiles, data_dir: Path) -> None:
    """Download everything beside its place, then move in what is missing."""
    root = data_dir / remote.folder
    with tempfile.TemporaryDirectory(dir=data_dir, prefix=f".{remote.folder}-") as scratch:
        try:
            with _connection_timeout(CONNECTION_TIMEOUT_S):
                remote.download(Path(scratch))
        except (OSError, RuntimeError) as error:
            raise DataError(_missing_message(remote, data_dir, f"downloading failed: {error}")) from error
        for name in _missing(remote, root):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(scratch) / name).replace(root / name)


@contextlib.contextmanager
def _connection_timeout(timeout_s: float) -> Iterator[None]:
    """Limit the waits of sockets made inside: torchvision's downloads have no option for it."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(timeout_s)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _missing_message(remote: RemoteFiles, data_dir: Path, reason: str) -> str:
    root = data_dir / remote.folder
    names = "\n".join(f"  {root / name}" for name in _missing(remote, root))
    return (
        f"{remote.task}: these files are missing:\n{names}\nand {reason.strip()}\n"
        f"With a network and a writable folder, `{_command(remote, data_dir)}` fetches them. "
        f"Without: {remote.by_hand.format(folder=root)}"
    )


def _command(remote: RemoteFiles, data_dir: Path) -> str:
    return f"python -m sweep data {remote.task} --data-dir {shlex.quote(str(data_dir))}"
