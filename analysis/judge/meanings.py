"""The meanings of the columns of a table: as its user says, as its format defines, or by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

import pandas as pd

from lr_sweep.analysis.judge import names
from lr_sweep.common.errors import unknown

from .fields import are_numbers, is_nothing, is_number
from .names import ROLES, SPLITS
from .table_file import TableFile, raise_mistakes

JOIN = "+"
"""Joins the names of columns that mean one thing together."""
ROWS = "rows"
"""Given in place of a column of seeds: each row is a seed of its own."""
NAMES = "names"
"""Column of the names of the columns of validation, where these are turned into rows."""
VALUE = "value of names"
"""Column of their values, where no metric is known that names it."""
_SEPARATOR = re.compile(r"[/\\\s_,;]+|(?<!\d[eE])-")
"""Separator of the parts of a name; the sign of an exponent is none."""
_HAS_SETTINGS = re.compile(r"=|\d\.\d|\de-?\d|(?<![a-z])(lr|seed|eta)(?![a-z])", re.IGNORECASE)
"""Signs of settings in a name, which is then not the name of what is compared."""
Columns = Mapping[str, list[str]]
"""Names of columns by what they mean, or may mean."""


def turned(table: TableFile, texts: Mapping[str, str]) -> tuple[TableFile, dict[str, str]]:
    """Turn the columns of validation into rows, if the user gives a meaning to their `names`, or to parts of these."""
    means_names = any(text.partition(".")[0] == NAMES for text in texts.values())
    if not means_names or NAMES in table.frame or not texts.get("validation"):
        return table, dict(texts)
    table, given = with_given(table, {"validation": texts["validation"]})
    values = given["validation"]
    kept = [name for name in table.frame if name not in values]
    metrics = {names.metric_of(name) for name in values}
    value = metrics.pop() if len(metrics) == 1 else ""
    value = VALUE if value in ("", *kept) else value
    frame = table.frame.melt(kept, values, NAMES, value, ignore_index=False)
    return replace(table, frame=frame.astype(object)), {**texts, "validation": value}


def with_given(
    table: TableFile, texts: Mapping[str, str]
) -> tuple[TableFile, dict[str, list[str]]]:
    """Return the columns that the user names, by name, position (`#2`), pattern (`acc_*`) or part (`name.2`).

    The second part of `adam-lr0.1-s1` is `lr0.1`; parts become columns of the table. Raises UserError with every
    mistake.
    """
    frame, columns, mistakes = table.frame, dict[str, list[str]](), list[str]()
    for meaning, text in texts.items():
        columns[meaning] = []
        parts = [text] if text in frame else text.split(JOIN) if text else []
        for name in map(str.strip, parts):
            frame = _with_part(frame, name)
            named = _columns_named(frame, name)
            if not named and name != ROWS and meaning != "ignored":
                mistakes.append(f"--columns: {unknown('column', name, map(str, frame))}")
            columns[meaning] += named or [name] * (meaning != "ignored")
    for name in map(str, frame):
        meanings = [meaning for meaning, named in columns.items() if name in named]
        if len(meanings) > 1:
            mistakes.append(f"--columns: {name} is given as {' and as '.join(meanings)}")
    raise_mistakes(mistakes)
    return replace(table, frame=frame), columns


def _with_part(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Add the column of a part of another one's texts, if that is what a name asks for."""
    whole, _, number = name.rpartition(".")
    sources = _columns_named(frame, whole)
    if name in frame or not number.isdigit() or not sources:
        return frame
    parts = frame[sources[0]].map(parts_in).str.get(int(number) - 1).fillna("")
    return frame.assign(**{name: parts}) if parts.ne("").any() else frame


def parts_in(text: str) -> list[str]:
    """Return the parts of a name, as `adam`, `lr0.1` and `s1`."""
    return _SEPARATOR.split(text)


