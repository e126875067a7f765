"""Fields of a table as numbers and names, and what they say of their columns; ambiguous fields are refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any

from lr_sweep.analysis.judge.names import (
    SPLITS,
    STATUS,
    has_unit,
    has_word,
    is_about_run,
    is_metric,
    is_named,
    is_rate,
    is_result,
    is_setting,
    measured,
    split_of,
    words_of,
)
from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile, printable
from lr_sweep.analysis.record.columns import MOST_VALUE
from lr_sweep.analysis.report.blocks import as_written
from lr_sweep.common.text import RATES, rates_text

NOTHING = {"", "none", "null", "na", "n/a", "<na>", "-", "—", "–"}
"""Fields without a value, in small letters."""
NO_NUMBER = NOTHING | {"nan"}
"""Fields without a number where it is not a metric's, in which NaN is one."""
TRUTHS = {"true", "false", "yes", "no", "on", "off"}
"""Values that need the name of their column, as numbers do."""
RATE_DIGITS = 6
"""Learning rates equal to so many digits are one, also where they were stored in single precision."""
NUMBER_DIGITS = 12
"""Digits to which numbers in labels are equal; a time or an id may have more."""
MOST_SMALL, MOST_SHORT = 12, 4
"""Rows of a small table, and characters of numbers in it that are rather chosen than measured."""
LEAST_SPAN, MOST_RATE = 9.0, 10.0
"""Numbers that are like a grid of learning rates: how far many of them span, and the largest."""
LEAST_GROWN = 5
"""Numbers that have to grow in a row to be taken for steps."""

_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_SEED = re.compile(r"(.*[^\d\n])(\d+)")
_END = re.compile(r"[\W_]*\d+$")
_ID = re.compile(r"^\d+$|\d{4}|(?=[a-f]*\d)[0-9a-f]{6}|^[a-z]+-[a-z]+-\d+$")
"""A number, a date, a hexadecimal number, or such a name as W&B draws."""
_LETTER = re.compile("[a-z]", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]")


def parsed(role: str, text: str) -> Any:
    """Return the value of a field of a column with this meaning, or the ValueError that says what is wrong with it."""
    try:
        return _PARSERS.get(role, number if role in SPLITS else _name)(text)
    except ValueError as mistake:
        return mistake


def without_percent(texts: list[str]) -> list[str]:
    """Return percents, as `91%`, as fractions; texts as they are where only some numbers have the sign."""
    held = {text for text in set(texts) if not is_nothing(text)}
    if not held or not all(text.endswith("%") and is_number(text[:-1].rstrip()) for text in held):
        return texts
    return [repr(float(text[:-1]) / 100) if text in held else text for text in texts]


def without_prefix(texts: list[str]) -> list[str]:
    """Return the seeds 0, 1 of `seed_0`, `seed_1`; texts as they are where they do not all begin alike."""
    found = {text: _SEED.fullmatch(text) for text in dict.fromkeys(texts)}
    prefixes = {match[1].lower() if match and _LETTER.search(match[1]) else None for match in found.values()}
    if len(prefixes) != 1 or None in prefixes:
        return texts
    numbers = {text: match[2] for text, match in found.items() if match}
    return [numbers[text] for text in texts]


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
        has_commas = is_number(text.replace(",", ""))
        single = "a number of a single run (no mean), with the sign % behind all values or none"
        wanted = "a number with a decimal point, and no marks of thousands" if has_commas else single
        raise ValueError(f"got {text[:60]!r}, want {wanted}, `nan` where the run diverged, or nothing")
    found = float(text)
    return found if abs(found) <= MOST_VALUE else math.inf


def _float(text: str, wanted: str, least: float, most: float) -> float:
    """Return a number within limits; raises ValueError."""
    if not (is_number(text) and least <= (found := float(text)) <= most):
        raise ValueError(f"got {text[:60]!r}, want {wanted}")
    return found


def _rate(text: str) -> float:
    return float(f"{_float(text, rates_text(), *RATES):.{RATE_DIGITS - 1}e}")


def _step(text: str) -> float:
    return 0.0 if is_nothing(text) else _float(text, "a number from 0", 0, 2**53 - 1)


def _seed(text: str) -> int:
    wanted = "a whole number, or one behind a word that all seeds begin with"
    found = _float(text, wanted, -(2**63), 2**63 - 1)
    if found != int(found):
        raise ValueError(f"got {text[:60]!r}, want {wanted}")
    return int(text) if len(text) < 20 and text.lstrip("+-").isdigit() else int(found)


def _name(text: str) -> str:
    name = as_written(printable(text))
    if not name:
        raise ValueError("got nothing, want a name")
    if len(name) > MOST_NAME:  # what is cut off may differ
        return f"{name[: MOST_NAME - 12]}... {sha256(name.encode()).hexdigest()[:8]}"
    return name


def state_in(text: str) -> str:
    """Return what a word says of a run, as `STATUS`; empty: it says nothing."""
    return STATUS.get(text.strip().lower().replace(" ", "_").rpartition(".")[2].partition("_by_")[0], "")


def _status(text: str) -> str:
    if not (state := state_in(text)):
        raise ValueError(f"got {text[:60]!r}, want one of {', '.join(STATUS)}")
    return state


_PARSERS: dict[str, Callable[[str], Any]] = {
    "learning_rate": _rate,
    "seed": _seed,
    "step": _step,
    "num_steps": _step,
    "status": _status,
}


def are_names(texts: Iterable[str]) -> bool:
    """Return whether texts differ in more than a number at their end, and none is like an id that a tool gives."""
    small = {text.strip().lower() for text in texts if not is_nothing(text)}
    return len({_END.sub("", text) for text in small}) > 1 and not any(map(_ID.search, small))


