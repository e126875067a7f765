"""The fields of a table as numbers; every mistake with its line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.judge.columns import SPLITS, Columns
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.analysis.text import RATES, rates_text

NOTHING = {"", "none", "null", "na", "n/a", "<na>", "-"}
"""Fields without a value, in small letters."""
STATUS = {
    **dict.fromkeys(("complete", "completed", "finished", "terminated", "done", "success"), "complete"),
    "diverged": "diverged",
    **dict.fromkeys(("failed", "crashed", "killed", "error", "preempted"), "failed"),
    **dict.fromkeys(("missing", "running", "pending", "scheduled", "paused", "preempting"), "missing"),
}
"""How tools name the state of a run, in small letters."""
RATE_DIGITS = 6
"""Learning rates equal to so many digits are one, also where they were stored in single precision."""


class _MistakeError(Exception):
    """Something about a field, as `got ..., want ...`."""


def read_rows(table: TableFile, columns: Columns) -> tuple[pd.DataFrame, list[str]]:
    """Read the columns of a table that mean something.

    Returns:
        A frame with a column for each meaning, `where` (`FILE:LINE`) and `diverged` (whether validation, or test
        where there is no validation, is NaN or infinite); and mistakes. Values of metrics are NaN where there is none.
    """
    read: dict[str, list[Any]] = {"where": [f"{table.path}:{line}" for line in table.lines]}
    mistakes: list[tuple[int, str]] = []
    for role, name in columns.of.items():
        parse = _PARSERS.get(role, _number if role in SPLITS else _name)
        texts = [_with_point(text) for text in table.columns[name]] if table.decimal_comma else table.columns[name]
        read[role] = []
        for line, text in zip(table.lines, texts, strict=True):
            try:
                read[role].append(parse(text.strip()))
            except _MistakeError as mistake:
                read[role].append(None)
                mistakes.append((line, f"{table.path}:{line}: {name}: {mistake}"))
    frame = pd.DataFrame(read)
    decisive = next((split for split in ("validation", "test") if split in read), None)
    frame["diverged"] = _not_finite(table.columns[columns.of[decisive]]) if decisive else False
    mistakes += _without_step(table, columns, frame, decisive)
    return frame, [text for _, text in sorted(mistakes)]


def _without_step(
    table: TableFile, columns: Columns, frame: pd.DataFrame, decisive: str | None
) -> list[tuple[int, str]]:
    """Find rows with a value and no step; a run without a value needs none."""
    if "step" not in columns.of or decisive is None:
        return []
    name, values = columns.of["step"], frame[decisive].notna()
    rows = zip(table.lines, table.columns[name], values, strict=True)
    message = "got no step for an evaluation, want a whole number from 0"
    return [(line, f"{table.path}:{line}: {name}: {message}") for line, text, has in rows if has and _is_nothing(text)]


def _with_point(text: str) -> str:
    """Write a number with a decimal comma with a point."""
    whole, comma, rest = text.strip().partition(",")
    return f"{whole}.{rest}" if comma and rest[:1].isdigit() and whole.lstrip("+-").isdigit() else text


def _not_finite(texts: list[str]) -> np.ndarray:
    return np.array([text.strip().lower().lstrip("+-") in ("nan", "inf", "infinity") for text in texts], dtype=bool)


def _float(text: str, wanted: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise _MistakeError(f"got {text[:60]!r}, want {wanted}") from error


def _rate(text: str) -> float:
    rate = _float(text, rates_text())
    if not RATES[0] <= rate <= RATES[1]:
        raise _MistakeError(f"got {text[:60]!r}, want {rates_text()}")
    return float(f"{rate:.{RATE_DIGITS - 1}e}")


def _whole(text: str, wanted: str, least: float) -> int:
    number = _float(text, wanted)
    if not (math.isfinite(number) and number == int(number) and least <= number < 2**53):
        raise _MistakeError(f"got {text[:60]!r}, want {wanted}")
    return int(number)


def _seed(text: str) -> int:
    return _whole(text, "a whole number", -(2**53))


def _is_nothing(text: str) -> bool:
    return text.strip().lower() in NOTHING | {"nan"}


def _step(text: str) -> int:
    return 0 if _is_nothing(text) else _whole(text, "a whole number from 0", 0)


def _number(text: str) -> float:
    if text.lower() in NOTHING:
        return math.nan
    number = _float(text, "a number, `nan` where the run diverged, or nothing")
    return number if math.isfinite(number) else math.nan


def _name(text: str) -> str:
    if not text:
        raise _MistakeError("got nothing, want a name")
    return text


def _status(text: str) -> str:
    if (found := STATUS.get(text.lower())) is None:
        raise _MistakeError(f"got {text[:60]!r}, want one of {', '.join(STATUS)}")
    return found


_PARSERS: dict[str, Callable[[str], Any]] = {
    "learning_rate": _rate,
    "seed": _seed,
    "step": _step,
    "num_steps": _step,
    "status": _status,
}
