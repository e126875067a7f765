"""The list of a folder's files with their SHA-256, as `sha256sum` writes it, and the files that are as listed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import ReadFields, hash_file, make_folder, read_plain, write_bytes

LIST = "SHA256SUMS"
"""Name of the list; `sha256sum -c SHA256SUMS` checks a folder, too."""
MOST_BYTES = 64_000_000
"""Largest size of a listed file, and of the list."""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A folder as it was read: once, and through no link."""

    sha256: str
    """Hash of the list itself, which a paper can print."""
    lines: tuple[str, ...]
    contents: ReadFields
    """Contents of the files that are as listed, as bytes by name."""
    problems: tuple[str, ...]
    """Files that are not as listed."""


def write_files(folder: Path, files: ReadFields) -> None:
    """Write contents, as bytes by relative name, into a folder."""
    for name, content in files.items():
        make_folder((folder / name).parent)
        write_bytes(folder / name, content, durable=False)


def write_list(folder: Path) -> str:
    """Write the list of all files below a folder, and return the list's own SHA-256."""
    names = sorted(_names_below(folder))
    text = "".join(f"{hash_file(folder / name)}  {name}\n" for name in names)
    write_bytes(folder / LIST, text.encode())
    return hashlib.sha256(text.encode()).hexdigest()


def read_listed(folder: Path) -> Listed:
    """Read a folder by its list; raises UserError if there is no list to read.

    Only names that the folder has are opened. So a listed path that leaves the folder is a missing file.
    """
    lines, sha256 = read_list(folder / LIST)
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    present = {*_names_below(folder)} - {LIST}
    problems = [f"{name!r} is not in {LIST}" for name in sorted(present - listed.keys())]
    contents: dict[str, bytes] = {}
    for name, digest in listed.items():
        if name not in present:
            problems.append(f"{name!r} is in {LIST} and not in the folder")
            continue
        try:
            contents[name] = read_plain(folder / name, MOST_BYTES, through_link=False)
        except OSError as error:
            problems.append(f"{name!r}: {error.strerror}")
            continue
        if hashlib.sha256(contents[name]).hexdigest() != digest:
            problems.append(f"{name!r} has other bytes than {LIST} says")
    return Listed(sha256=sha256, lines=lines, contents=contents, problems=tuple(problems))


def read_list(path: Path) -> tuple[tuple[str, ...], str]:
    """Return the lines of a list and its SHA-256; raises UserError for what is no list."""
    try:
        content = read_plain(path, MOST_BYTES, through_link=False)
        return tuple(content.decode().splitlines()), hashlib.sha256(content).hexdigest()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {path}: {error}. Give a list that `report --bundle` or `plan --register` wrote"
        ) from error


def _names_below(folder: Path) -> Iterator[str]:
    """Yield the relative names of all files and links; `os.walk` follows no link."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in (*files, *links):
            yield Path(place, name).relative_to(folder).as_posix()
