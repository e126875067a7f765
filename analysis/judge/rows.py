"""The fields of a table as numbers; every mistake with its line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.judge.columns import SPLITS, Columns, has_word, is_result, is_setting, measured, split_of
from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile, printable, raise_mistakes
from lr_sweep.analysis.report.spreadsheet import as_written
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import RATES, rates_text

NOTHING = {"", "none", "null", "na", "n/a", "<na>", "-"}
"""Fields without a value, in small letters."""
STATUS = {
    **dict.fromkeys(("complete", "completed", "finished", "terminated", "done", "success", "succeeded"), "complete"),
    "diverged": "diverged",
    **dict.fromkeys(("failed", "fail", "crashed", "killed", "error", "preempted", "cancelled", "timeout"), "failed"),
    **dict.fromkeys(("stopped", "pruned", "earlystopped", "early_stopped"), "stopped"),
    **dict.fromkeys(("missing", "running", "pending", "scheduled", "paused", "preempting", "waiting"), "missing"),
}
"""How tools name the state of a run, in small letters."""
RATE_DIGITS = 6
"""Learning rates equal to so many digits are one, also where they were stored in single precision."""
ALL = "all"
"""The model, or the variant, of a table that names none."""
NUMBERS = {"learning_rate", "seed", "step", "num_steps", *SPLITS}
"""What is read as a number, of `Columns.of`."""
MOST_VALUE = 1e100
"""A value beyond it is as good as infinite, and its square would be."""
UNREAD, LOSS = "unread ", "loss "
"""Before the names of columns of the frame that hold what is not asked for: settings, and losses beside the metric."""
MOST_BESIDE = 100
"""Columns of that kind."""

_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_PART = re.compile(r"[+-]?\d+(?:[.,]|[.,]?\d*e[+-]?)", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
_SEED = re.compile(r"(.*?[a-z].*?)(\d+)", re.IGNORECASE)


def rows_of(tables: Sequence[TableFile], columns: Sequence[Columns]) -> pd.DataFrame:
    """Read the rows of all tables, with a task, a model and a variant each; raises UserError with every mistake."""
    frames, mistakes = [], []
    for table, found in zip(tables, columns, strict=True):
        rows, wrong = _read_rows(table, found)
        mistakes += wrong
        if "variant" not in rows and "model" in rows:  # what is compared is called a variant here
            rows = rows.rename(columns={"model": "variant"})
        given = {"task": table.stem, "model": ALL, "variant": ALL}
        frames.append(rows.assign(**{name: text for name, text in given.items() if name not in rows}))
    raise_mistakes(mistakes)
    return pd.concat(frames, ignore_index=True)


def _read_rows(table: TableFile, columns: Columns) -> tuple[pd.DataFrame, list[str]]:
    """Read the columns of a table that mean something.

    Returns:
        A frame with a column for each meaning, `where` (`FILE:LINE`), `diverged` (whether validation, or test where
        there is no validation, is NaN or infinite), and those of `UNREAD` and `LOSS`; and mistakes. Values of metrics
        are NaN where there is none.
    """
    read: dict[str, Any] = {"where": [f"{table.path}:{line}" for line in table.lines]}
    mistakes = _ambiguous(table, columns)
    for role, name in columns.of.items():
        texts = [text.strip() for text in table.columns[name]]
        if role in NUMBERS and table.decimal_comma:
            texts = [_with_point(text) for text in texts]
        if role == "seed":
            texts = _without_prefix(texts)
        parse = _PARSERS.get(role, _number if role in SPLITS else _name)
        parsed = {text: _parsed(parse, text) for text in dict.fromkeys(texts)}
        mistakes += [
            (line, f"{table.path}:{line}: {name}: {parsed[text]}")
            for line, text in zip(table.lines, texts, strict=True)
            if isinstance(parsed[text], ValueError)
        ]
        read[role] = [None if isinstance(parsed[text], ValueError) else parsed[text] for text in texts]
    mistakes += _cut(table)
    decisive = next(split for split in ("validation", "test") if split in read)
    frame = pd.DataFrame(read)
    frame["diverged"] = np.isinf(frame[decisive].astype(float))
    splits = [split for split in SPLITS if split in frame]
    frame[splits] = frame[splits].astype(float).where(lambda values: ~np.isinf(values))
    mistakes += _without_step(table, columns, frame, decisive)
    return frame.assign(**_beside(table, columns, decisive)), [text for _, text in sorted(mistakes)]


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    """Return the value of a field, or the ValueError that says what is wrong with it."""
    try:
        return parse(text)
    except ValueError as mistake:
        return mistake


def _beside(table: TableFile, columns: Columns, decisive: str) -> dict[str, Any]:
    """Read what is not asked for: columns that may be settings, and losses, which show that a run diverged."""
    found: dict[str, Any] = {}
    for name in columns.unread:
        if split_of(name) in ("train", decisive) and has_word(measured(name), {"loss", "nll", "perplexity"}):
            stripped = map(str.strip, table.columns[name])
            parsed = (_parsed(_number, _with_point(text) if table.decimal_comma else text) for text in stripped)
            found[LOSS + name] = [math.nan if isinstance(value, ValueError) else value for value in parsed]
        elif len(found) < MOST_BESIDE and (is_setting(name) or not is_result(name)):
            texts = table.columns[name]
            if is_setting(name) or 1 < len(set(texts)) <= max(2, len(texts) / 2):
                found[UNREAD + name] = texts
    return found


def _cut(table: TableFile) -> list[tuple[int, str]]:
    """Find a file that ends within a number: `0.` may have been 0.7."""
    text = list(table.columns.values())[-1][-1].strip()
    if not table.unfinished or not _PART.fullmatch(text):
        return []
    line = table.lines[-1]
    return [(line, f"{table.path}:{line}: the file ends within a number, {text!r}: write the whole file")]


def _ambiguous(table: TableFile, columns: Columns) -> list[tuple[int, str]]:
    """Find numbers in which a comma, or a point, may be that of decimals or of thousands."""
    if not table.decimal_comma:
        return []
    fields = [
        (line, name, text.strip())
        for name in (name for role, name in columns.of.items() if role in NUMBERS)
        for line, text in zip(table.lines, table.columns[name], strict=True)
        if "," in text or "." in text
    ]
    comma = next((field for field in fields if "," in field[2]), None)
    point = next((field for field in fields if "." in field[2]), None)
    advice = "write numbers with a decimal point, and without marks of thousands"
    if comma and point:
        (line, name, text), (other_line, other_name, other) = sorted((comma, point))
        also = f"and {other[:60]!r} in {other_name} at line {other_line}"
        mistake = f"got {text[:60]!r}, {also}: which mark is that of decimals, and which that of thousands? {advice}"
    elif comma and all(_THOUSANDS.fullmatch(text) for _, _, text in fields):
        line, name, text = comma
        mistake = f"got {text!r}, one number with a decimal comma, another with a comma of thousands: {advice}"
    else:
        return []
    return [(line, f"{table.path}:{line}: {name}: {mistake}")]


def _without_prefix(texts: list[str]) -> list[str]:
    """Return the seeds 0, 1 of `seed_0`, `seed_1`; texts as they are where they do not all begin alike."""
    found = [_SEED.fullmatch(text) for text in texts]
    prefixes = {match[1].lower() if match else None for match in found}
    return [match[2] for match in found if match] if len(prefixes) == 1 and None not in prefixes else texts


def _without_step(table: TableFile, columns: Columns, frame: pd.DataFrame, decisive: str) -> Iterator[tuple[int, str]]:
    """Find rows with a value and no step; a run without a value needs none."""
    if "step" not in columns.of:
        return
    name, values = columns.of["step"], frame[decisive].notna()
    for line, text, has in zip(table.lines, table.columns[name], values, strict=True):
        if has and _is_nothing(text):
            yield line, f"{table.path}:{line}: {name}: got no step for an evaluation, want a number from 0"


def whole_steps(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Count steps in a part of the table's own unit where they have fractions, as those of epochs may.

    Raises UserError if they are too large for that.
    """
    counted = [name for name in ("step", "num_steps") if name in rows]
    steps = rows[counted]
    fitting = (10**power for power in range(6) if ((steps * 10**power + 1e-6) % 1).le(2e-6).all(axis=None))
    parts = next(fitting, 10**6)
    highest = float(steps.to_numpy(float).max()) if counted else 0.0
    if highest * parts >= 2**53:
        raise UserError(f"steps have fractions and go up to {highest:g}: write whole numbers")
    if parts > 1:
        remarks.append(f"steps have fractions: in the report a step is 1/{parts} of the table's")
    return rows.assign(**(steps * parts).round().astype("int64"))


