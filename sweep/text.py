"""Tables and numbers as text for the terminal."""

from __future__ import annotations

from collections.abc import Container, Sequence
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
