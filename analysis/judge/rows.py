"""The fields of a table as values, a row a run or evaluation; every mistake with its line."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.text import counted

from .contract import Contract
from .fields import (
    as_number,
    is_nothing,
    is_number,
    parsed,
)
from .meanings import JOIN
from .names import listed
from .table_file import TableFile, raise_mistakes, stem_of
from .text_rows import LOSS, beside, splits_in

ALL = "all"
"""The model or variant of a table that names none; the task is then named as the file."""
UNTUNED = 1.0
"""Stands for the learning rate in the frames of a table that has none."""


@dataclass
class Remarks:
    """Sentences on how a table was read, by what they are about."""

    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Variants without a learning rate, which the verdict names, too."""
    warnings: list[str] = field(default_factory=list)
    """Doubts about every result, which the terminal shows first."""


def decisive(columns: Container[str]) -> str:
    """Return the split that selects: `validation`, or `test` where there is no validation data."""
    return "validation" if "validation" in columns else "test"


def only(table: TableFile, where: Sequence[str]) -> TableFile:
    """Return the rows with the values that are wanted of columns, as `state=finished`, or not, as `state!=failed`.

    Raises UserError for a column that is not there, and if no row is left.
    """
    kept = list(range(len(table.lines)))
    for text in where:
        name, _, wanted = text.partition("=")
        differs, name = name.endswith("!"), name.removesuffix("!").strip()
        if name not in table.columns:
            raise UserError(f"--where {text}: {unknown('column', name, table.columns)}")
        texts, value = table.columns[name], as_number(wanted.strip())
        kept = [row for row in kept if (as_number(texts[row].strip()) == value) != differs]
    if not kept:
        raise UserError(f"--where {' '.join(where)}: no row of {table.path} is left")
    return table.rows_at(kept) if where else table


def rows_of(contract: Contract, remarks: Remarks) -> pd.DataFrame:
    """Read the rows of a table; raises UserError with every mistake.

    Returns a frame with a column for each meaning, `where` (`FILE:LINE`), `diverged`, and those of `SETTING` and
    `LOSS`. A task, model, variant and learning rate are always there. Values are NaN where there is none.
    """
    frame = _with_values(contract, _with_rates(contract, contract.rows, remarks))
    if "variant" not in frame and "model" in frame:  # what is compared is called a variant
        frame = frame.rename(columns={"model": "variant"})
    names_missing = {"task": stem_of(contract.table.path), "model": ALL, "variant": ALL}
    frame = frame.assign(
        **{role: name for role, name in names_missing.items() if role not in frame}
    )
    _refuse_spellings(frame)
    return frame.reset_index(drop=True)


def _with_rates(contract: Contract, frame: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Leave out variants without any learning rate, as an untrained baseline, by name; and rows without anything."""
    if "learning_rate" not in frame:
        return frame
    texts = frame["learning_rate"]
    has_rate = ~texts.isin([text for text in texts.unique() if is_nothing(text) or _is_zero(text)])
    is_empty = frame[splits_in(frame)].isin([""]).all(axis=1) & ~has_rate
    compared = next((role for role in ("variant", "model") if role in frame), None)
    variants = frame[compared] if compared else pd.Series("", frame.index)
    is_untrained = ~has_rate.groupby(variants).transform("any") & bool(has_rate.any())
    if compared and (is_untrained & ~is_empty).any():
        rows = counted(int((is_untrained & ~is_empty).sum()), "row")
        said = JOIN.join([*contract.columns[compared], *contract.columns["learning_rate"]])
        advice = f"--columns {shlex.quote(f'{compared}={said}')} compares all rows as they are"
        without = listed(variants[is_untrained].unique())
        remarks.left_out.append(f"LEFT OUT: {without}: no learning rate in {rows}; {advice}")
    return frame[~is_untrained & ~is_empty]


def _is_zero(text: str) -> bool:
    return is_number(text) and float(text) == 0


def _with_values(contract: Contract, frame: pd.DataFrame) -> pd.DataFrame:
    """Turn texts into values; raises UserError with every mistake."""
    mistakes: list[tuple[int, str]] = []
    for meaning in [meaning for meaning in contract.columns if meaning in frame]:
        name = contract.columns[meaning][0]
        values = {text: parsed(meaning, text) for text in frame[meaning].unique()}
        wrong = [text for text, value in values.items() if isinstance(value, ValueError)]
        rows = frame.index[frame[meaning].isin(wrong)]
        for row, text in zip(rows, frame[meaning][rows], strict=True):
            way = f"to leave such rows out: --where {shlex.quote(f'{name}!={text}')}"
            mistakes.append((row, f"{name}: {values[text]}; {way}"))
        frame = frame.assign(**{meaning: frame[meaning].map(values)})
    lines = contract.table.lines
    raise_mistakes([f"{lines[row]}: {mistake}" for row, mistake in sorted(mistakes)])
    splits = splits_in(frame)
    losses = beside(frame, LOSS)
    frame = frame.assign(**frame[losses].apply(_losses))
    measured = frame[splits].astype(float)
    is_infinite = np.isinf(measured)
    frame = frame.assign(diverged=is_infinite[decisive(splits)])
    frame[splits] = measured.mask(is_infinite)
    if "learning_rate" not in frame:
        frame["learning_rate"] = UNTUNED
    return frame.infer_objects()


def _losses(texts: pd.Series[str]) -> pd.Series[float]:
    """Return losses as numbers; infinite: the run diverged there."""
    written = texts.str.strip().str.lower().replace("nan", "inf")
    return pd.to_numeric(written, errors="coerce")


def _refuse_spellings(rows: pd.DataFrame) -> None:
    """Raise UserError for names that look alike: `é` may be one character or two, and others are invisible."""
    for role in ("task", "model", "variant"):
        first: dict[str, str] = {}
        for name in rows[role].unique():
            seen = "".join(sign for sign in name if unicodedata.category(sign) != "Cf")
            other = first.setdefault(unicodedata.normalize("NFC", seen).casefold(), name)
            if other != name:
                advice = "write one name, or two that differ in more than capitals"
                raise UserError(f"{role} has {other!r} and {name!r}: one or two? {advice}")


def whole_steps(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Count steps in a part of the table's own unit where they have fractions, as those of epochs may."""
    if "step" not in rows:
        return rows
    steps = rows["step"].astype(float)
    fitting = (10**power for power in range(6) if ((steps * 10**power + 1e-6) % 1 <= 2e-6).all())
    parts = next(fitting, 10**6)
    if parts > 1:
        remarks.notes.append(
            f"steps have fractions: in the report a step is 1/{parts} of the table's"
        )
    return rows.assign(step=(steps * parts).round().astype("int64"))
