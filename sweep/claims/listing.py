"""A folder's files: their list with SHA-256, as `sha256sum` writes it, and what differs between two versions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import ReadFields, make_folder, read_plain, whole_folder, write_bytes

LIST = "SHA256SUMS"
"""Name of the list; `sha256sum -c SHA256SUMS` checks a folder, too."""
MOST_BYTES = 64_000_000
"""Largest size of a listed file, and of the list."""
NUMBER = re.compile(r"(?<![\w.])(?<!\w-)\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
IMAGE = re.compile(r'data:image/[^"]*')
"""A figure of a page; its bytes depend on the versions that draw it."""
SHOWN = 200
"""Characters that are shown of a line that differs."""


def lines_of(files: ReadFields) -> list[str]:
    """Return the lines of a list of files; contents are bytes by name."""
    return [
        f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in sorted(files.items())
    ]


def write_files(folder: Path, files: ReadFields) -> None:
    """Write contents, as bytes by relative name, into a folder."""
    for name, content in files.items():
        make_folder((folder / name).parent)
        write_bytes(folder / name, content, durable=False)


def write_listed(folder: Path, files: ReadFields) -> str:
    """Write files and their list into a new folder; return a text with the SHA-256 of the list."""
    if folder.exists():
        raise UserError(f"{folder} exists already: name a folder that does not")
    make_folder(folder.parent)
    content = "".join(f"{line}\n" for line in lines_of(files)).encode()
    with whole_folder(folder) as new:
        write_files(new, {**files, LIST: content})
    return f"written    {folder}\nsha256     {hashlib.sha256(content).hexdigest()}"


def read_files(folder: Path) -> tuple[bytes, dict[str, bytes]]:
    """Return the list of a folder, and the contents of its other plain files by name; raises UserError without a list.

    What else there is, such as links, is neither opened nor followed.
    """
    contents = {}
    for path in folder.rglob("*"):
        with suppress(OSError):
            content = read_plain(path, MOST_BYTES, through_link=False)
            contents[path.relative_to(folder).as_posix()] = content
    if LIST not in contents:
        raise UserError(f"got {folder} without {LIST}, want a folder that `report --bundle` wrote")
    return contents.pop(LIST), contents


def differences(claimed: ReadFields, computed: ReadFields) -> Iterator[str]:
    """Yield the first line of each file that differs, but for figures and rounding; contents are bytes by name."""
    for name in sorted(claimed.keys() | computed.keys()):
        lines = [_rounded_lines(files.get(name, b"")) for files in (claimed, computed)]
        for got, want in zip_longest(*lines, fillvalue=""):
            if got != want:
                yield f"{name}: got {got[:SHOWN]!r}, the runs give {want[:SHOWN]!r}"
                break


def _rounded_lines(content: bytes) -> list[str]:
    text = IMAGE.sub("", content.decode(errors="replace"))
    return NUMBER.sub(lambda number: f"{float(number[0]):.6g}", text).splitlines()
