"""Tables and numbers as text for the terminal."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from datetime import timedelta

from lr_sweep.analysis.metric import Metric


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


def counted(number: int, noun: str) -> str:
    """Return `1 run` or `12 runs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def machines_there(there: int, at_most: int | None) -> str:
    """Return `2 machines are there, of at most 9`, without the second number for None."""
    limit = f", of at most {at_most}" if at_most is not None else ""
    return f"{counted(there, 'machine')} {'is' if there == 1 else 'are'} there{limit}"


def most_machines_in(logs: Iterable[str]) -> int | None:
    """Return the second number of the last `machines_there` that was printed; None: none has it."""
    numbers = [
        int(number) for log in logs for number in re.findall(r"machines? (?:is|are) there, of at most (\d+)", log)
    ]
    return numbers[-1] if numbers else None


def gigabytes(number: int) -> str:
    """Return a number of bytes for reading."""
    return f"{number / 1e9:.1f} GB" if number >= 1e8 else f"{number / 1e6:.1f} MB"


def percent(fraction: float | None) -> str:
    """Return a fraction as tables show it, `-` for None."""
    return "-" if fraction is None else f"{fraction:.1%}"


def score(value: float, metric: Metric, digits: int = 2) -> str:
    """Return a value of a metric as the terminal shows it: a fraction in percent, with so many decimals."""
    return f"{value:.{digits}%}" if metric.is_fraction else metric.text(value)


def duration(seconds: float) -> str:
    """Return a duration for reading: `0:01:00` is a minute."""
    return str(timedelta(seconds=round(seconds)))
