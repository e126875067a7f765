"""Fields of a table as numbers and names, and what they say of their columns; ambiguous fields are refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pandas as pd

from lr_sweep.analysis.judge.names import SPLITS, STATUS, STATUS_PREFIXES
from lr_sweep.analysis.judge.readers.labels import labels_of
from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile, printable
from lr_sweep.analysis.record.columns import MOST_VALUE
from lr_sweep.analysis.report.blocks import as_written
from lr_sweep.common.text import RATES, rates_text

NOTHING = {"", "none", "null", "na", "n/a", "<na>", "-", "—", "–"}
"""Fields without a value, in small letters."""
NO_NUMBER = NOTHING | {"nan"}
"""Fields without a number where it is not a metric's, in which NaN is one."""
NO_NUMBERS = {
    "%": "the sign % behind all values or none: ",
    **dict.fromkeys(("±", "+-", "("), "the value of a single run, not a mean: "),
}
"""What is wanted of values with these marks."""
RATE_DIGITS = 6
"""Learning rates equal to so many digits are one, also where they were stored in single precision."""
NUMBER_DIGITS = 12
"""Digits to which numbers in labels are equal; a time or an id may have more."""
LEAST_SPAN, MOST_RATE = 9.0, 10.0
"""Numbers that are like a grid of learning rates: how far they span, and the largest."""
NUMBERS = {"learning_rate", "seed", "step", "num_steps", *SPLITS}
"""What is read as a number, of `Columns.of`."""

_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_SEED = re.compile(r"(.*[^\d\n])(\d+)")
_LETTER = re.compile("[a-z]", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]")


def parsed(parse: Callable[[str], Any], text: str) -> Any:
    """Return the value of a field, or the ValueError that says what is wrong with it."""
    try:
        return parse(text)
    except ValueError as mistake:
        return mistake


def parser_of(role: str) -> Callable[[str], Any]:
    """Return what reads the fields of a column with this meaning; it raises ValueError."""
    return _PARSERS.get(role, number if role in SPLITS else _name)


def with_point(text: str) -> str:
    """Write a number with a decimal comma with a point."""
    whole, comma, rest = text.strip().partition(",")
    return f"{whole}.{rest}" if comma and rest[:1].isdigit() and whole.lstrip("+-").isdigit() else text


def without_percent(texts: list[str]) -> list[str]:
    """Return percents, as `91%`, as fractions; texts as they are where only some numbers have the sign."""
    if not any(text.endswith("%") for text in texts):
        return texts
    held = {text for text in texts if not is_nothing(text)}
    if not all(text.endswith("%") and is_number(text[:-1].rstrip()) for text in held):
        return texts
    return [_hundredth(text[:-1].rstrip()) if text in held else text for text in texts]


def _hundredth(text: str) -> str:
    """Return a number divided by 100, to its last digit; `Decimal` refuses exponents beyond all floats."""
    number = float(text)
    return str(Decimal(text) / 100) if 1 / MOST_VALUE < abs(number) < MOST_VALUE else repr(number / 100)


def without_prefix(texts: list[str]) -> list[str]:
    """Return the seeds 0, 1 of `seed_0`, `seed_1`; texts as they are where they do not all begin alike."""
    found = {text: _SEED.fullmatch(text) for text in dict.fromkeys(texts)}
    prefixes = {match[1].lower() if match and _LETTER.search(match[1]) else None for match in found.values()}
    if len(prefixes) != 1 or None in prefixes:
        return texts
    numbers = {text: match[2] for text, match in found.items() if match}
    return [numbers[text] for text in texts]


def is_empty(text: str) -> bool:
    """Return whether a field has nothing in it; NaN is something."""
    return text.strip().lower() in NOTHING


def is_nothing(text: str) -> bool:
    """Return whether a field has no number; NaN is none where it is not a metric's."""
    return text.strip().lower() in NO_NUMBER


def is_number(text: str) -> bool:
    """Return whether a field is a number, NaN and infinity among them."""
    return bool(_NUMBER.fullmatch(text))


def as_number(text: str) -> str:
    """Write numbers that are equal alike; other texts, and whole numbers of more digits, as they are."""
    if not is_number(text) or (text.isdigit() and len(text) > NUMBER_DIGITS):
        return text
    return f"{float(text):.{NUMBER_DIGITS}g}"


def number(text: str) -> float:
    """Return a value; infinite: the run diverged; NaN: nothing was measured."""
    if not is_number(text):
        if text.lower() in NOTHING:
            return math.nan
        why = next((said for mark, said in NO_NUMBERS.items() if mark in text), "")
        raise ValueError(f"got {text[:60]!r}, want {why}a number, `nan` where the run diverged, or nothing")
    found = float(text)
    return found if abs(found) <= MOST_VALUE else math.inf


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
    found = _float(text, wanted)
    if not (math.isfinite(found) and found == int(found) and abs(found) < 2**63):
        raise ValueError(f"got {text[:60]!r}, want {wanted}")
    return int(text) if len(text) < 20 and text.lstrip("+-").isdigit() else int(found)