def _columns_named(frame: pd.DataFrame, text: str) -> list[str]:
    columns = list(map(str, frame))
    if text in columns:
        return [text]
    positions = {f"#{place}": name for place, name in enumerate(columns, 1)}
    if text in positions:
        return [positions[text]]
    is_pattern = "*" in text or "?" in text
    return [name for name in columns if is_pattern and fnmatchcase(name, text)]


def possible_columns(table: TableFile, given: Columns) -> dict[str, list[str]]:
    """Return the columns that may have each meaning which the user has not given; if it is one, it has the meaning."""
    taken = {name for columns in given.values() for name in columns}
    free = table.frame.drop(columns=[*taken & {*table.frame}])
    possible = {role: _deciding(free, role) for role in ROLES}
    possible |= {role: [name] for role, name in table.known.items() if name in free}
    decided = [{**possible, **given}.get(role) for role in ("variant", "model", "learning_rate")]
    if not any(decided):
        possible["variant"] = _only_names(free)
    possible = _possible_values(free, given) | possible
    return {
        meaning: columns
        for meaning, columns in possible.items()
        if columns and meaning not in given
    }


def _deciding(free: pd.DataFrame, role: str) -> list[str]:
    """Return the columns whose names mean a role, without those that decide nothing.

    These are constant ones beside others, a schedule's rate beside the setting, and all but one column of steps, as
    all of them grow together.
    """
    named = [name for name in map(str, free) if names.role_of(name) == role]
    columns = [name for name in named if free[name].ne("").any()]
    if role == "step":
        order = names.SYNONYMS["step"].split()
        return sorted(columns, key=lambda name: order.index(names.synonym_of(name)))[:1]
    settings = [name for name in columns if names.is_setting(name)]
    if role == "learning_rate" and settings:
        columns = settings
    varying = [name for name in columns if free[name].nunique() > 1]
    return varying or columns[:1]


def _only_names(free: pd.DataFrame) -> list[str]:
    """Return the columns of texts that name each row of a table in which nothing else was varied."""
    settings = [
        name
        for name in map(str, free)
        if not (names.role_of(name) or names.is_measurement(name) or names.split_of(name))
        and free[name].nunique() > 1
    ]
    return settings if all(_names_each_row(free[name]) for name in settings) else []


def _names_each_row(texts: pd.Series[str]) -> bool:
    """Return whether texts are different in each row, and none has settings in it."""
    return texts.is_unique and not any(
        is_number(text) or is_nothing(text) or _HAS_SETTINGS.search(text) for text in texts
    )


def _possible_values(free: pd.DataFrame, given: Columns) -> dict[str, list[str]]:
    """Return the columns of the metric on validation, test and training data, by their names."""
    values = [name for name in map(str, free) if _may_be_metric(free[name], name)]
    possible = {
        split: [name for name in values if names.split_of(name) == split] for split in ("", *SPLITS)
    }
    unsplit = possible.pop("")
    # A loss that does not say its data may be that of training, and so may an accuracy beside it.
    may_be_tested = any(names.is_higher_better(names.metric_of(name)) for name in unsplit)
    is_split = possible["validation"] or possible["test"] or given.get("test")
    if not is_split and may_be_tested:
        possible["validation"] = unsplit
    chosen = given.get("validation") or possible["validation"] or given.get("test")
    if chosen:
        metric = names.measured(chosen[0])
        for split in ("test", "train"):
            same = [name for name in possible[split] if names.measured(name) == metric]
            possible[split] = same
    if len(possible["train"]) > 1:
        possible["train"] = []
    return possible


def _may_be_metric(texts: pd.Series[str], name: str) -> bool:
    """Return whether a name is that of a metric, or that of data and its column has different numbers."""
    is_other = any(names.has_word(name, kind) for kind in ("time", "about", "spread"))
    if is_other or names.is_setting(name) or names.role_of(name):
        return False
    if names.metric_of(name):
        return bool(texts.ne("").any())
    return bool(names.split_of(name)) and texts.nunique() > 1 and are_numbers(texts)
