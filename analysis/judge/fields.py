"""Fields of a table as numbers and names; fields that can be read in two ways are refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import pandas as pd

from lr_sweep.analysis.record.columns import MOST_VALUE
from lr_sweep.analysis.report.blocks import as_written
from lr_sweep.common.text import RATES, rates_text

from .names import SPLITS, STATUS
from .table_file import MOST_NAME, printable

NOTHING = {"", "none", "null", "na", "n/a", "<na>", "-", "—", "–"}
"""Fields without a number, in small letters; among texts, all but the empty one are names."""
RATE_DIGITS = 5
"""Digits to which learning rates are equal: single precision and texts differ in later ones."""
LABEL_DIGITS = 12
"""Digits to which numbers in labels are equal."""
_LIMITS = {
    "learning_rate": (*RATES, rates_text()),
    "seed": (-(2**63), 2**63 - 1, "a whole number"),
    "step": (0, 9 * 10**12, "a number from 0 to 9e12"),
}
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
_PREFIXED = re.compile(r"^([^\W\d][^\d.]*)(\d*\.?\d+(?:e-\d+)?)$", re.ASCII | re.IGNORECASE)
"""`lr=0.1`, `seed_3`; what 1e4 is behind a prefix is open, as it may stand for 1e-4."""
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+\.\d+", re.ASCII)
"""A number with marks of thousands that are no decimal commas, as a point follows them."""
_ZEROS = re.compile(r"0\d+")
"""A rate without its decimal point, as in `lr001`."""


def is_number(text: str) -> bool:
    """Return whether a field is a number, NaN and infinity among them."""
    return _NUMBER.fullmatch(text) is not None


def are_numbers(texts: Iterable[str]) -> bool:
    """Return whether all fields that hold something are numbers, perhaps with the sign %."""
    fields = pd.Series(list(set(texts)), dtype=object)
    others = fields[pd.to_numeric(fields, errors="coerce").isna()]
    return all(is_nothing(text) or is_number(text.strip(" %")) for text in others)


def is_nothing(text: str) -> bool:
    """Return whether a field has no number, where NaN is none."""
    return text.strip().lower() in NOTHING | {"nan"}


def as_number(text: str) -> str:
    """Write numbers that are equal alike; other texts, and whole numbers that are long or begin with 0, as they are."""
    is_name = text.isdigit() and (len(text) > LABEL_DIGITS or text[:1] == "0" != text)
    if is_name or not is_number(text):
        return text
    return f"{float(text):.{LABEL_DIGITS}g}"


def parsed(meaning: str, text: str) -> Any:
    """Return the value of a field of a column with this meaning, or the ValueError that says what is wrong."""
    if meaning in SPLITS:
        return _measured(text)
    if meaning == "status":
        return _status(text)
    if meaning in _LIMITS:
        return _number(meaning, text)
    name = as_written(printable(text)) or "none"
    if len(name) <= MOST_NAME:
        return name
    return f"{name[: MOST_NAME - 12]}... {sha256(name.encode()).hexdigest()[:8]}"


def _number(meaning: str, text: str) -> float | ValueError:
    least, most, wanted = _LIMITS[meaning]
    if meaning == "step" and is_nothing(text):
        return 0.0
    is_open = meaning == "learning_rate" and _ZEROS.fullmatch(text)
    number = float(text) if is_number(text) and not is_open else math.nan
    if not least <= number <= most or (meaning == "seed" and number != int(number)):
        return _unwanted(text, wanted)
    if meaning == "seed":  # whole numbers of many digits are no floats
        return int(text) if text.lstrip("+-").isdigit() else int(number)
    return float(f"{number:.{RATE_DIGITS - 1}e}") if meaning == "learning_rate" else number


def _status(text: str) -> str | ValueError:
    word = text.lower().replace(" ", "_").rpartition(".")[2].partition("_by_")[0]
    wanted = "complete, diverged, failed, stopped or missing, or a tool's word for one of them"
    way = "--columns status= leaves the column out"
    return STATUS.get(word) or _unwanted(text, f"{wanted}; {way}")


def _measured(text: str) -> float | ValueError:
    """Return a value; infinite: the run diverged; NaN: nothing was measured."""
    if _GROUPED.fullmatch(text):
        return float(text.replace(",", ""))
    if is_number(text):
        return float(text) if abs(float(text)) <= MOST_VALUE else math.inf
    if text.lower() in NOTHING:
        return math.nan
    wanted = "a number of a single run (no mean), with the sign % behind all values or none"
    return _unwanted(text, f"{wanted}, `nan` where the run diverged, or nothing")


def _unwanted(text: str, wanted: str) -> ValueError:
    if is_number(text.replace(",", "")):
        wanted = f"{wanted}, with a decimal point, and without marks of thousands"
    return ValueError(f"got {text[:60]!r}, want {wanted}")


def mapped(texts: pd.Series[str], function: Callable[[str], Any]) -> pd.Series[Any]:
    """Apply a function once to each different text."""
    values = {text: function(text) for text in texts.unique()}
    return pd.Series([values[text] for text in texts], texts.index, dtype=object)


def without_percent(texts: pd.Series[str]) -> pd.Series[str]:
    """Return percents, as `91%`, as fractions; texts as they are where only some numbers have the sign."""
    is_percent = texts.str.endswith("%")
    if not is_percent.any():
        return texts
    numbers = texts.str.removesuffix("%").str.rstrip()
    fits = is_percent & numbers.map(is_number)
    if not (fits | texts.map(is_nothing)).all():
        return texts
    return texts.where(~fits, (numbers.where(fits, "0").astype(float) / 100).map(repr))


def without_prefix(texts: pd.Series[str]) -> pd.Series[str]:
    """Return the numbers 0, 1 of `seed_0`, `seed_1`; texts as they are where they do not all begin alike."""
    known = pd.Series([text for text in texts.unique() if not is_nothing(text)], dtype=object)
    parts = known.astype(str).str.extract(_PREFIXED)
    if parts[0].isna().any() or parts[0].str.lower().nunique() != 1:
        return texts
    return texts.map(dict(zip(known, parts[1], strict=True))).fillna(texts)
