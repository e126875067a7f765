"""The types of arguments: text in, a value out, or what is wrong with it."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from pathlib import Path

MOST = 1_000_000
"""Largest number; in seconds, eleven days."""


def positive(text: str, most: int = MOST, least: int = 1) -> int:
    """Return a whole number from 1, or from another least one."""
    if not text.isdecimal() or len(text) > 20 or not least <= int(text) <= most:
        raise ArgumentTypeError(f"got {_cut(text)}, want a whole number from {least} to {most}")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    return _above_zero(text, "a number of seconds")


def price(text: str) -> float:
    """Return a price above 0."""
    return _above_zero(text, "a price")


def _above_zero(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= MOST:
        raise ArgumentTypeError(f"got {_cut(text)}, want {what} above 0, {MOST} at most")
    return number


def location(text: str) -> str:
    """Return a path, or the URI of a store, as it was given."""
    try:
        Path(text).expanduser().resolve()
    except (RuntimeError, OSError) as error:  # `~nouser`, a circle of links, a folder that may not be read
        raise ArgumentTypeError(f"got {_cut(text)}: {error}; write the path out") from error
    return text


def local_path(text: str) -> Path:
    """Return a path, with `~` replaced by the user's home folder."""
    return Path(location(text)).expanduser()


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