def _step(text: str) -> float:
    found = 0.0 if is_nothing(text) else _float(text, "a number from 0")
    if not 0 <= found < 2**53:
        raise ValueError(f"got {text[:60]!r}, want a number from 0")
    return found


def _name(text: str) -> str:
    name = as_written(printable(text))
    if not name:
        raise ValueError("got nothing, want a name")
    if len(name) > MOST_NAME:
        raise ValueError(f"got a name of {len(name):,} characters, want at most {MOST_NAME}")
    return name


def _status(text: str) -> str:
    words = text.strip().lower().replace(" ", "_")
    words = next((words.removeprefix(start) for start in STATUS_PREFIXES if words.startswith(start)), words)
    if (found := STATUS.get(words) or STATUS.get(words.partition("_by_")[0])) is None:
        raise ValueError(f"got {text[:60]!r}, want one of {', '.join(STATUS)}")
    return found


_PARSERS: dict[str, Callable[[str], Any]] = {
    "learning_rate": _rate,
    "seed": _seed,
    "step": _step,
    "num_steps": _step,
    "status": _status,
}


class Content:
    """The columns of a table as sets of values, read when asked for."""

    def __init__(self, table: TableFile) -> None:
        self.table = table
        self._point: Callable[[str], str] = with_point if table.decimal_comma else str
        self._values: dict[str, set[str]] = {}

    def values(self, name: str) -> set[str]:
        """Return the different fields of a column that hold something."""
        if name not in self._values:
            found = set(map(str.strip, set(self.table.columns[name])))
            self._values[name] = {text for text in found if text.lower() not in NO_NUMBER}
        return self._values[name]

    def is_numbers(self, name: str) -> bool:
        """Return whether every field that holds something is a number."""
        return bool(values := self.values(name)) and all(is_number(self._point(text)) for text in values)

    def has_numbers(self, name: str) -> bool:
        """Return whether a column has numbers, well written or not, or nothing at all."""
        texts = set(self.table.columns[name])
        filled = (text.strip() for text in texts if not is_nothing(text))
        is_found = any(is_number(self._point(text)) or not _LETTERS.search(text) for text in filled)
        return is_found or all(map(is_nothing, texts))

    def has_values(self, name: str) -> bool:
        """Return whether a column holds something."""
        return not all(map(is_nothing, set(self.table.columns[name])))

    def numbers(self, name: str) -> set[float]:
        """Return the different numbers of a column of numbers."""
        return {float(self._point(text)) for text in self.values(name)}

    def differs(self, name: str) -> bool:
        """Return whether a column of numbers has another one in more than half of the rows, as of results."""
        return self.is_numbers(name) and len(self.values(name)) > len(self.table.lines) / 2

    def is_whole(self, name: str) -> bool:
        """Return whether all values of a column are whole numbers from 0 on."""
        return all(text.isascii() and text.isdigit() for text in self.values(name))

    def is_below_0(self, name: str) -> bool:
        """Return whether all numbers of a column are below 0, as the logarithms of rates are."""
        return self.is_numbers(name) and max(self.numbers(name)) < 0

    def is_like_rates(self, name: str) -> bool:
        """Return whether the numbers of a column may be learning rates: few different ones above 0, with fractions."""
        numbers = self.numbers(name) if self.is_numbers(name) else set()
        whole = all(number.is_integer() for number in numbers)
        return not whole and len(numbers) > 1 and min(numbers) > 0 and max(numbers) <= MOST_RATE

    def spans_a_decade(self, name: str) -> bool:
        """Return whether the largest number of a column is about ten times the smallest, or more."""
        return max(self.numbers(name)) >= LEAST_SPAN * min(self.numbers(name))

    def names_runs(self, name: str) -> bool:
        """Return whether a column differs in every row, and its texts have the settings of a run."""
        texts = self.values(name)
        return len(texts) == len(self.table.lines) > 1 and all(map(labels_of, texts))

    def is_scheduled(self, name: str, labels: Sequence[str], step: str) -> bool:
        """Return whether a column changes with the step, where `labels` name a run, and is decided by both."""
        rows = pd.DataFrame({each: self.table.columns[each] for each in (name, *labels, step)}, dtype=object)
        of_run, at_step = (rows.groupby(keys, sort=False)[name].nunique() for keys in ([*labels], [*labels, step]))
        return bool(of_run.max() > 1 >= at_step.max())
