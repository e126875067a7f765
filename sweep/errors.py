"""Errors for the person at the terminal."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """Something that the user can put right.

    The message says what was got, what was wanted and how to fix it; the command line prints it alone and exits 2.
    """


_ADVICE = {
    errno.EROFS: "Name a path on a disk that can be written to",
    errno.ENOSPC: "Free some space, or name a path on another disk",
    errno.EDQUOT: "Free some space, or name a path on another disk",
    errno.ENOTDIR: "A file is where a folder should be: move it away, or name another path",
    errno.EEXIST: "A file is where a folder should be: move it away, or name another path",
    errno.EISDIR: "A folder is where a file should be: move it away, or name another path",
    errno.ENAMETOOLONG: "Name a shorter path",
    errno.ELOOP: "Name the path that its links should lead to",
    errno.ENOENT: "Make the folder it should be in, or name another path",
    errno.EINVAL: "Name another path",
    errno.ENODEV: "Name another path",
    errno.ENXIO: "Name another path",
    errno.EIO: "Look at the disk, or name a path on another",
    errno.ESTALE: "Look at the disk, or name a path on another",
}
"""What to do about failures that the state of a disk or the choice of a path causes."""


def path_problem(error: OSError, given: Iterable[str]) -> str | None:
    """Return the message for an error that the user's paths cause; None: it is the program's own fault.

    Args:
        error: what was raised.
        given: paths that the user named; the error is about one of them, what is below it, or a folder it is in.
    """
    advice = _ADVICE.get(error.errno or 0)
    if advice is None or not isinstance(error.filename, str | bytes):
        return None
    about = _spellings(os.fsdecode(error.filename))
    named = {path for each in given for path in _spellings(os.path.expanduser(each))}  # noqa: PTH111 - pathlib's raises for `~nouser`
    around = {folder for path in named for folder in (path, *path.parents)}
    if not about & around and not any(named & set(path.parents) for path in about):
        return None
    if error.errno == errno.ENOENT and not about & around and any(path.parent.is_dir() for path in about):
        return None  # the folder is there: the program looked for a file that it should have known to be missing
    return f"{os.fsdecode(error.filename)}: {error.strerror}. {advice}."


def _spellings(path: str) -> set[Path]:
    """Return a path as it was written, and with its links followed."""
    return {Path.cwd() / path, Path(os.path.realpath(path))}


def unknown(kind: str, name: object, names: Iterable[str]) -> str:
    """Say that a name is not one of `names`, with the closest one and all of them.

    Args:
        kind: what the name should be of, such as `task`.
        name: what was got.
        names: the valid ones.
    """
    names, given = sorted(names), str(name)
    given = given if len(given) <= 100 else given[:97] + "..."
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return f"unknown {kind} {given!r}{hint} valid: {', '.join(names)}"