def _with_point(text: str) -> str:
    """Write a number with a decimal comma with a point."""
    whole, comma, rest = text.strip().partition(",")
    return f"{whole}.{rest}" if comma and rest[:1].isdigit() and whole.lstrip("+-").isdigit() else text


def _float(text: str, wanted: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"got {text[:60]!r}, want {wanted}")
    return float(text)


def _rate(text: str) -> float:
    rate = _float(text, rates_text())
    if not RATES[0] <= rate <= RATES[1]:
        raise ValueError(f"got {text[:60]!r}, want {rates_text()}")
    return float(f"{rate:.{RATE_DIGITS - 1}e}")


def _seed(text: str) -> int:
    wanted = "a whole number, or one behind a word that all seeds begin with"
    number = _float(text, wanted)
    if not (math.isfinite(number) and number == int(number) and abs(number) < 2**63):
        raise ValueError(f"got {text[:60]!r}, want {wanted}")
    return int(text) if len(text) < 20 and text.lstrip("+-").isdigit() else int(number)


def _is_nothing(text: str) -> bool:
    return text.strip().lower() in NOTHING | {"nan"}


def _step(text: str) -> float:
    number = 0.0 if _is_nothing(text) else _float(text, "a number from 0")
    if not 0 <= number < 2**53:
        raise ValueError(f"got {text[:60]!r}, want a number from 0")
    return number


def _number(text: str) -> float:
    """Return a value; infinite: the run diverged; NaN: nothing was measured."""
    if text.lower() in NOTHING:
        return math.nan
    number = _float(text, "a number, `nan` where the run diverged, or nothing")
    return number if abs(number) <= MOST_VALUE else math.inf


def _name(text: str) -> str:
    name = as_written(printable(text))
    if not name:
        raise ValueError("got nothing, want a name")
    if len(name) > MOST_NAME:
        raise ValueError(f"got a name of {len(name):,} characters, want at most {MOST_NAME}")
    return name


def _status(text: str) -> str:
    if (found := STATUS.get(text.lower())) is None:
        raise ValueError(f"got {text[:60]!r}, want one of {', '.join(STATUS)}")
    return found


_PARSERS: dict[str, Callable[[str], Any]] = {
    "learning_rate": _rate,
    "seed": _seed,
    "step": _step,
    "num_steps": _step,
    "status": _status,
}
