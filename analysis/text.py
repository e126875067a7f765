"""Numbers as text: the one way in which tables, figures and the command line write them."""

from __future__ import annotations

import math

NO_VALUE = "–"


def rate_text(rate: float) -> str:
    """Write a learning rate as papers do, to six digits: `1e-3`, `3.2e-4`."""
    if math.isnan(rate):
        return NO_VALUE
    mantissa, exponent = f"{rate:.5e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def study_heading(study: str, title: str) -> str:
    """Return a study's name and title; a study without a title has its name as one."""
    return study if title == study else f"{study}: {title}"
