"""Numbers, tables and commands as text: the one way in which reports, figures and the command line write them."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Container, Sequence
from datetime import timedelta

NO_VALUE = "–"
EMPTY = ("", "-")
"""Entries of a table that a list of its rows leaves out."""
Say = Callable[[str], None]
"""Takes a line for the user."""
RATES = (1e-30, 1e30)
"""Least and greatest learning rate that is read; further ones are mistakes, and rates derived from them overflow."""
SIGNIFICANT = 2
"""Digits of an uncertainty that are written, at least; its number ends at the same decimal."""
DIGITS = 4
"""Significant digits of a number of any size without an uncertainty."""
PARTICULARS = re.compile(r"~?/[^\s'\",;)]*|\b\w*\d[\w.:-]*")
"""Paths, and words with digits: addresses, ports, process ids, hexadecimal ids, numbers."""
EXACT = 9
"""Decimals that may be written: further ones are rounding errors of what was computed."""
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # a colour, a movement
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # a title, a link
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


def rates_text() -> str:
    """Name the learning rates that are read, for errors."""
    return "a learning rate from 1e-30 to 1e30"


def rate_text(rate: float) -> str:
    """Write a learning rate as papers do, to six digits: `1e-3`, `3.2e-4`."""
    if math.isnan(rate):
        return NO_VALUE
    mantissa, exponent = f"{rate:.5e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def percent_text(fraction: float, digits: int = 1) -> str:
    """Write a fraction in percent, by default with one decimal, as the papers do."""
    return NO_VALUE if math.isnan(fraction) else f"{round(100 * fraction, digits) + 0.0:.{digits}f}"


def decimals_text(
    value: float, unsure: float, digits: int, sign: str = "", decimals: int = 1
) -> str:
    """Write a number with decimals, more where its uncertainty needs them.

    So many digits of the uncertainty are seen (NaN or 0: it needs none), and a number that is not 0 never reads as 0.
    """
    if math.isnan(value):
        return NO_VALUE
    # One that was computed in two ways is written alike; and no -0.0.
    value = round(value, EXACT) + 0.0
    decimals = max(decimals, _places(round(unsure, EXACT), digits))
    if value and not round(value, decimals):
        decimals = _places(value, 1)
    return f"{round(value, decimals) + 0.0:{sign}.{decimals}f}"


def digits_text(value: float, unsure: float, sign: str = "") -> str:
    """Write a number that may be of any size: with `DIGITS` digits, or as many as its uncertainty shows."""
    if math.isnan(value):
        return NO_VALUE
    if not unsure > abs(value) * 10.0**-EXACT or math.isinf(unsure):
        return f"{value + 0.0:{sign}.{DIGITS}g}"
    places = _places(unsure, SIGNIFICANT)
    if abs(value) < 10.0**EXACT and places <= EXACT and (round(value, places) or not value):
        return f"{value + 0.0:{sign}.{max(places, 0)}f}"
    return f"{value:{sign}.{max(DIGITS, 1 - _places(value, 1) + places)}g}"


def _places(number: float, digits: int) -> int:
    """Return how many decimals show so many significant digits of a number; of 0 and of what is not known 0."""
    if not number or not math.isfinite(number):
        return 0
    return digits - 1 - int(f"{abs(number):.{digits - 1}e}".partition("e")[2])


def without_escapes(text: str) -> str:
    """Return text without colours and other codes for terminals, but for the ends of lines and tabs."""
    return _ESCAPES.sub("", text)


def failure_line(failure: str | None) -> str:
    """Return why a run failed: of a traceback, the exception after its last indented line; else all of it."""
    if not isinstance(failure, str) or not failure:  # pandas has NaN for nothing
        return "no reason given"
    failure = without_escapes(failure)
    lines = failure.splitlines()
    indented = [index for index, line in enumerate(lines) if line.startswith("  ")]
    return lines[min(indented[-1] + 1, len(lines) - 1)] if indented else failure


def failure_kind(failure: str) -> str:
    """Return what failures of one kind have in common: the line that says why, without paths, addresses and ids."""
    return PARTICULARS.sub("#", failure_line(failure))


def study_heading(study: str, title: str) -> str:
    """Return a study's name and title; a study without a title has its name as one."""
    return study if title == study else f"{study}: {title}"


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Return rows as lines of aligned columns; those whose indices are in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def fits(lines: Sequence[str], indent: int = 0) -> bool:
    """Return whether the terminal shows lines without breaking them; a file or a pipe always does."""
    width = indent + max(map(len, lines))
    return not sys.stdout.isatty() or width <= shutil.get_terminal_size().columns


def fitted(
    rows: Sequence[Sequence[str]], num_labels: int, right: Container[int] = (), indent: int = 0
) -> list[str]:
    """Return rows as `aligned` does, or where they do not fit the terminal as a list, an item a row.

    The first row is the head. An item has the row's labels, its first entries, and below them the others by name.
    """
    lines = aligned(rows, right)
    if fits(lines, indent):
        return lines
    names, listed = rows[0], []
    for row in rows[1:]:
        named = list(zip(names, row, strict=True))[num_labels:]
        entries = [f"{name} {text}".strip() for name, text in named if text not in EMPTY]
        listed += [", ".join(filter(None, row[:num_labels])), f"  {', '.join(entries)}"]
    return listed


def counted(number: int, noun: str) -> str:
    """Return `1 run` or `12 runs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def gigabytes(number: int) -> str:
    """Return a number of bytes for reading."""
    return f"{number / 1e9:.1f} GB" if number >= 1e8 else f"{number / 1e6:.1f} MB"


def duration(seconds: float) -> str:
    """Return a duration for reading: `0:01:00` is a minute; a negative one, between two machines' clocks, is 0."""
    return str(timedelta(seconds=max(0, round(seconds))))


PROGRAM = "lr-sweep"


def command(*words: str) -> str:
    """Return a command of the program, quoted for a shell."""
    return f"{PROGRAM} {shlex.join(words)}"
