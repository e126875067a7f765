"""CSV files that a spreadsheet opens without running what is in them."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

_FORMULA = re.compile(r"[=+\-@\t\r＝＋－＠]")
"""The last four are wide forms, which spreadsheets in East Asia read as the others."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?%?", re.ASCII | re.IGNORECASE)


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame without its index; text that a spreadsheet would read as a formula begins with an apostrophe."""
    columns = {
        place: column.map(quoted_text) if column.dtype == object or isinstance(column.dtype, pd.StringDtype) else column
        for place, (_, column) in enumerate(frame.items())
    }
    pd.DataFrame(columns).set_axis([quoted_text(name) for name in frame], axis=1).to_csv(path, index=False)


def quoted_text(value: object) -> object:
    """Return a value, a text that is no number and begins as a formula does behind an apostrophe."""
    formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


def as_written(text: str) -> str:
    """Return a text without the apostrophe that `quoted_text` puts before it."""
    return text[1:] if text.startswith("'") and quoted_text(text[1:]) == text else text
