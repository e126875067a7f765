"""The rows of a table as texts, by what their columns mean; numbers that are equal are written alike."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lr_sweep.analysis.judge import names

from .fields import (
    are_numbers,
    as_number,
    is_number,
    mapped,
    without_percent,
    without_prefix,
)
from .meanings import Columns
from .names import SPLITS
from .table_file import TableFile, printable

SETTING, LOSS = "setting ", "loss "
"""Prefixes of columns without a meaning: those that may be settings, and losses, which show that a run diverged."""
LABELS = ("task", "model", "variant", "tuned")


def beside(rows: pd.DataFrame, prefix: str) -> list[str]:
    """Return the columns of a frame that begin with `SETTING` or `LOSS`."""
    return [name for name in map(str, rows) if name.startswith(prefix)]


def splits_in(rows: pd.DataFrame) -> list[str]:
    """Return the splits that have values."""
    return [split for split in SPLITS if split in rows]


def text_rows(table: TableFile, columns: Columns) -> pd.DataFrame:
    """Return a frame of texts: a column for each meaning, `where` (`FILE:LINE`), and those of `SETTING` and `LOSS`."""
    rows = {
        meaning: _texts(table.frame, meaning, named)
        for meaning, named in columns.items()
        if meaning != "ignored"
    }
    taken = [name for named in columns.values() for name in named]
    for name, texts in table.frame.drop(columns=taken).items():
        if kind := _kind(texts, str(name), columns):
            rows[f"{kind}{name}"] = mapped(texts.str.strip(), as_number)
    frame = pd.DataFrame(rows, table.frame.index, dtype=object)
    return frame.reset_index(names="where")


def _texts(frame: pd.DataFrame, meaning: str, columns: Sequence[str]) -> pd.Series[str]:
    """Return the fields of a meaning: several columns as one label, numbers without what all begin with."""
    if meaning in SPLITS:
        return without_percent(frame[columns[0]].str.strip())
    texts = _joined([_label(frame[name], name, meaning, columns) for name in columns])
    if meaning in (*LABELS, "run", "status"):
        return texts
    if len(columns) > 1:
        codes, _ = pd.factorize(texts, sort=True)
        return pd.Series(codes, frame.index).astype(str)
    return without_prefix(texts)


def _label(
    texts: pd.Series[str], name: str, meaning: str, columns: Sequence[str]
) -> pd.Series[str]:
    """Return labels such as `adam` or `gamma=0.9`: numbers need the name of their column, and texts do not."""
    is_plain = meaning not in LABELS or (len(columns) == 1 and names.role_of(name) == meaning)
    start = "" if is_plain or not are_numbers(texts) else f"{names.plain(name)}="
    labels = mapped(texts, lambda text: as_number(printable(text)))
    return labels.where(labels.eq(""), start + labels)


def _joined(parts: Sequence[pd.Series[str]]) -> pd.Series[str]:
    """Join labels, without the empty ones, to `adam, gamma=0.9`."""
    first, *others = parts
    for labels in others:
        comma = (first.ne("") & labels.ne("")).map({True: ", ", False: ""})
        first = first + comma + labels
    return first


def _kind(texts: pd.Series[str], name: str, columns: Columns) -> str:
    """Return the prefix of a column without a meaning; empty: it was measured, or numbers the rows."""
    differs = 2 * texts.nunique() > len(texts)
    is_index = name == "#1" and texts.tolist() == list(map(str, range(len(texts))))
    if names.has_word(name, "about") or is_index:
        return ""
    if names.has_word(name, "time"):  # a limit of the time is the same in many rows
        return "" if differs else SETTING
    if names.is_measurement(name) and any(map(is_number, texts)):
        return LOSS if names.metric_of(name) == "loss" else ""
    has_metric = bool(columns.keys() & {"validation", "test"})
    may_be_metric = names.split_of(name) or (differs and are_numbers(texts))
    return "" if may_be_metric and not has_metric else SETTING
