"""The fields of a table as values, a row a run or evaluation; every mistake with its line."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd

from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.text import counted

from .contract import Contract
from .fields import (
    as_number,
    is_nothing,
    is_number,
    mapped,
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
PARTS = 1000
"""Steps of the report for a step of a table whose steps have fractions."""


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
    frame = table.frame
    for text in where:
        name, _, wanted = text.partition("=")
        differs, name = name.endswith("!"), name.removesuffix("!").strip()
        if name not in frame:
            raise UserError(f"--where {text}: {unknown('column', name, map(str, frame))}")
        texts = mapped(frame[name].str.strip(), as_number)
        frame = frame[texts.eq(as_number(wanted.strip())) != differs]
    if frame.empty:
        raise UserError(f"--where {' '.join(where)}: no row of {table.path} is left")
    return replace(table, frame=frame)


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
    has_rate = mapped(frame["learning_rate"], _is_rate).astype(bool)
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


def _is_rate(text: str) -> bool:
    """Return whether a field has a learning rate, right or wrong; a rate of 0 is no training."""
    return not is_nothing(text) and not (is_number(text) and float(text) == 0)


def _with_values(contract: Contract, frame: pd.DataFrame) -> pd.DataFrame:
    """Turn texts into values; raises UserError with every mistake."""
    mistakes = []
    for meaning in [meaning for meaning in contract.columns if meaning in frame]:
        name = contract.columns[meaning][0]
        values = mapped(frame[meaning], partial(parsed, meaning))
        is_wrong = [isinstance(value, ValueError) for value in values]
        for row in frame.index[is_wrong]:
            way = f"to leave such rows out: --where {shlex.quote(f'{name}!={frame[meaning][row]}')}"
            mistakes.append((row, f"{frame['where'][row]}: {name}: {values[row]}; {way}"))
        frame = frame.assign(**{meaning: values})
    raise_mistakes([mistake for _, mistake in sorted(mistakes)])
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
    """Raise UserError for names that look alike: in capitals, or as `é`, which may be one character or two."""
    for role in ("task", "model", "variant"):
        names = pd.Series(rows[role].unique())
        seen = names.map(partial(unicodedata.normalize, "NFKC")).str.casefold()
        if seen.is_unique:
            continue
        first, second = names[seen.eq(seen[seen.duplicated()].iloc[0])][:2]
        advice = "write one name, or two that differ in more than capitals"
        raise UserError(f"{role} has {first!r} and {second!r}: one or two? {advice}")


def whole_steps(rows: pd.DataFrame, remarks: Remarks) -> pd.DataFrame:
    """Count steps in thousandths of the table's own unit where they have fractions, as those of epochs may."""
    if "step" not in rows:
        return rows
    steps = rows["step"].astype(float)
    if (steps % 1).any():
        steps = (PARTS * steps).round()
        remarks.notes.append(
            f"steps have fractions: in the report a step is 1/{PARTS} of the table's"
        )
    return rows.assign(step=steps.astype("int64"))
