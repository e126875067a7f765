"""Files on a disk: written whole or not at all, hashed, with the user's permissions; and the YAML in them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

Fields = dict[str, Any]
"""Values by name: an object of JSON, a row, options."""
ReadFields = Mapping[str, Any]
"""The same, where they are only read."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of errors of a file that takes no more."""
_HELD: dict[Path, os.stat_result] = {}
"""The folders that this process writes to, each as it was when that began."""
_PARTIAL = re.compile(r"\..+\.(?P<host>[^.]*)-(?P<pid>[0-9]+)\.partial")
_YAML_VERSION = re.compile(r"^(\ufeff?%YAML +)1\.[01](?=\s)", re.MULTILINE)
"""By the rules of 1.1 `1:30` is 90, `010` is 8, `on` is true, and 1e-3 a text."""
MOST_YAML = 1_000_000
"""Characters of YAML, and values with its aliases written out."""
_CHECKSUM = "checksum"
_MARK = b"# sha256 of the lines below: "
"""Begins a text that has a checksum of itself."""


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, where they are missing; raises OSError (ESTALE) as `hold` says."""
    for folder in _HELD:
        if path.is_relative_to(folder):
            check_held(folder)
    path.mkdir(parents=True, exist_ok=True)


def hold(folder: Path) -> None:
    """Have `make_folder`, which comes before every write, raise OSError once a folder was moved or replaced."""
    with suppress(FileNotFoundError):
        _HELD[folder] = folder.stat()
    check_held(folder)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder while the block runs; a missing file becomes an OSError (ESTALE) if the folder was moved."""
    hold(folder)
    try:
        yield
    except FileNotFoundError:
        check_held(folder)
        raise
    finally:
        del _HELD[folder]


def check_held(folder: Path) -> None:
    """Raise OSError (ESTALE) if a folder that is held is no longer the one that it was."""
    if not (folder.is_dir() and os.path.samestat(_HELD[folder], folder.stat())):
        raise OSError(
            errno.ESTALE, "it was moved or removed, or another folder is in its place", str(folder)
        )


def remove_tree(folder: Path) -> None:
    """Remove a folder with all in it, as far as that can be done; a link is left alone, and none is followed."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_below(root: Path, path: Path) -> None:
    """Remove a file, or a folder with all in it; raises OSError, also for a link on the way from `root`."""
    *folders, name = path.relative_to(root).parts
    folder = os.open(root, os.O_RDONLY)
    try:
        for inner in folders:
            outer = folder
            folder = os.open(inner, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
            os.close(outer)
        if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)


def partial_path(path: Path) -> Path:
    """Return where this process writes a file, or a folder, before it is renamed to `path`."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}.partial")


def remove_dead_partials(*folders: Path) -> None:
    """Remove what processes of this machine and user left in folders as they died while they wrote."""
    for path in [path for folder in folders for path in folder.glob(".*.partial")]:
        pid = _writer(path)
        with suppress(OSError):  # gone by now, or not this user's to remove
            if pid and not _runs(pid) and path.lstat().st_uid == os.geteuid():
                remove_below(path.parent, path)


def is_being_written(partial: Path) -> bool:
    """Return whether a process of this machine that runs now may be writing what `partial_path` returned."""
    pid = _writer(partial)
    return pid is not None and _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # no process has so large a number
        return False
    except PermissionError:  # another user's
        pass
    return True


def _writer(partial: Path) -> int | None:
    """Return the process that writes, or wrote; None: one of another machine, or of an earlier version."""
    match = _PARTIAL.fullmatch(partial.name)
    return int(match["pid"]) if match and match["host"] == _host() else None


def _host() -> str:
    return platform.node().partition(".")[0][:30]


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Give a path to write to, and rename what was written there to `path` at the end; nothing is left of a failure.

    `durable`: wait until it is on the disk, some milliseconds; unneeded for what can be fetched again. Raises OSError
    with `EROFS` for a folder, such as /proc, that takes no files.
    """
    make_folder(path.parent)
    partial = partial_path(path)
    with _can_be_made(path):
        partial.touch()
    try:
        with _named(path):
            yield partial
            if durable:
                flush(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to write to, and rename it to `path`, which is not there, at the end; raises as above."""
    partial = partial_path(path)
    with _can_be_made(path):
        partial.mkdir()
    try:
        with _named(path):
            yield partial
        partial.rename(path)
    finally:
        remove_tree(partial)


