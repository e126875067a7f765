"""The fields of a table as values by what their columns mean, a row a run or evaluation; every mistake with its line.

Fields that can be read in two ways are refused.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pandas as pd

from lr_sweep.analysis.record.columns import MOST_VALUE
from lr_sweep.analysis.report.blocks import as_written
from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.text import RATES, counted, rates_text

from .meanings import JOIN, Columns
from .names import NAN, SPLITS, STATUS, Column, is_nothing, is_number, listed, plain
from .table_file import MOST_NAME, TableFile, printable, raise_mistakes, stem_of

NAMED = ("task", "model", "variant", "tuned")
"""Meanings whose numbers are shown with the name of their column."""
LABELS = (*NAMED, "run")
"""Meanings whose fields are names."""
UNTUNED = 1.0
"""Stands for the learning rate in the frames of a table that has none."""
RATE_DIGITS = 5
"""Digits to which learning rates are equal: single precision and texts differ in later ones."""
LABEL_DIGITS = 12
"""Digits to which numbers in labels are equal."""
_LIMITS = {
    "learning_rate": RATES,
    "seed": (-9 * 10**18, 9 * 10**18),
    "step": (0, 9 * 10**12),
}
"""Smallest and largest number by meaning."""
_WANTED = {
    "learning_rate": rates_text(),
    "seed": "a whole number",
    "step": "a number from 0 to 9e12",
    "status": """complete, diverged, failed, stopped or missing, or a tool's word for one of them; \
--columns status= leaves the column out""",
    **dict.fromkeys(
        SPLITS,
        """a number of a single run (no mean), with a decimal point and without marks of thousands, \
with the sign % behind all values or none, `nan` where the run diverged, or nothing""",
    ),
}
"""Fields that can be read, by meaning."""
_PREFIXED = r"(?i)^([^\W\d][^\d.]*)(\d*\.?\d+(?:e-\d+)?)$"
"""`lr=0.1`, `seed_3`; what 1e4 is behind a prefix is open, as it may stand for 1e-4."""
_GROUPED = r"[+-]?[1-9]\d{0,2}(?:,\d{3})+\.\d+"
"""A number with marks of thousands that are no decimal commas, as a point follows them."""
_NO_POINT = r"0\d+"
"""A rate without its decimal point, as in `lr001`."""
ALL = "all"
"""The model or variant of a table that names none; the task is then named as the file."""
Texts = pd.Series  # of str


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of a table."""

    values: pd.DataFrame
    """A column for each meaning, `where` (`FILE:LINE`), `diverged`, and the largest `loss`; infinite: it was NaN.

    Values of splits are NaN where nothing was measured, and where the run diverged.
    """
    settings: pd.DataFrame
    """Texts of the columns without a meaning that may be settings."""
    left_out: Sequence[str]
    """Sentences on variants without a learning rate."""
    mistakes: list[str]


def only(table: TableFile, where: Sequence[str]) -> TableFile:
    """Return the rows with the values that are wanted of columns, as `state=finished`, or not, as `state!=failed`.

    Raises UserError for a column that is not there, and if no row is left.
    """
    frame = table.frame
    for text in where:
        name, _, wanted = text.partition("=")
        differs, name = name.endswith("!"), name.removesuffix("!").strip()
        if name not in frame:
            raise UserError(f"--where {text}: {unknown('column', name, map(str, frame))}")
        is_wanted = mapped(frame[name].str.strip(), alike).eq(alike(wanted.strip()))
        frame = frame[is_wanted != differs]
    if frame.empty:
        raise UserError(f"--where {' '.join(where)}: no row of {table.path} is left")
    return replace(table, frame=frame)


def rows_of(table: TableFile, columns: Columns, unused: Sequence[Column]) -> Rows:
    """Read the rows of a table; `unused`: its columns without a meaning."""
    has_metric = bool(columns.keys() & {"validation", "test"})
    settings = [column for column in unused if _may_be_setting(column, has_metric)]
    losses = [column for column in unused if column.metric == "loss"]
    texts = pd.DataFrame(
        {role: _texts(role, named) for role, named in columns.items() if role != "ignored"},
        table.frame.index,
    )
    texts = texts.reset_index(names="where")
    texts, left_out = _with_rates(texts, columns)
    values, mistakes = _values(texts, columns)
    splits = splits_in(values)
    is_infinite = values[splits].isin([math.inf, -math.inf])
    values = values.assign(
        **values[splits].mask(is_infinite),
        diverged=is_infinite.get(decisive(splits), default=False),
        loss=_largest(losses),
    )
    frame = pd.DataFrame(
        {column.name: mapped(column.texts.str.strip(), alike) for column in settings},
        table.frame.index,
    )
    frame = frame.reset_index(drop=True).reindex(values.index)
    return Rows(values=values, settings=frame, left_out=left_out, mistakes=mistakes)


def _may_be_setting(column: Column, has_metric: bool) -> bool:
    """Return whether a column without a meaning may be a setting: it was not measured, and does not number the rows."""
    texts = column.texts
    differs = 2 * column.num_values > len(texts)
    is_index = column.name == "#1" and texts.tolist() == list(map(str, range(len(texts))))
    if "about" in column.kinds or is_index:
        return False
    if "time" in column.kinds:  # a limit of the time is the same in many rows
        return not differs
    if column.is_measurement and column.is_numeric:
        return False
    may_be_metric = column.split or (differs and column.is_numeric)
    return has_metric or not may_be_metric


def _largest(losses: Sequence[Column]) -> pd.Series[float] | float:
    """Return the largest loss in each row; NaN where none was measured."""
    measured = [_measured(column.texts)[0].reset_index(drop=True) for column in losses]
    return pd.concat(measured, axis=1).max(axis=1) if measured else math.nan


def _texts(meaning: str, columns: Sequence[Column]) -> Texts:
    """Return the fields of a meaning: several columns as one label, numbers without what all begin with."""
    if meaning in SPLITS:
        return _without_signs(columns[0].texts.str.strip())
    first, *others = [_label(meaning, column, is_only=len(columns) == 1) for column in columns]
    for labels in others:
        comma = (first.ne("") & labels.ne("")).map({True: ", ", False: ""})
        first = first + comma + labels
    if meaning in (*LABELS, "status"):
        return first
    if others:
        return pd.Series(pd.factorize(first, sort=True)[0], first.index).astype(str)
    return _without_prefix(first)


def _label(meaning: str, column: Column, *, is_only: bool) -> Texts:
    """Return labels such as `adam` or `gamma=0.9`: numbers need the name of their column, and texts do not."""
    labels = mapped(mapped(column.texts, printable), alike)
    is_plain = is_only and column.role == meaning
    if is_plain or meaning not in NAMED or not column.is_numeric:
        return labels
    return labels.where(labels.eq(""), f"{plain(column.name)}=" + labels)


def _with_rates(texts: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, list[str]]:
    """Leave out variants without any learning rate, as an untrained baseline, by name; and rows without anything.

    A rate of 0 is no training.
    """
    if "learning_rate" not in texts:
        return texts, []
    rates = texts["learning_rate"]
    has_rate = ~is_nothing(rates) & pd.to_numeric(rates, errors="coerce").ne(0)
    has_row = has_rate | ~texts[splits_in(texts)].isin([""]).all(axis=1)
    compared = next((role for role in ("variant", "model") if role in texts), None)
    variants = texts[compared] if compared else pd.Series("", texts.index)
    is_trained = has_rate.groupby(variants).transform("any") | (not has_rate.any())
    kept = texts[is_trained & has_row]
    left = variants[~is_trained & has_row]
    if compared is None or left.empty:
        return kept, []
    names = JOIN.join(column.name for column in columns[compared] + columns["learning_rate"])
    advice = f"--columns {shlex.quote(f'{compared}={names}')} compares all rows as they are"
    rows = counted(len(left), "row")
    return kept, [f"LEFT OUT: {listed(left.unique())}: no learning rate in {rows}; {advice}"]


def _values(texts: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, list[str]]:
    """Return texts as values, and every mistake in them in the order of the rows."""
    values, mistakes = texts.copy(), list[tuple[int, str]]()
    for meaning in columns.keys() & {*texts}:
        values[meaning], is_wrong = _parsed(meaning, texts[meaning])
        name = columns[meaning][0].name
        for row in texts.index[is_wrong]:
            text = texts[meaning][row]
            got = f"{texts['where'][row]}: {name}: got {text[:60]!r}, want {_WANTED[meaning]}"
            way = f"to leave such rows out: --where {shlex.quote(f'{name}!={text}')}"
            mistakes.append((row, f"{got}; {way}"))
    return values, [mistake for _, mistake in sorted(mistakes)]


def _parsed(meaning: str, texts: Texts) -> tuple[pd.Series, pd.Series[bool]]:
    """Return the values of fields with a meaning, and which fields are wrong."""
    if meaning in LABELS:
        return mapped(texts, _name), pd.Series(False, texts.index)
    if meaning in SPLITS:
        return _measured(texts)
    if meaning == "status":
        words = texts.str.lower().str.replace(r"^.*\.|[_ ]by[_ ].*", "", regex=True)
        states = words.str.replace(" ", "_").map(STATUS)
        return states, states.isna()
    numbers = pd.to_numeric(texts, errors="coerce")
    if meaning == "step":
        numbers = numbers.mask(is_nothing(texts), 0)
    is_wrong = ~numbers.between(*_LIMITS[meaning])
    if meaning == "learning_rate":
        rounded = mapped(numbers, f"{{:.{RATE_DIGITS - 1}e}}".format)
        return rounded.astype(float), is_wrong | texts.str.fullmatch(_NO_POINT)
    if meaning == "seed":  # whole numbers of many digits are no floats
        exact = mapped(texts.mask(is_wrong, "0"), Decimal)
        return exact.map(int).mask(is_wrong), is_wrong | (exact % 1).ne(0)
    return numbers, is_wrong


def _measured(texts: Texts) -> tuple[pd.Series[float], pd.Series[bool]]:
    """Return values, and which fields are wrong; infinite: the run diverged; NaN: nothing was measured."""
    numbers = pd.to_numeric(texts, errors="coerce").astype(float)
    is_lost = texts.isin(NAN) | (numbers.abs() > MOST_VALUE)
    return numbers.mask(is_lost, math.inf), numbers.isna() & ~is_nothing(texts)


def _name(text: str) -> str:
    """Return a name as reports write it; a very long one keeps apart from others by a checksum."""
    name = as_written(text) or "none"
    if len(name) <= MOST_NAME:
        return name
    return f"{name[: MOST_NAME - 12]}... {sha256(name.encode()).hexdigest()[:8]}"


def mapped(values: pd.Series, function: Callable[[Any], Any]) -> pd.Series:
    """Apply a function once to each different value."""
    return values.map({value: function(value) for value in values.unique()})


def alike(text: str) -> str:
    """Write numbers that are equal alike; other texts, and whole numbers that are long or begin with 0, as they are."""
    is_name = text.isdigit() and (len(text) > LABEL_DIGITS or text[0] == "0" != text)
    return text if is_name or not is_number(text) else f"{float(text):.{LABEL_DIGITS}g}"


def _without_signs(texts: Texts) -> Texts:
    """Return numbers without marks of thousands, and percents, as `91%`, as fractions.

    Texts are as they are where only some numbers have the sign.
    """
    if not _measured(texts)[1].any():
        return texts
    texts = texts.mask(texts.str.fullmatch(_GROUPED), texts.str.replace(",", ""))
    if not (texts.str.endswith("%") | is_nothing(texts)).all():
        return texts
    fractions = pd.to_numeric(texts.str.removesuffix("%"), errors="coerce") / 100
    return texts.where(fractions.isna(), fractions.astype(str))


def _without_prefix(texts: Texts) -> Texts:
    """Return the numbers 0, 1 of `seed_0`, `seed_1`; texts as they are where they do not all begin alike."""
    known = pd.Series(texts[~is_nothing(texts)].unique(), dtype=object)
    parts = known.str.extract(_PREFIXED)
    if parts[0].isna().any() or parts[0].str.lower().nunique() != 1:
        return texts
    return texts.map(dict(zip(known, parts[1], strict=True))).fillna(texts)


def decisive(columns: Container[str]) -> str:
    """Return the split that selects: `validation`, or `test` where there is no validation data."""
    return "validation" if "validation" in columns else "test"


def splits_in(rows: pd.DataFrame) -> list[str]:
    """Return the splits that have values."""
    return [split for split in SPLITS if split in rows]


def completed(table: TableFile, rows: Rows) -> pd.DataFrame:
    """Return values with a task, model, variant, rate, status and step; raises UserError with every mistake."""
    raise_mistakes(rows.mistakes)
    values = rows.values
    if "variant" not in values:  # what is compared is called a variant
        values = values.rename(columns={"model": "variant"})
    defaults = {
        "task": stem_of(table.path),
        "model": ALL,
        "variant": ALL,
        "learning_rate": UNTUNED,
        "status": "complete",
        "step": 0,
    }
    return pd.DataFrame({**defaults, **values}, values.index)
