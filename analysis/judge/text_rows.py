"""The rows of a table as texts, by what their columns mean; numbers that are equal are written alike."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lr_sweep.analysis.judge import names

from .fields import (
    are_numbers,
    as_number,
    is_number,
    without_percent,
    without_prefix,
)
from .meanings import JOIN, Columns
from .names import SPLITS
from .table_file import Line, TableFile, printable

SETTING, LOSS = "setting ", "loss "
"""Prefixes of columns without a meaning: those that may be settings, and losses, which show that a run diverged."""
LABELS = ("task", "model", "variant", "tuned", "run")


def beside(rows: pd.DataFrame, prefix: str) -> list[str]:
    """Return the columns of a frame that begin with `SETTING` or `LOSS`."""
    return [name for name in map(str, rows) if name.startswith(prefix)]


def splits_in(rows: pd.DataFrame) -> list[str]:
    """Return the splits that have values."""
    return [split for split in SPLITS if split in rows]


def text_rows(table: TableFile, columns: Columns) -> pd.DataFrame:
    """Return a frame of texts: a column for each meaning, `where` (`FILE:LINE`), and those of `SETTING` and `LOSS`."""
    texts = {
        meaning: _texts(table, meaning, named)
        for meaning, named in columns.items()
        if meaning != "ignored"
    }
    taken = {name for named in columns.values() for name in named}
    for name in table.columns:
        if name not in taken and (kind := _kind(table.columns[name], name, columns)):
            column = table.columns[name]
            texts[kind + name] = _alike(column) if kind == SETTING else column
    return pd.DataFrame({"where": _places(table), **texts}, dtype=object)


def _places(table: TableFile) -> list[str]:
    paths = {id(line.path): line.path for line in table.lines}  # the hash of a path takes long
    shown = {key: str(Line(path, 0)).removesuffix("0") for key, path in paths.items()}
    return [f"{shown[id(path)]}{what}{number}" for path, number, what in table.lines]


def _alike(texts: Sequence[str]) -> list[str]:
    """Write numbers that are equal alike."""
    written = {text: as_number(text.strip()) for text in set(texts)}
    return [written[text] for text in texts]


def _texts(table: TableFile, meaning: str, columns: Sequence[str]) -> list[str]:
    """Return the fields of a meaning: several columns as one label, numbers without what all begin with."""
    if meaning in SPLITS:
        return without_percent([text.strip() for text in table.columns[columns[0]]])
    if meaning in LABELS:
        return _labels(table, meaning, columns)
    first, *others = [_alike(table.columns[name]) for name in columns]
    if others:
        joined = pd.Series([JOIN.join(row) for row in zip(first, *others, strict=True)])
        codes, _ = pd.factorize(joined, sort=True)
        return list(map(str, codes))
    if meaning == "status":
        return first
    return _alike(without_prefix(first))


def _labels(table: TableFile, meaning: str, columns: Sequence[str]) -> list[str]:
    """Return one label a row, `adam, gamma=0.9`: numbers need the name of their column, and texts do not."""
    parts = []
    for name in columns:
        texts = table.columns[name]
        is_plain = meaning == "run" or (len(columns) == 1 and names.role_of(name) == meaning)
        start = "" if is_plain or not are_numbers(texts) else f"{names.plain(name)}="
        shown = {text: as_number(printable(text)) for text in set(texts)}
        labels = {text: start + label if label else "" for text, label in shown.items()}
        parts.append([labels[text] for text in texts])
    if len(parts) == 1:
        return parts[0]
    return [", ".join(filter(None, row)) for row in zip(*parts, strict=True)]


def _kind(texts: Sequence[str], name: str, columns: Columns) -> str:
    """Return the prefix of a column without a meaning; empty: it was measured, or numbers the rows."""
    differs = 2 * len(set(texts)) > len(texts)
    is_index = name == "#1" and list(texts) == list(map(str, range(len(texts))))
    if names.has_word(name, "about") or is_index:
        return ""
    if names.has_word(name, "time"):  # a limit of the time is the same in many rows
        return "" if differs else SETTING
    if names.is_measurement(name) and any(map(is_number, texts)):
        return LOSS if names.metric_of(name) == "loss" else ""
    has_metric = bool(columns.keys() & {"validation", "test"})
    may_be_metric = names.split_of(name) or (differs and are_numbers(texts))
    return "" if may_be_metric and not has_metric else SETTING
