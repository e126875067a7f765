"""Text for language pretraining, as bytes: the running Python's own standard library, or the user's files."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Literal

VALIDATION_SHARE = 0.05
"""Of the bytes, from the end of the text; never trained on."""


def read_corpus(text: Literal["python-stdlib"] | tuple[Path, ...]) -> bytes:
    """Return the whole text.

    Args:
        text: `python-stdlib`, or paths of text files.

    Raises:
        OSError: a file cannot be read.
    """
    paths = stdlib_sources() if isinstance(text, str) else text
    return b"\n".join(path.read_bytes() for path in paths)


def stdlib_sources() -> list[Path]:
    """Return the standard library's .py files in a fixed order, without installed packages and test suites."""
    root = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = set(folders) - left_out  # not entered: installed packages may be far more than the library
        found += [Path(folder) / name for name in files if name.endswith(".py")]
    return sorted(found)


def describe_corpus(text: Literal["python-stdlib"] | tuple[Path, ...]) -> str:
    """Return what to call the text in a table."""
    if isinstance(text, str):
        return f"the Python {sys.version_info.major}.{sys.version_info.minor} standard library's source"
    return ", ".join(path.name for path in text)
