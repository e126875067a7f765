"""Questions at the terminal."""

from __future__ import annotations

import sys

from lr_sweep.common.errors import UserError


def agreed(question: str, elsewhere: str) -> bool:
    """Ask, and return whether the answer is yes; raises UserError with the other text where there is no terminal."""
    if not sys.stdin.isatty():
        raise UserError(elsewhere)
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
