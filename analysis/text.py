"""Numbers as text: the one way in which tables, figures and the command line write them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

NO_VALUE = "–"
RATES = (1e-30, 1e30)
"""Least and greatest learning rate that is read; further ones are mistakes, and rates derived from them overflow."""


def rates_text() -> str:
    """Name the learning rates that are read, for errors."""
    return "a learning rate from 1e-30 to 1e30"


def rate_text(rate: float) -> str:
    """Write a learning rate as papers do, to six digits: `1e-3`, `3.2e-4`."""
    if math.isnan(rate):
        return NO_VALUE
    mantissa, exponent = f"{rate:.5e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def rate_texts(rates: Iterable[float]) -> list[str]:
    """Write learning rates beside each other; those that are alike to six digits in full."""
    texts = {rate: rate_text(rate) for rate in rates}
    number = Counter(texts.values())
    return [text if number[text] == 1 else repr(float(rate)) for rate, text in texts.items()]


def percent_text(fraction: float, digits: int = 1) -> str:
    """Write a fraction in percent, by default with one decimal, as the papers do."""
    return NO_VALUE if math.isnan(fraction) else f"{rounded(100 * fraction, digits):.{digits}f}"


def points_text(difference: float) -> str:
    """Write a difference of fractions in points, with its sign; one computed in two ways is written alike."""
    return NO_VALUE if math.isnan(difference) else f"{rounded(round(100 * difference, 9), 1):+.1f}"


def rounded(value: float, digits: int) -> float:
    """Round as it is written, without the sign of a negative zero."""
    return round(value, digits) + 0.0


def failure_line(failure: str) -> str:
    """Return why a run failed: of a traceback, the exception after its last indented line; else all of it."""
    lines = failure.splitlines()
    indented = [index for index, line in enumerate(lines) if line.startswith("  ")]
    return lines[min(indented[-1] + 1, len(lines) - 1)] if indented else failure


def study_heading(study: str, title: str) -> str:
    """Return a study's name and title; a study without a title has its name as one."""
    return study if title == study else f"{study}: {title}"