@contextmanager
def _can_be_made(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise OSError(errno.EROFS, "nothing can be made there", str(path)) from error


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Put the path into the error of a file that takes no more: where it is written, its name is not known."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            error.filename = error.filename or str(path)
        raise


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file, whole or not at all; arguments as of `whole_file`."""
    with whole_file(path, durable=durable) as partial:
        partial.write_bytes(content)


def write_json(path: Path, content: ReadFields) -> None:
    """Write JSON, whole or not at all."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def sealed(content: ReadFields) -> Fields:
    """Return a JSON object with a checksum of what it holds, by which `is_changed` knows a damaged one."""
    return {**content, _CHECKSUM: _digest(content)}


def is_changed(content: ReadFields) -> bool:
    """Return whether a JSON object is another than what was sealed; False for one without a checksum."""
    return _CHECKSUM in content and content[_CHECKSUM] != _digest(content)


def sealed_text(text: str) -> bytes:
    """Return a text, in which `#` begins a comment, below a line with its checksum."""
    content = text.encode()
    return _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def is_sealed(text: bytes) -> bool:
    """Return whether a text has the line with its checksum."""
    return text.startswith(_MARK)


def is_changed_text(text: bytes) -> bool:
    """Return whether a text is another than what was sealed; False for one without a checksum."""
    return is_sealed(text) and text != sealed_text(
        text.partition(b"\n")[2].decode(errors="replace")
    )


def _digest(content: ReadFields) -> str:
    rest = {key: value for key, value in content.items() if key != _CHECKSUM}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


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


def read_plain(path: Path, most_bytes: int, *, through_link: bool = True) -> bytes:
    """Read a whole file; raises OSError as `open_plain`, or if it is too large."""
    with open_plain(path, through_link=through_link) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes", str(path))
        return file.read()


def open_plain(path: Path, *, through_link: bool = True) -> BufferedReader:
    """Open a file; raises OSError for what is no plain file: a device may have no end, a pipe no writer.

    Without `through_link` a link is none, either: in a record of other people it may lead to any file.
    """
    if not stat.S_ISREG(path.stat(follow_symlinks=through_link).st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return path.open("rb")


def open_no_link(path: str, flags: int) -> int:
    """Open a file as `open`'s own opener does; raises OSError (ELOOP) for a link, which may lead to another file."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Hash a file's content; returns hex digits; raises as `open_plain`."""
    with open_plain(path) as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(algorithm, usedforsecurity=False)
        ).hexdigest()


def hash_once(path: Path) -> str:
    """Return a file's sha256, which a process computes again only if the file changes; raises as `open_plain`."""
    status = path.stat()
    return _hash_at(path, status.st_mtime_ns, status.st_size)


@cache
def _hash_at(path: Path, mtime_ns: int, num_bytes: int) -> str:
    return hash_file(path)


def lead_nowhere(descriptor: int) -> None:
    """Let what is written to a file descriptor be lost."""
    null = os.open(os.devnull, os.O_RDWR)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)


def follow_umask(path: Path) -> None:
    """Give a file, which safetensors made for its owner alone, the permissions that new files have in its folder."""
    # A file is made to look at: a process can ask for its umask only by changing it.
    new = path.with_name(f"{path.name}.mode")
    new.touch()
    try:
        with suppress(PermissionError):  # a file system without permissions
            path.chmod(stat.S_IMODE(new.stat().st_mode))
    finally:
        new.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return `lr-sweep` in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lr-sweep"


def as_version_1_2(text: str) -> str:
    """Return a document that says it is of an earlier version as one of 1.2, as which that version wants it read."""
    return _YAML_VERSION.sub(r"\g<1>1.2", text)


def load_yaml(source: str | Path, kind: str = "safe") -> Any:
    """Read a text, or a file, as plain values; raises YAMLError, OSError.

    `kind`: `rt` reads what has any tag, and makes nothing of the tags.
    """
    from ruamel.yaml import YAML  # late: most commands read none

    if isinstance(source, Path):
        source = read_plain(source, MOST_YAML).decode(errors="replace")
    if len(source) > MOST_YAML:
        raise OSError(
            errno.EFBIG,
            f"YAML of more than {MOST_YAML:,} characters takes minutes: write it as JSON",
        )
    yaml = YAML(typ=kind, pure=True)
    if (root := yaml.compose(as_version_1_2(source))) is None:
        return None
    _num_values(root, {})
    return yaml.constructor.construct_document(root)


def _num_values(node: Any, known: dict[int, int]) -> int:
    """Return how many values a node has where each alias is written out; raises YAMLError for too many.

    `known`: the numbers of nodes by their ids; one that has begun is there with the most, so that none holds itself.
    """
    from ruamel.yaml.error import YAMLError

    if id(node) not in known:
        known[id(node)] = MOST_YAML
        parts = node.value if isinstance(node.value, list) else ()
        below = (child for part in parts for child in (part if isinstance(part, tuple) else [part]))
        known[id(node)] = 1 + sum(_num_values(child, known) for child in below)
    if known[id(node)] >= MOST_YAML:
        raise YAMLError(f"its aliases (*name) make more than {MOST_YAML:,} values: write them out")
    return known[id(node)]
