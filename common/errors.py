"""Errors that the user can fix, and errors of libraries and of the system turned into such."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_NAMES = 100


class UserError(Exception):
    """Something that the user can put right.

    The message says what was got, what was wanted and how to fix it; the command line prints it alone and exits 2.
    """


@contextmanager
def translated(
    kinds: tuple[type[Exception], ...], explain: Callable[[Exception], Exception]
) -> Iterator[None]:
    """Raise what `explain` returns in place of a library's error of one of these classes."""
    try:
        yield
    except kinds as error:
        raise explain(error) from error


def reason(error: Exception, shown: Callable[[str], str] = str) -> str:
    """Return the first line of an error's message, at most 300 characters, without a full stop, or its class's name.

    `shown` takes secrets out of the whole message, before it is cut.
    """
    return (shown(str(error)).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:300]


def unknown(
    kind: str, name: object, names: Iterable[str], listed: Iterable[str] | None = None
) -> str:
    """Return that there is no such `kind`, with the closest valid name and all, or those `listed` in their place."""
    names, given = sorted(names), str(name)
    given = given if len(given) <= 100 else given[:97] + "..."
    hint = did_you_mean(given, names) or ";"
    valid = list(names if listed is None else listed)
    more = f", and {len(valid) - MOST_NAMES} more" if len(valid) > MOST_NAMES else ""
    return f"unknown {kind} {given!r}{hint} valid: {', '.join(valid[:MOST_NAMES])}{more}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'train'?` with the closest of some names, or nothing if none is close."""
    return _meant(_closest(name, names))


def file_like(path: Path, pattern: str = "*") -> str:
    """Return `did_you_mean` for a file's name among those beside it; endings that are alike do not count."""
    try:
        files = {file.stem: file.name for file in path.parent.glob(pattern)}
    except OSError:
        return ""
    return _meant(files.get(_closest(path.stem, files), ""))


def _closest(name: str, names: Iterable[str]) -> str:
    return "".join(difflib.get_close_matches(name[:100], sorted(names)[: 10 * MOST_NAMES], n=1))


def _meant(name: str) -> str:
    return f"; did you mean {name!r}?" if name else ""
