"""Errors of libraries turned into errors of ours, with a message that says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Something that the user can put right.

    The message says what was got, what was wanted and how to fix it; the command line prints it alone and exits 2.
    """


@contextmanager
def translated(kinds: tuple[type[Exception], ...], explain: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raise what `explain` returns in place of a library's error of one of these classes."""
    try:
        yield
    except kinds as error:
        raise explain(error) from error


def reason(error: Exception) -> str:
    """Return the first line of an error's message, at most 300 characters, or the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