class Column:
    """A column of a table: what its name says, and its fields, which are looked at when asked for."""

    def __init__(self, name: str, texts: Sequence[str]) -> None:
        self.name, self.texts = name, texts
        self.is_setting, self.has_unit = is_setting(name), has_unit(name)
        self.is_rate, self.is_metric, self.is_result = is_rate(name), is_metric(name), is_result(name)
        self.split, self.measure = split_of(name), measured(name)

    @cached_property
    def values(self) -> set[str]:
        """The different fields that hold something."""
        return {text for text in set(map(str.strip, set(self.texts))) if not is_nothing(text)}

    @cached_property
    def is_about_run(self) -> bool:
        """Whether the column says how a run went, as ranks of 1, 2, 3, errors that are texts, and mappings do."""
        if "rank" in words_of(self.name):
            return self.counts
        is_mapping = all(text.startswith("{") for text in self.values)
        return is_mapping or (self.is_result and self.is_text) or is_about_run(self.name)

    @cached_property
    def is_numbers(self) -> bool:
        """Whether every field that holds something is a number."""
        return bool(self.values) and all(map(is_number, self.values))

    @cached_property
    def has_numbers(self) -> bool:
        """Whether a field is a number, well written or not, or NaN."""
        held = (text for text in map(str.strip, set(self.texts)) if text.lower() not in NOTHING)
        return any(is_number(text) or not _LETTERS.search(text) for text in held)

    @property
    def has_letters(self) -> bool:
        """Whether half of the values have letters, as names have."""
        return 2 * sum(bool(_LETTERS.search(text)) for text in self.values) >= len(self.values)

    @property
    def is_mode(self) -> bool:
        """Whether the values are texts of which not each row has another, and that do not say how a run went."""
        return self.is_text and 1 < len(self.values) < len(self.texts) and not self.is_about_run

    @property
    def is_size(self) -> bool:
        """Whether the values are whole numbers, each of several rows, as of a setting of a model."""
        return self.is_whole and 2 * len(self.values) <= len(self.texts)

    @cached_property
    def numbers(self) -> list[float]:
        """The different numbers of a column of numbers alone, from the smallest; empty: it has other fields."""
        return sorted(map(float, self.values)) if self.is_numbers else []

    @property
    def differs(self) -> bool:
        """Whether more than half of the rows have a number of their own, as of results."""
        return self.is_numbers and len(self.values) > len(self.texts) / 2

    @property
    def may_be_setting(self) -> bool:
        """Whether the column may have been varied: results have names that say so, or other values in each row."""
        different = len(set(self.texts))
        few = different <= max(2, len(self.texts) / 2) and (self.is_text or not self.is_result)
        return different > 1 and (self.is_setting or few)

    @property
    def is_short(self) -> bool:
        """Whether a small table has several short or round numbers here, as of settings, and no name of a result."""
        small = self.is_numbers and len(self.texts) <= MOST_SMALL and not (self.is_result or self.is_metric)
        longer = [number for number in self.numbers if small and len(f"{number:g}") > MOST_SHORT]
        return small and len(self.values) > 1 and all(number == float(f"{number:.1g}") for number in longer)

    @property
    def climbs(self) -> bool:
        """Whether the numbers grow from row to row and several times begin again, as the steps of runs do."""
        numbers = [float(text) if is_number(text) else math.nan for text in self.texts]
        starts = [*numbers[:1], *(later for number, later in pairwise(numbers) if not later > number)]
        return 1 < len(starts) <= len(numbers) / LEAST_GROWN and len(set(starts)) == 1

    @property
    def is_unique(self) -> bool:
        """Whether each row has a value of its own."""
        return len(self.values) == len(self.texts) > 1

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers from 0 on."""
        return all(text.isascii() and text.isdigit() for text in self.values)

    @property
    def counts(self) -> bool:
        """Whether the values may number repeats: 0, 1, 2 or 1, 2, 3."""
        values = set(without_prefix(list(self.values)))
        known = [text for text in values if text.isascii() and text.isdigit() and len(text) < NUMBER_DIGITS]
        return sorted(map(int, known)) in ([*range(len(values))], [*range(1, len(values) + 1)])

    @cached_property
    def is_text(self) -> bool:
        """Whether no value is a number, or true or false."""
        return not any(is_number(text) or text.lower() in TRUTHS for text in self.values)

    @property
    def is_below_0(self) -> bool:
        """Whether all numbers are below 0, as the logarithms of rates are."""
        return bool(self.numbers) and self.numbers[-1] < 0

    @property
    def is_like_rates(self) -> bool:
        """Whether the numbers are like a grid of learning rates: fractions, none large, few ones or over a decade."""
        if len(self.numbers) < 2 or all(map(float.is_integer, self.numbers)):
            return False
        least, most = self.numbers[0], self.numbers[-1]
        return 0 < least < most <= MOST_RATE and (most >= LEAST_SPAN * least or not self.differs)

    @property
    def says_nothing(self) -> bool:
        """Whether the name says neither that the values are results or counts nor where a run was."""
        named = self.is_metric or self.is_result or self.is_about_run or self.has_unit
        return not (named or has_word(self.name, "setting", "gradient") or is_named(self.name, "step"))

    @cached_property
    def kind(self) -> str:
        """Kind of a setting: `repeat`, `tuned` or `size` by its name, `count`, `number` or `text` by its values."""
        if named := next((kind for kind in ("repeat", "tuned", "size") if has_word(self.name, kind)), ""):
            return named
        return "count" if self.counts else "text" if self.is_text else "number"


def columns_in(table: TableFile) -> dict[str, Column]:
    """Return the columns of a table by their names."""
    return {name: Column(name, texts) for name, texts in table.columns.items()}
