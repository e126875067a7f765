"""Errors for the person at the terminal."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something that the user can put right.

    The message says what was got, what was wanted and how to fix it; the command line prints it alone and exits 2.
    """


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
