"""The meanings of the columns of a table: as its user says, as its format defines, or by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import pandas as pd

from lr_sweep.common.errors import unknown

from .names import METRIC, ROLES, SPLITS, SYNONYMS, Column, is_setting
from .table_file import TableFile, raise_mistakes

JOIN = "+"
"""Joins the names of columns that mean one thing together."""
ROWS = "rows"
"""Given in place of a column of seeds: each row is a seed of its own."""
NAMES = "names"
"""Column of the names of the columns of validation, where these are turned into rows."""
VALUES = ("score", "value of names")
"""Column of their values, where no metric is known that names it, and where another column has that name."""
SEPARATOR = r"[/\\\s_,;]+|(?<!\d[eE])-"
"""Separator of the parts of a name; the sign of an exponent is none."""
_SETTINGS = re.compile(r"(?i)=|\d\.\d|\de-?\d|(?<![a-z])(?:lr|seed|eta)(?![a-z])")
"""Signs of settings in a name, which is then not the name of what is compared."""
Columns = dict[str, list[Column]]
"""Columns by what they mean, or may mean."""


def turned(table: TableFile, texts: Mapping[str, str]) -> tuple[TableFile, Mapping[str, str]]:
    """Turn the columns of validation into rows, if the user gives a meaning to their `names`, or to parts of these."""
    means_names = any(text.partition(".")[0] == NAMES for text in texts.values())
    if not means_names or NAMES in table.frame or not texts.get("validation"):
        return table, texts
    table, given = with_given(table, {"validation": texts["validation"]})
    columns = given["validation"]
    values = [column.name for column in columns]
    kept = table.frame.columns.difference(values, sort=False).tolist()
    metrics = {column.metric_word for column in columns}
    metric = metrics.pop() if len(metrics) == 1 else ""
    value = next(name for name in (metric, *VALUES) if name not in ("", *kept))
    frame = table.frame.melt(kept, values, NAMES, value, ignore_index=False)
    return replace(table, frame=frame.astype(object)), {**texts, "validation": value}


def with_given(table: TableFile, texts: Mapping[str, str]) -> tuple[TableFile, Columns]:
    """Return the columns that the user names, by name, position (`#2`), pattern (`acc_*`) or part (`name.2`).

    The second part of `adam-lr0.1-s1` is `lr0.1`; parts become columns of the table. Raises UserError with every
    mistake.
    """
    frame, columns, mistakes = table.frame, Columns(), list[str]()
    meanings = dict[str, str]()
    for meaning, text in texts.items():
        columns[meaning] = []
        for part in [text] if text in frame else filter(None, text.split(JOIN)):
            frame = _with_part(frame, part.strip())
            names = _names_like(frame, part.strip())
            if not names and meaning != "ignored":
                mistakes.append(f"--columns: {unknown('column', part.strip(), map(str, frame))}")
            for name in names:
                if meanings.setdefault(name, meaning) != meaning:
                    mistakes.append(
                        f"--columns: {name} is given as {meanings[name]} and as {meaning}"
                    )
                columns[meaning].append(Column(name, frame[name]))
    raise_mistakes(mistakes)
    return replace(table, frame=frame), columns


def _with_part(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Add the column of a part of another one's texts, if that is what a name asks for."""
    whole, _, number = name.rpartition(".")
    sources = _names_like(frame, whole)
    if name in frame or not number.isdigit() or not sources:
        return frame
    place = int(number) - 1
    parts = [
        dict(enumerate(re.split(SEPARATOR, text))).get(place, "") for text in frame[sources[0]]
    ]
    return frame.assign(**{name: parts}) if any(parts) else frame


def _names_like(frame: pd.DataFrame, text: str) -> list[str]:
    """Return the columns with a name, or those at a position or with a pattern."""
    if text in frame:
        return [text]
    return [
        name
        for place, name in enumerate(map(str, frame), 1)
        if text == f"#{place}" or fnmatchcase(name, text)
    ]


def possible_columns(free: Sequence[Column], given: Columns, known: Mapping[str, str]) -> Columns:
    """Return the columns that may have each meaning which the user has not given; if it is one, it has the meaning.

    `free`: the columns that the user has not given; `known`: their names by what their format says of them.
    """
    possible: Columns = {meaning: [] for meaning in (*ROLES, *SPLITS, METRIC, "")}
    for column in free:
        if column.texts.any():
            possible[column.meaning].append(column)
    for role in ROLES:
        possible[role] = _deciding(role, possible[role])
    _decide_values(possible, given)
    for meaning, name in known.items():
        known_columns = [column for column in free if column.name == name]
        possible[meaning] = known_columns or possible[meaning]
    decided = possible | given
    if not (decided["variant"] or decided["model"] or decided["learning_rate"]):
        possible["variant"] = _only_names(possible[""])
    return {
        meaning: columns
        for meaning, columns in possible.items()
        if columns and meaning not in (*given, METRIC, "")
    }


def _deciding(role: str, columns: list[Column]) -> list[Column]:
    """Return the columns of a role without those that decide nothing.

    These are constant ones beside others, a schedule's rate beside the setting, and all but one column of steps, as
    all of them grow together.
    """
    if role == "step":
        return sorted(columns, key=lambda column: SYNONYMS[role].index(column.synonym))[:1]
    if role == "learning_rate":
        columns = [column for column in columns if is_setting(column.name)] or columns
    varying = [column for column in columns if column.num_values > 1]
    return varying or columns[:1]


def _only_names(unknown: Sequence[Column]) -> list[Column]:
    """Return the columns of texts that name each row of a table in which nothing else was varied."""
    settings = [
        column
        for column in unknown
        if column.num_values > 1 and not (column.split or column.is_measurement)
    ]
    return settings if all(map(_names_each_row, settings)) else []


def _names_each_row(column: Column) -> bool:
    """Return whether texts are different in each row, and none is a number or has settings in it."""
    texts = column.texts
    are_names = pd.to_numeric(texts, errors="coerce").isna() & texts.ne("")
    return texts.is_unique and not (~are_names | texts.str.contains(_SETTINGS)).any()


def _decide_values(possible: Columns, given: Columns) -> None:
    """Keep the columns of one metric on validation, test and training data."""
    tested = possible["test"] or given.get("test", [])
    # A loss that does not say its data may be that of training, and so may an accuracy beside it.
    may_be_tested = any(column.higher_is_better for column in possible[METRIC])
    if may_be_tested and not (possible["validation"] or tested):
        possible["validation"] = possible[METRIC]
    chosen = given.get("validation") or possible["validation"] or given.get("test")
    if chosen:
        for split in ("test", "train"):
            possible[split] = [
                column for column in possible[split] if column.measured == chosen[0].measured
            ]
    if len(possible["train"]) > 1:
        possible["train"] = []
