"""Fields of a table as numbers and names, and what they say of their columns; ambiguous fields are refused."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any

from lr_sweep.analysis.judge import names
from lr_sweep.analysis.judge.names import has_word
from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile, printable
from lr_sweep.analysis.record.columns import MOST_VALUE
from lr_sweep.analysis.report.blocks import as_written
from lr_sweep.common.text import RATES, rates_text

NOTHING = {
    "",
    "none",
    "null",
    "na",
    "n/a",
    "<na>",
    "-",
    "—",
    "–",
}  # fields without a value, in small letters
NO_NUMBER = NOTHING | {"nan"}
TRUTHS = {
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
}  # values that need the name of their column, as numbers do
RATE_DIGITS = (
    6  # to which learning rates are equal, also where they were stored in single precision
)
NUMBER_DIGITS = 12  # to which numbers in labels are equal; a time or an id may have more
MOST_SMALL, MOST_SHORT = (
    12,
    4,
)  # rows of a small table, and characters of numbers in it that look chosen
LEAST_SPAN, MOST_RATE = (
    9.0,
    10.0,
)  # of a grid of learning rates: how far many of them span, and the largest
LEAST_GROWN = 5  # numbers in a row that grow, as steps do
_LIMITS = {  # of numbers that are no metric's, by meaning: the least and the greatest, and what an error calls them
    "learning_rate": (*RATES, rates_text()),
    "seed": (-(2**63), 2**63 - 1, "a whole number, or one behind a word that all seeds begin with"),
    "step": (0, 2**53 - 1, "a number from 0"),
    "num_steps": (0, 2**53 - 1, "a number from 0"),
}
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
_ID = re.compile(
    r"^\d+$|\d{4}|(?=[a-f]*\d)[0-9a-f]{6}|^[a-z]+-[a-z]+-\d+$"
)  # number, date, hash, or W&B's own name
LETTER = re.compile(r"[^\W\d_]")


def parsed(role: str, text: str) -> Any:
    """Return the value of a field of a column with this meaning, or the ValueError that says what is wrong with it."""
    if role in names.SPLITS:
        return _measured(text)
    if role == "status":
        return state_in(text) or ValueError(
            f"got {text[:60]!r}, want one of {', '.join(names.STATUS)}"
        )
    if role not in _LIMITS:
        name = as_written(printable(text))
        short = f"{name[: MOST_NAME - 12]}... {sha256(name.encode()).hexdigest()[:8]}"  # what is cut off may differ
        return (name if len(name) <= MOST_NAME else short) or ValueError("got nothing, want a name")
    least, most, wanted = _LIMITS[role]
    if "step" in role and is_nothing(text):
        return 0.0
    found = float(text) if is_number(text) else math.nan
    if not least <= found <= most or (role == "seed" and found != int(found)):
        return ValueError(f"got {text[:60]!r}, want {wanted}")
    if role == "seed":
        return int(text) if len(text) < 20 and text.lstrip("+-").isdigit() else int(found)
    return float(f"{found:.{RATE_DIGITS - 1}e}") if role == "learning_rate" else found


def _measured(text: str) -> float | ValueError:
    """Return a value; infinite: the run diverged; NaN: nothing was measured."""
    if is_number(text):
        return float(text) if abs(float(text)) <= MOST_VALUE else math.inf
    if text.lower() in NOTHING:
        return math.nan
    has_commas = is_number(text.replace(",", ""))
    single = "a number of a single run (no mean), with the sign % behind all values or none"
    wanted = "a number with a decimal point, and no marks of thousands" if has_commas else single
    return ValueError(f"got {text[:60]!r}, want {wanted}, `nan` where the run diverged, or nothing")


def without_percent(texts: list[str]) -> list[str]:
    """Return percents, as `91%`, as fractions; texts as they are where only some numbers have the sign."""
    held = {text for text in set(texts) if not is_nothing(text)}
    if not all(text.endswith("%") and is_number(text[:-1].rstrip()) for text in held):
        return texts
    return [repr(float(text[:-1]) / 100) if text in held else text for text in texts]


def without_prefix(texts: Iterable[str]) -> list[str]:
    """Return the seeds 0, 1 of `seed_0`, `seed_1`; texts as they are where they do not all begin alike."""
    texts = list(texts)
    found = {text: re.fullmatch(r"(.*[^\d\n])(\d+)", text) for text in set(texts)}
    prefixes = {match[1].lower() if match else "" for match in found.values()}
    numbers = {text: match[2] for text, match in found.items() if match}
    return (
        [numbers[text] for text in texts]
        if len(prefixes) == 1 and LETTER.search("".join(prefixes))
        else texts
    )


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


def state_in(text: str) -> str:
    """Return what a word says of a run, as `STATUS`; empty: it says nothing."""
    return names.STATUS.get(
        text.strip().lower().replace(" ", "_").rpartition(".")[2].partition("_by_")[0], ""
    )


def are_names(texts: Iterable[str]) -> bool:
    """Return whether texts differ in more than a number at their end, and none is like an id that a tool gives."""
    small = {text.strip().lower() for text in texts if not is_nothing(text)}
    return len({re.sub(r"[\W_]*\d+$", "", text) for text in small}) > 1 and not any(
        map(_ID.search, small)
    )


class Column:
    """A column of a table: what its name says, and its fields, which are looked at when asked for."""

    def __init__(self, name: str, texts: Sequence[str]) -> None:
        self.name, self.texts = name, texts
        self.is_setting, self.has_unit = names.is_setting(name), names.has_unit(name)
        self.is_rate, self.is_metric, self.is_result = (
            names.is_rate(name),
            names.is_metric(name),
            names.is_result(name),
        )
        self.split, self.measure = names.split_of(name), names.measured(name)

    @cached_property
    def values(self) -> set[str]:
        """The different fields that hold something."""
        return {text for text in set(map(str.strip, set(self.texts))) if not is_nothing(text)}

    @cached_property
    def numbers(self) -> list[float]:
        """The different numbers of a column of numbers alone, from the smallest; empty: it has other fields."""
        return sorted(map(float, self.values)) if all(map(is_number, self.values)) else []

    @cached_property
    def has_numbers(self) -> bool:
        """Whether a field is a number, well written or not, or NaN."""
        held = {text for text in map(str.strip, set(self.texts)) if text.lower() not in NOTHING}
        return not all(LETTER.search(text) for text in held) or any(map(is_number, held))

    @cached_property
    def is_text(self) -> bool:
        """Whether no value is a number, or true or false."""
        return not any(is_number(text) or text.lower() in TRUTHS for text in self.values)

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers from 0 on."""
        return all(text.isascii() and text.isdigit() for text in self.values)

    @property
    def differs(self) -> bool:
        """Whether more than half of the rows have a number of their own, as of results."""
        return len(self.numbers) > len(self.texts) / 2

    @property
    def counts(self) -> bool:
        """Whether the values may number repeats: 0, 1, 2 or 1, 2, 3."""
        values = set(without_prefix(self.values))
        known = sorted(
            int(text)
            for text in values
            if text.isascii() and text.isdigit() and len(text) < NUMBER_DIGITS
        )
        return known in ([*range(len(values))], [*range(1, len(values) + 1)])

    @property
    def climbs(self) -> bool:
        """Whether the numbers grow from row to row and several times begin again, as the steps of runs do."""
        numbers = [float(text) if is_number(text) else math.nan for text in self.texts]
        starts = [
            *numbers[:1],
            *(later for number, later in pairwise(numbers) if not later > number),
        ]
        return 1 < len(starts) <= len(numbers) / LEAST_GROWN and len(set(starts)) == 1

    @cached_property
    def is_about_run(self) -> bool:
        """Whether the column says how a run went, or where, as ranks of 1, 2, 3, errors in words, and mappings do."""
        if "rank" in names.words_of(self.name):
            return self.counts
        is_mapping = all(text.startswith("{") for text in self.values)
        counts = has_word(self.name, "deviation", "count") and not has_word(
            self.name, "setting", "tuned"
        )
        counts = counts or (
            has_word(self.name, "extreme") and names.is_known(self.name)
        )  # `max_len` is a setting
        named = not self.is_setting and (counts or has_word(self.name, "about"))
        return is_mapping or (self.is_result and self.is_text) or named

    @property
    def says_nothing(self) -> bool:
        """Whether the name says neither that the values are results or counts nor where a run was."""
        named = self.is_metric or self.is_result or self.is_about_run or self.has_unit
        return not (
            named or has_word(self.name, "setting", "gradient") or names.is_named(self.name, "step")
        )

    @property
    def may_be_setting(self) -> bool:
        """Whether the column may have been varied: results have names that say so, or other values in each row."""
        different = len(set(self.texts))
        few = different <= max(2, len(self.texts) / 2) and (self.is_text or not self.is_result)
        return different > 1 and (self.is_setting or few)

    @property
    def is_chosen(self) -> bool:
        """Whether values look chosen: texts, of which rows share some, or short or round numbers of a small table."""
        if self.is_text:
            return 1 < len(self.values) < len(self.texts) and not self.is_about_run
        longer = [number for number in self.numbers if len(f"{number:g}") > MOST_SHORT]
        may_be = (
            len(self.numbers) > 1
            and len(self.texts) <= MOST_SMALL
            and not (self.is_result or self.is_metric)
        )
        return may_be and all(number == float(f"{number:.1g}") for number in longer)

    @property
    def is_like_rates(self) -> bool:
        """Whether the numbers are like a grid of learning rates: fractions, none large, few ones or over a decade."""
        least, most = min(self.numbers, default=0), max(self.numbers, default=0)
        is_grid = most >= LEAST_SPAN * least or not self.differs
        return (
            0 < least < most <= MOST_RATE
            and is_grid
            and not all(map(float.is_integer, self.numbers))
        )

    @cached_property
    def kind(self) -> str:
        """Kind of a setting: `repeat`, `tuned` or `size` by its name, `count`, `number` or `text` by its values."""
        named = (kind for kind in ("repeat", "tuned", "size") if has_word(self.name, kind))
        return next(named, "count" if self.counts else "text" if self.is_text else "number")


def columns_in(table: TableFile) -> dict[str, Column]:
    """Return the columns of a table by their names."""
    return {name: Column(name, texts) for name, texts in table.columns.items()}
