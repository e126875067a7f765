"""Text for language pretraining, as bytes: the running Python's own standard library, or the user's files."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Literal

from datasets.files import read_plain

VALIDATION_SHARE = 0.05
"""Of the bytes, from the end of the text; never trained on."""
MOST_BYTES = 2_000_000_000
"""Of a text: it is held in memory, a few times over."""


def read_corpus(text: Literal["python-stdlib"] | tuple[Path, ...]) -> bytes:
    """Return the whole text.

    Args:
        text: `python-stdlib`, or paths of text files.

    Raises:
        OSError: a file cannot be read, is no plain file, or they are too large together.
    """
    left, parts = MOST_BYTES, []
    for path in stdlib_sources() if isinstance(text, str) else text:
        parts.append(read_plain(path, left))
        left -= len(parts[-1])
    return b"\n".join(parts)


def held_out_from(num_bytes: int) -> int:
    """Return where the part of a text begins that is never trained on."""
    return int(num_bytes * (1 - VALIDATION_SHARE))


def fewest_bytes(num_tokens: int) -> int:
    """Return how long a text must be for a sequence of so many tokens, and the token after it, in the held-out part."""
    # Rounding may take or leave one: found by looking, from just below.
    guess = int((num_tokens + 1) / VALIDATION_SHARE) - 20
    return next(n for n in range(max(0, guess), guess + 100) if n - held_out_from(n) > num_tokens)


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
