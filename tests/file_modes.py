"""Permissions of files: the process's umask, and another user who may not read everything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Have new files lack these permissions meanwhile."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
